"""The pull plans of a lane, for its thread without the GIL.

The event loop checks the first pull of each kind and keeps the result (pull_plan.pyx). A lane
copies a result when it needs it, and looks it up again, with the GIL, when something changes that
the checks depend on.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from congreve.base.atomic cimport load_acquire
from congreve.base.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from congreve.broker.pull.lanes.pull_plan cimport PullPlan, put_key
from congreve.records.byte_table cimport Key, add_entry, key_of, move_slots, slot_of

cdef Py_ssize_t FIRST_CAPACITY = 256
cdef Py_ssize_t KNOWN_MAX = 100_000     # a full table is cleared
cdef Py_ssize_t KEYS_SIZE_MAX = 64 << 20    # bytes of their keys


@cython.final
cdef class LanePullTable:
    """The pull plans of one lane, and the offsets that they committed.

    At most `files_max` of them keep a file of the queue mapped.
    """

    def __cinit__(self, PullPlans plans not None, Py_ssize_t files_max):
        self.plans = plans
        self.files_max = files_max
        self.collected = []
        pthread_mutex_init(&self.mutex, NULL)
        self.capacity = FIRST_CAPACITY
        self.slots = <Key **> PyMem_Calloc(self.capacity, sizeof(Key *))
        self.uncollected = <LanePull **> PyMem_Calloc(self.capacity, sizeof(LanePull *))
        if self.slots == NULL or self.uncollected == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.slots != NULL:
            for i in range(self.capacity):
                if self.slots[i] != NULL:
                    self.remove(<LanePull *> self.slots[i])
        PyMem_Free(self.slots)
        PyMem_Free(self.uncollected)
        pthread_mutex_destroy(&self.mutex)

    def __len__(self):
        return self.count

    def take_commits(self):
        """The offsets that pulls committed since the last call: (group, topic, queue, offset)."""
        cdef LanePull *known
        cdef PullPlan plan
        taken, self.collected = self.collected, []
        pthread_mutex_lock(&self.mutex)
        while self.uncollected_count:
            self.uncollected_count -= 1
            known = self.uncollected[self.uncollected_count]
            plan = <PullPlan> known.plan
            taken.append((
                plan.group_name, plan.topic_name, plan.queue.queue_id,
                known.pending,
            ))
            known.pending = -1
        pthread_mutex_unlock(&self.mutex)
        return taken

    cdef void commit(self, LanePull *known, int64_t offset) noexcept nogil:
        if offset < 0:
            return
        pthread_mutex_lock(&self.mutex)
        if known.pending < 0:
            self.uncollected[self.uncollected_count] = known
            self.uncollected_count += 1
        known.pending = offset
        pthread_mutex_unlock(&self.mutex)

    cdef int keep_file(self, LanePull *known, Mapping mapping, int64_t base) except -1:
        cdef Py_ssize_t i
        self.drop_file(known)
        if self.files == self.files_max:
            for i in range(self.capacity):
                if self.slots[i] != NULL:
                    self.drop_file(<LanePull *> self.slots[i])
        Py_INCREF(mapping)
        known.mapping, known.file, known.base = <PyObject *> mapping, mapping.data, base
        self.files += 1
        return 0

    cdef int drop_file(self, LanePull *known) except -1:
        self.files -= known.mapping != NULL
        known.file = NULL
        Py_CLEAR(known.mapping)
        return 0

    cdef LanePull *find(self, const PullHeader *pull) noexcept nogil:
        cdef Py_ssize_t length = put_key(pull, <char *> self.bytes)
        cdef Key key
        cdef LanePull *known
        if length < 0:
            return NULL
        key = key_of(self.bytes, <int32_t> length)
        known = self.known(&key)
        if (
            known == NULL or known.changes != load_acquire(&self.plans.changes)
            or (known.plan == NULL and known.added != load_acquire(&self.plans.added))
        ):
            if not self.learn_with_gil(&key):
                return NULL
            known = self.known(&key)
        return NULL if known.plan == NULL else known

    cdef LanePull *known(self, const Key *key) noexcept nogil:
        return <LanePull *> slot_of(self.slots, self.capacity, key)[0]

    cdef bint learn_with_gil(self, const Key *key) noexcept with gil:
        try:
            self.learn(key)
        except MemoryError:
            return False
        return True

    cdef int learn(self, const Key *key) except -1:
        # The numbers are read first: a change during the look-up causes another one.
        cdef int64_t changes = load_acquire(&self.plans.changes)
        cdef int64_t added = load_acquire(&self.plans.added)
        cdef LanePull *known = self.known(key)
        cdef PullPlan plan = self.plans.for_lane(
            PyBytes_FromStringAndSize(<const char *> key.bytes, key.length)
        )
        if known == NULL:
            known = self.add(key)
        if known.plan != <PyObject *> plan:
            if known.pending >= 0:
                self.collected = self.take_commits()
            self.drop_file(known)
            Py_CLEAR(known.plan)
            known.costly = False
            if plan is not None:
                Py_INCREF(plan)
                known.plan = <PyObject *> plan
        known.by_loop, known.timeout_ms = self.plans.by_loop(), self.plans.timeout_ms()
        known.changes, known.added = changes, added
        return 0

    cdef LanePull *add(self, const Key *key) except NULL:
        cdef LanePull *known
        if self.count >= KNOWN_MAX or self.keys_size >= KEYS_SIZE_MAX:
            self.clear()
        if (self.count + 1) * 2 > self.capacity:
            self.grow()
        known = <LanePull *> add_entry(self.slots, self.capacity, key, sizeof(LanePull))
        known.pending = -1
        self.count += 1
        self.keys_size += key.length
        return known

    cdef int grow(self) except -1:
        cdef Py_ssize_t capacity = 2 * self.capacity
        cdef Key **slots = <Key **> PyMem_Calloc(capacity, sizeof(Key *))
        cdef LanePull **uncollected = <LanePull **> PyMem_Calloc(capacity, sizeof(LanePull *))
        if slots == NULL or uncollected == NULL:
            PyMem_Free(slots)
            PyMem_Free(uncollected)
            raise MemoryError()
        move_slots(self.slots, self.capacity, slots)
        memcpy(uncollected, self.uncollected, self.uncollected_count * sizeof(LanePull *))
        PyMem_Free(self.slots)
        PyMem_Free(self.uncollected)
        self.slots, self.uncollected, self.capacity = slots, uncollected, capacity
        return 0

    cdef int clear(self) except -1:
        cdef Py_ssize_t i
        self.collected = self.take_commits()
        for i in range(self.capacity):
            if self.slots[i] != NULL:
                self.remove(<LanePull *> self.slots[i])
                self.slots[i] = NULL
        self.count = self.keys_size = 0
        return 0

    cdef int remove(self, LanePull *known) except -1:
        self.drop_file(known)
        Py_CLEAR(known.plan)
        PyMem_Free(known)
        return 0
