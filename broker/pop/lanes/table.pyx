"""The pop plans of a lane, for its thread without the GIL, as those of pulls
(broker/pull/lanes/table.pyx).
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.stdint cimport int32_t, int64_t

from congreve.base.atomic cimport load_acquire
from congreve.broker.pop.lanes.pop_plan cimport PopPlan, put_key
from congreve.records.byte_table cimport Key, add_entry, key_of, move_slots, slot_of

cdef Py_ssize_t FIRST_CAPACITY = 64
cdef Py_ssize_t KNOWN_MAX = 100_000     # a full table is cleared
cdef Py_ssize_t KEYS_SIZE_MAX = 64 << 20    # bytes of their keys


@cython.final
cdef class LanePopTable:
    """The pop plans of one lane; their queues keep at most `files_max` files mapped."""

    def __cinit__(self, PopPlans plans not None, Py_ssize_t files_max):
        self.plans = plans
        self.files_max = files_max
        self.capacity = FIRST_CAPACITY
        self.slots = <Key **> PyMem_Calloc(self.capacity, sizeof(Key *))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.slots != NULL:
            self.clear()
        PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    cdef LanePop *find(self, const PopHeader *pop) noexcept nogil:
        cdef Py_ssize_t length = put_key(pop, <char *> self.bytes)
        cdef Key key
        cdef LanePop *known
        if length < 0:
            return NULL
        key = key_of(self.bytes, <int32_t> length)
        known = <LanePop *> slot_of(self.slots, self.capacity, &key)[0]
        if (
            known == NULL or known.changes != load_acquire(&self.plans.changes)
            or (known.plan == NULL and known.added != load_acquire(&self.plans.added))
        ):
            if not self.learn_with_gil(&key):
                return NULL
            known = <LanePop *> slot_of(self.slots, self.capacity, &key)[0]
        return NULL if known.plan == NULL else known

    cdef int keep_file(self, LanePop *known, int32_t queue, Mapping mapping,
                       int64_t base) except -1:
        cdef PopFile *file = &known.files[queue]
        self.files -= file.mapping != NULL
        file.file = NULL
        Py_CLEAR(file.mapping)
        if mapping is None:
            return 0
        if self.files >= self.files_max:
            self.clear_files()
        Py_INCREF(mapping)
        file.mapping, file.file, file.base = <PyObject *> mapping, mapping.data, base
        self.files += 1
        return 0

    cdef int clear_files(self) except -1:
        cdef Py_ssize_t i
        for i in range(self.capacity):
            if self.slots[i] != NULL:
                self.drop_files(<LanePop *> self.slots[i])
        return 0

    cdef int drop_files(self, LanePop *known) except -1:
        cdef int32_t i
        if known.files != NULL:
            for i in range(known.count + known.retries):
                self.keep_file(known, i, None, 0)
        return 0

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
        cdef LanePop *known = <LanePop *> slot_of(self.slots, self.capacity, key)[0]
        cdef PopPlan plan = self.plans.for_lane(
            PyBytes_FromStringAndSize(<const char *> key.bytes, key.length)
        )
        if known == NULL:
            known = self.add(key)
        if known.plan != <PyObject *> plan:
            self.forget(known)
            if plan is not None:
                known.files = <PopFile *> PyMem_Calloc(
                    plan.count + plan.retries, sizeof(PopFile)
                )
                if known.files == NULL:
                    raise MemoryError()
                Py_INCREF(plan)
                known.plan = <PyObject *> plan
                known.queues, known.count, known.retries = plan.queues, plan.count, plan.retries
                known.waiting = &plan.waiting.counts
        if plan is not None:
            known.direction = self.plans.direction(plan)
            known.retries_first = self.plans.retries_first(plan)
        known.waiting_max = self.plans.waiting_max()
        known.all_waiting_max = self.plans.all_waiting_max()
        known.changes, known.added, known.nothing_at = changes, added, -1
        return 0

    cdef LanePop *add(self, const Key *key) except NULL:
        cdef LanePop *known
        if self.count >= KNOWN_MAX or self.keys_size >= KEYS_SIZE_MAX:
            self.clear()
        if (self.count + 1) * 2 > self.capacity:
            self.grow()
        known = <LanePop *> add_entry(self.slots, self.capacity, key, sizeof(LanePop))
        self.count += 1
        self.keys_size += key.length
        return known

    cdef int grow(self) except -1:
        cdef Key **slots = <Key **> PyMem_Calloc(2 * self.capacity, sizeof(Key *))
        if slots == NULL:
            raise MemoryError()
        move_slots(self.slots, self.capacity, slots)
        PyMem_Free(self.slots)
        self.slots, self.capacity = slots, 2 * self.capacity
        return 0

    cdef int clear(self) except -1:
        cdef Py_ssize_t i
        for i in range(self.capacity):
            if self.slots[i] != NULL:
                self.forget(<LanePop *> self.slots[i])
                PyMem_Free(self.slots[i])
                self.slots[i] = NULL
        self.count = self.keys_size = 0
        return 0

    cdef int forget(self, LanePop *known) except -1:
        """Let go of the pop plan and the files of an entry."""
        self.drop_files(known)
        PyMem_Free(known.files)
        known.files, known.count, known.retries, known.costly = NULL, 0, 0, False
        Py_CLEAR(known.plan)
        return 0
