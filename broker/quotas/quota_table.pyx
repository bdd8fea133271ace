"""Token buckets of topics, groups, accounts and addresses, for compiled code without the GIL.

A bucket holds what its rate gives in a second. A request passes while each of its buckets has
something left, and is charged with all that it takes: a bucket may go below zero, and nothing
passes until that debt is paid. So a message that is larger than a bucket passes, too, and the rate
over a longer time is the quota. Pulls that wait are counted: as many as the limit may wait at a
time.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from congreve.base.atomic cimport store_relaxed
from congreve.base.clock cimport monotonic_ns
from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from congreve.records.byte_table cimport Key, key_of, move_slots, slot_of

cdef enum:
    FIRST_CAPACITY = 64
    SWEEP_NS = 1_000_000_000    # the shortest time between two removals of idle names

# A balance below it, in messages or bytes, counts as empty: rounding leaves less than that.
cdef double LEAST = 0.001


cdef void fill(QuotaEntry *entry, int64_t now_ns) noexcept nogil:
    """Fill the buckets by the time since the last call."""
    cdef double seconds = (now_ns - entry.filled_ns) / 1e9
    cdef Bucket *bucket
    cdef int i
    if seconds <= 0:
        return
    entry.filled_ns = now_ns
    for i in range(RATES):
        bucket = &entry.buckets[i]
        bucket.balance = min(bucket.rate, bucket.balance + bucket.rate * seconds)


cdef int64_t wait_of(const QuotaEntry *entry, QuotaUse use) noexcept nogil:
    """Nanoseconds until neither bucket of this use is empty."""
    cdef const Bucket *bucket
    cdef double longest = 0
    cdef int i
    for i in range(2):
        bucket = &entry.buckets[<int> use + i]
        if bucket.rate and bucket.balance < LEAST:
            longest = max(longest, (2 * LEAST - bucket.balance) / bucket.rate)
    return <int64_t> (longest * 1e9) + 1 if longest else 0


cdef int64_t counted_wait(QuotaKind *kind, QuotaEntry *entry, QuotaUse use) noexcept nogil:
    cdef int64_t wait = wait_of(entry, use)
    if wait:
        entry.limited[<int> use // 2] += 1
        kind.limited[<int> use // 2] += 1
    return wait


cdef void pay(QuotaEntry **entries, QuotaUse use, int64_t messages, int64_t size) noexcept nogil:
    """Charge these entries of each kind, those that are not NULL."""
    cdef Bucket *buckets
    cdef int i
    for i in range(KINDS):
        if entries[i] != NULL:
            buckets = &entries[i].buckets[<int> use]
            if buckets[0].rate:
                buckets[0].balance -= messages
            if buckets[1].rate:
                buckets[1].balance -= size


cdef bint is_idle(QuotaEntry *entry, int64_t now_ns) noexcept nogil:
    cdef int i
    fill(entry, now_ns)
    for i in range(RATES):
        if entry.buckets[i].balance < entry.buckets[i].rate:
            return False
    return not entry.own and not entry.held


cdef void set_rates(QuotaEntry *entry, const double *rates) noexcept nogil:
    """Set the rates; what was used up stays used up, as far as the new bucket is that large."""
    cdef Bucket *bucket
    cdef int i
    for i in range(RATES):
        bucket = &entry.buckets[i]
        bucket.balance = min(bucket.balance, rates[i]) if bucket.rate else rates[i]
        bucket.rate = rates[i]
    entry.held_max = rates[RATES]


cdef QuotaEntry *new_entry(const Key *name, const double *rates, int64_t now_ns) noexcept nogil:
    cdef QuotaEntry *entry = <QuotaEntry *> calloc(1, sizeof(QuotaEntry) + name.length)
    if entry == NULL:
        return NULL
    memcpy(entry + 1, name.bytes, name.length)
    entry.name = name[0]
    entry.name.bytes = <const uint8_t *> (entry + 1)
    entry.filled_ns = now_ns
    set_rates(entry, rates)
    return entry


cdef bint drop_idle(QuotaKind *kind, int64_t now_ns) noexcept nogil:
    """Drop the names with full buckets; whether there were any."""
    cdef Key **kept
    cdef QuotaEntry *entry
    cdef Py_ssize_t before = kind.count
    cdef Py_ssize_t i
    if now_ns - kind.swept_ns < SWEEP_NS:
        return False
    kind.swept_ns = now_ns
    kept = <Key **> calloc(kind.capacity, sizeof(Key *))
    if kept == NULL:
        return False
    for i in range(kind.capacity):
        entry = <QuotaEntry *> kind.slots[i]
        if entry == NULL:
            continue
        if is_idle(entry, now_ns):
            kind.count -= 1
            free(entry)
        else:
            slot_of(kept, kind.capacity, &entry.name)[0] = &entry.name
    free(kind.slots)
    kind.slots = kept
    return kind.count < before


cdef bint put(QuotaKind *kind, QuotaEntry *entry) noexcept nogil:
    cdef Key **doubled
    if (kind.count + 1) * 2 > kind.capacity:
        doubled = <Key **> calloc(2 * kind.capacity, sizeof(Key *))
        if doubled == NULL:
            return False
        move_slots(kind.slots, kind.capacity, doubled)
        free(kind.slots)
        kind.slots, kind.capacity = doubled, 2 * kind.capacity
    slot_of(kind.slots, kind.capacity, &entry.name)[0] = &entry.name
    kind.count += 1
    return True


cdef QuotaEntry *entry_of(QuotaKind *kind, Slice name, Py_ssize_t names_max,
                          int64_t now_ns) noexcept nogil:
    """The entry of a name, made when the kind has default rates; NULL: the name has no limit."""
    cdef Key key = key_of(name.data, name.length)
    cdef QuotaEntry *entry = <QuotaEntry *> slot_of(kind.slots, kind.capacity, &key)[0]
    if entry == NULL and kind.has_default:
        if kind.count < names_max or drop_idle(kind, now_ns):
            entry = new_entry(&key, kind.default_rates, now_ns)
            if entry != NULL and not put(kind, entry):
                free(entry)
                entry = NULL
        if entry == NULL:
            entry = &kind.surplus
    if entry != NULL:
        fill(entry, now_ns)
    return entry


@cython.final
cdef class QuotaTable:
    """The buckets of all names; any thread may charge them.

    Requests are charged to accounts with `has_accounts` only: then something has checked their
    signatures. Each kind has at most `names_max` names: those beyond it share the buckets of one. A
    rate of 0 means no limit. (RocketMQ: none; 5.x has ColdDataCgCtrService.)
    """

    def __cinit__(self, *, bint has_accounts=False, Py_ssize_t names_max=65_536):
        cdef int i
        pthread_mutex_init(&self.mutex, NULL)
        self.has_accounts, self.names_max = has_accounts, names_max
        for i in range(KINDS):
            self.kinds[i].capacity = FIRST_CAPACITY
            self.kinds[i].slots = <Key **> calloc(FIRST_CAPACITY, sizeof(Key *))
            if self.kinds[i].slots == NULL:
                raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t at
        cdef int i
        for i in range(KINDS):
            if self.kinds[i].slots != NULL:
                for at in range(self.kinds[i].capacity):
                    free(self.kinds[i].slots[at])
            free(self.kinds[i].slots)
        pthread_mutex_destroy(&self.mutex)

    # --- limits

    def set_default(self, int kind, tuple rates not None):
        """Set the rates of all names of a kind without rates of their own."""
        cdef double[LIMITS] wanted = rates
        cdef QuotaKind *of = &self.kinds[kind]
        cdef QuotaEntry *entry
        cdef Py_ssize_t at
        cdef bint has_default = any(rates)
        pthread_mutex_lock(&self.mutex)
        memcpy(of.default_rates, wanted, sizeof(wanted))
        of.has_default = has_default
        set_rates(&of.surplus, wanted)
        for at in range(of.capacity):
            entry = <QuotaEntry *> of.slots[at]
            if entry != NULL and not entry.own:
                set_rates(entry, wanted)
        pthread_mutex_unlock(&self.mutex)
        self.note_use()

    def set_rates(self, int kind, bytes name not None, tuple rates not None):
        """Set the rates of one name. Raises MemoryError."""
        self.change(kind, name, rates, True)

    def drop_rates(self, int kind, bytes name not None):
        """Give a name the kind's default rates again."""
        cdef double[LIMITS] rates = self.kinds[kind].default_rates
        self.change(kind, name, tuple(rates), False)

    def change(self, int kind, bytes name not None, tuple rates not None, bint own):
        """Set the rates of one name, and whether they are its own. Raises MemoryError."""
        cdef double[LIMITS] wanted = rates
        cdef QuotaKind *of = &self.kinds[kind]
        cdef int64_t now_ns = monotonic_ns()
        cdef Key key = key_of(name, <int32_t> len(name))
        cdef QuotaEntry *entry
        pthread_mutex_lock(&self.mutex)
        entry = <QuotaEntry *> slot_of(of.slots, of.capacity, &key)[0]
        if entry == NULL:
            entry = new_entry(&key, wanted, now_ns)
            if entry != NULL and not put(of, entry):
                free(entry)
                entry = NULL
        else:
            fill(entry, now_ns)
            set_rates(entry, wanted)
        if entry != NULL:
            entry.own = own
        pthread_mutex_unlock(&self.mutex)
        if entry == NULL:
            raise MemoryError(f"no memory for the quota of {name!r}")
        self.note_use()

    def note_use(self):
        """Compute again whether some name has a limit."""
        cdef QuotaKind *of
        cdef Py_ssize_t at
        cdef int i
        cdef bint any_in_use = False
        pthread_mutex_lock(&self.mutex)
        for i in range(KINDS):
            of = &self.kinds[i]
            of.in_use = of.has_default
            for at in range(of.capacity):
                of.in_use |= of.slots[at] != NULL and (<QuotaEntry *> of.slots[at]).own
            any_in_use |= of.in_use
        store_relaxed(&self.in_use, any_in_use)
        pthread_mutex_unlock(&self.mutex)

    # --- requests, without the GIL

    cdef void find_all(self, const Charged *payers, int64_t now_ns,
                       QuotaEntry **found) noexcept nogil:
        cdef int i
        for i in range(KINDS):
            found[i] = NULL
            if self.kinds[i].in_use and payers.names[i].data != NULL:
                found[i] = entry_of(&self.kinds[i], payers.names[i], self.names_max, now_ns)

    cdef int64_t take(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                      int64_t now_ns) noexcept nogil:
        return self.spend(payers, use, messages, size, now_ns, False)

    cdef int64_t charge(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                        int64_t now_ns) noexcept nogil:
        return self.spend(payers, use, messages, size, now_ns, True)

    cdef int64_t spend(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                       int64_t now_ns, bint always) noexcept nogil:
        cdef QuotaEntry *found[KINDS]
        cdef int64_t longest = 0
        cdef int i
        pthread_mutex_lock(&self.mutex)
        self.find_all(payers, now_ns, found)
        for i in range(KINDS):
            if found[i] != NULL:
                longest = max(longest, counted_wait(&self.kinds[i], found[i], use))
        if always or not longest:
            pay(found, use, messages, size)
        pthread_mutex_unlock(&self.mutex)
        return longest

    cdef void give_back(self, const Charged *payers, QuotaUse use, int64_t messages, int64_t size,
                        int64_t now_ns) noexcept nogil:
        cdef QuotaEntry *found[KINDS]
        pthread_mutex_lock(&self.mutex)
        self.find_all(payers, now_ns, found)
        pay(found, use, -messages, -size)
        pthread_mutex_unlock(&self.mutex)

    cdef bint hold(self, const Charged *payers, QuotaEntry **places, bint counts) noexcept nogil:
        cdef bint full = False
        cdef int i
        pthread_mutex_lock(&self.mutex)
        self.find_all(payers, monotonic_ns(), places)
        for i in range(KINDS):
            if places[i] != NULL and places[i].held_max and places[i].held >= places[i].held_max:
                full = True
                places[i].limited[HELD_PULLS // 2] += counts
                self.kinds[i].limited[HELD_PULLS // 2] += counts
        for i in range(KINDS):
            if full:
                places[i] = NULL
            elif places[i] != NULL:
                places[i].held += 1
        pthread_mutex_unlock(&self.mutex)
        return not full

    cdef void release_place(self, QuotaEntry **places) noexcept nogil:
        cdef int i
        pthread_mutex_lock(&self.mutex)
        for i in range(KINDS):
            if places[i] != NULL:
                places[i].held -= 1
                places[i] = NULL
        pthread_mutex_unlock(&self.mutex)

    # --- for Python callers

    def __bool__(self):
        """Whether some name has a limit."""
        return has_quotas(self)

    def take_for(self, tuple names not None, int use, int64_t messages, int64_t size,
                 int64_t now_ns):
        """take() for names (topic, group, account, address), each bytes or None."""
        cdef Charged payers = charged(names)
        return self.take(&payers, <QuotaUse> use, messages, size, now_ns)

    def charge_for(self, tuple names not None, int use, int64_t messages, int64_t size,
                   int64_t now_ns):
        """charge() for names (topic, group, account, address), each bytes or None."""
        cdef Charged payers = charged(names)
        return self.charge(&payers, <QuotaUse> use, messages, size, now_ns)

    def limited(self, int kind, bytes name=None):
        """How many requests found the quota of a name, or of any name, used up.

        A tuple: sends, pulls, cold reads, heartbeats, held pulls.
        """
        cdef int64_t[USES] counts
        cdef QuotaKind *of = &self.kinds[kind]
        cdef QuotaEntry *entry = NULL
        cdef Key key
        pthread_mutex_lock(&self.mutex)
        counts = of.limited
        if name is not None:
            key = key_of(name, <int32_t> len(name))
            entry = <QuotaEntry *> slot_of(of.slots, of.capacity, &key)[0]
            memset(counts, 0, sizeof(counts))
        if entry != NULL:
            counts = entry.limited
        pthread_mutex_unlock(&self.mutex)
        return counts[0], counts[1], counts[2], counts[3], counts[4]


cdef Charged charged(tuple names) except *:
    cdef Charged payers
    cdef bytes name
    cdef int i
    for i in range(KINDS):
        name = names[i]
        payers.names[i].data = NULL
        if name is not None:
            payers.names[i].data = name
            payers.names[i].length = <int32_t> len(name)
    return payers
