"""Validated pulls for code that holds no GIL.

Lanes read the table under the append lock. The event loop adds what it has validated, and removes
everything when a topic, group or subscription of an entry changes.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from congreve.broker.fastpath.name_hash cimport hash_name
from congreve.broker.pull.validated_pull cimport VALIDATED_MAX, ValidatedPull
from congreve.engine.log.append_lock cimport AppendLock

cdef Py_ssize_t FIRST_CAPACITY = 64


@cython.final
cdef class PullTable:
    """Pulls whose checks need not be repeated, by the request fields that the checks depend on.

    What lanes note in it, committed offsets and counts, reaches `offsets` and the counters with
    collect().
    """

    def __cinit__(self, AppendLock lock not None, offsets, config):
        self.lock = lock
        self.offsets = offsets
        self.config = config
        self.names = set()
        self.capacity = FIRST_CAPACITY
        self.slots = <PullEntry **> PyMem_Calloc(self.capacity, sizeof(PullEntry *))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.slots != NULL:
            free_all(self.slots, self.capacity)

    def __len__(self):
        return self.count

    def changed(self, str name not None):
        """A topic or group changed: forget the pulls whose checks may have another result."""
        if name in self.names:
            self.clear()

    def clear(self):
        """Forget all pulls."""
        cdef PullEntry **slots = self.slots
        cdef Py_ssize_t capacity = self.capacity
        if not self.count:
            return
        empty = <PullEntry **> PyMem_Calloc(FIRST_CAPACITY, sizeof(PullEntry *))
        if empty == NULL:
            raise MemoryError()
        self.lock.take_with_gil()
        noted, self.noted = self.noted, NULL
        self.slots = empty
        self.capacity = FIRST_CAPACITY
        self.count = 0
        self.lock.drop()
        self.names.clear()
        try:
            self.take(noted)
        finally:
            free_all(slots, capacity)

    def collect(self):
        """Commit the offsets, and count the messages, of the pulls that lanes have answered."""
        cdef PullEntry *noted
        if self.noted == NULL:
            return
        self.lock.take_with_gil()
        noted, self.noted = self.noted, NULL
        self.lock.drop()
        self.take(noted)

    cdef PullEntry *find(self, const uint8_t *key, int32_t length) noexcept nogil:
        return self.slot(key, length, hash_name(key, length))[0]

    cdef void note(self, PullEntry *entry) noexcept nogil:
        """Keep an entry for collect()."""
        if not entry.noted:
            entry.noted = True
            entry.next_noted = self.noted
            self.noted = entry

    cdef int put(self, const uint8_t *key, int32_t length, ValidatedPull validated) except -1:
        cdef PullEntry *entry
        if validated.records is not None or self.config.slave_read_enable:
            return 0
        if self.find(key, length) != NULL:
            return 0
        if self.count >= VALIDATED_MAX:
            self.clear()
        if (self.count + 1) * 2 > self.capacity:
            with self.lock:
                self.grow()
        # One block: the key lies behind the entry.
        entry = <PullEntry *> PyMem_Calloc(1, sizeof(PullEntry) + length)
        if entry == NULL:
            raise MemoryError()
        entry.key = <uint8_t *> (entry + 1)
        memcpy(entry.key, key, length)
        entry.key_length = length
        entry.hash = hash_name(key, length)
        entry.validated = <void *> validated
        entry.queue = <void *> validated.queue
        entry.tags = <void *> validated.tags
        entry.committed = -1
        Py_INCREF(validated)
        self.names.add(validated.group_name)
        self.names.add(validated.topic_name)
        with self.lock:
            self.slot(entry.key, length, entry.hash)[0] = entry
            self.count += 1
        return 0

    cdef PullEntry **slot(self, const uint8_t *key, int32_t length, uint32_t hash) noexcept nogil:
        """The slot that holds `key`, or the empty one where it belongs."""
        cdef Py_ssize_t mask = self.capacity - 1
        cdef Py_ssize_t i = hash & mask
        cdef PullEntry *entry
        while True:
            entry = self.slots[i]
            if entry == NULL or (
                entry.hash == hash and entry.key_length == length
                and memcmp(entry.key, key, length) == 0
            ):
                return &self.slots[i]
            i = (i + 1) & mask

    cdef int grow(self) except -1:
        cdef PullEntry **old = self.slots
        cdef Py_ssize_t old_capacity = self.capacity
        cdef Py_ssize_t i
        slots = <PullEntry **> PyMem_Calloc(old_capacity * 2, sizeof(PullEntry *))
        if slots == NULL:
            raise MemoryError()
        self.slots = slots
        self.capacity = old_capacity * 2
        for i in range(old_capacity):
            if old[i] != NULL:
                self.slot(old[i].key, old[i].key_length, old[i].hash)[0] = old[i]
        PyMem_Free(old)
        return 0

    cdef int take(self, PullEntry *noted) except -1:
        """Pass on what lanes noted in these entries."""
        cdef ValidatedPull validated
        cdef PullEntry *entry
        cdef int64_t pulls, messages, size, committed
        while noted != NULL:
            entry = noted
            # A lane may note more meanwhile, and list the entry again.
            self.lock.take_with_gil()
            noted = entry.next_noted
            entry.noted = False
            pulls, messages, size = entry.pulls, entry.messages, entry.size
            committed = entry.committed
            entry.pulls = entry.messages = entry.size = 0
            entry.committed = -1
            self.lock.drop()
            validated = <ValidatedPull> entry.validated
            validated.counter.add_all(pulls, messages, size)
            if committed >= 0 and not self.config.is_slave:
                self.offsets.commit(
                    validated.group_name, validated.topic_name, validated.queue.queue_id, committed
                )
        return 0


cdef void free_all(PullEntry **slots, Py_ssize_t capacity) noexcept:
    cdef Py_ssize_t i
    for i in range(capacity):
        if slots[i] != NULL:
            Py_DECREF(<object> slots[i].validated)
            PyMem_Free(slots[i])
    PyMem_Free(slots)
