"""The plans of a lane, for its thread without the GIL: those of pulls and of pops.

The event loop checks the first request of each kind and keeps the result, its plan. A lane copies
a plan when it needs it, and looks it up again, with the GIL, when something changes that the
checks depend on.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free

from congreve.base.atomic cimport load_acquire
from congreve.records.byte_table cimport add_entry, move_slots, slot_of

cdef Py_ssize_t FIRST_CAPACITY = 64
cdef Py_ssize_t KNOWN_MAX = 100_000     # a full table is cleared
cdef Py_ssize_t KEYS_SIZE_MAX = 16 << 20    # bytes of their keys


cdef class LanePlanTable:
    """Plans by the bytes of their keys."""

    def __cinit__(self):
        self.slots = <Key **> PyMem_Calloc(FIRST_CAPACITY, sizeof(Key *))
        if self.slots == NULL:
            raise MemoryError()
        self.capacity = FIRST_CAPACITY

    def __dealloc__(self):
        PyMem_Free(self.slots)

    def __len__(self):
        return self.count

    cdef LanePlan *plan_of(self, const Key *key) noexcept nogil:
        cdef LanePlan *known = self.known(key)
        if (
            known == NULL or known.changes != load_acquire(self.changes)
            or (known.plan == NULL and known.added != load_acquire(self.added))
        ):
            if not self.learn_with_gil(key):
                return NULL
            known = self.known(key)
        return NULL if known.plan == NULL else known

    cdef LanePlan *known(self, const Key *key) noexcept nogil:
        return <LanePlan *> slot_of(self.slots, self.capacity, key)[0]

    cdef bint learn_with_gil(self, const Key *key) noexcept with gil:
        try:
            self.learn(key)
        except MemoryError:
            return False
        return True

    cdef int learn(self, const Key *key) except -1:
        raise NotImplementedError

    cdef int forget(self, LanePlan *known) except -1:
        raise NotImplementedError

    cdef LanePlan *add(self, const Key *key, Py_ssize_t size) except NULL:
        cdef LanePlan *known
        if self.count >= KNOWN_MAX or self.keys_size >= KEYS_SIZE_MAX:
            self.clear()
        if (self.count + 1) * 2 > self.capacity:
            self.grow()
        known = <LanePlan *> add_entry(self.slots, self.capacity, key, size)
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
                self.forget(<LanePlan *> self.slots[i])
                PyMem_Free(self.slots[i])
                self.slots[i] = NULL
        self.count = self.keys_size = 0
        return 0
