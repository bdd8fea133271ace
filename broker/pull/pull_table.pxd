from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from congreve.broker.pull.validated_pull cimport ValidatedPull
from congreve.engine.log.append_lock cimport AppendLock

# A validated pull, for code without the GIL. The table owns it, and changes it under the append
# lock: no code keeps it after it drops the lock.
cdef struct PullEntry:
    void *validated             # ValidatedPull; the entry holds a reference
    void *queue                 # its queue, borrowed
    void *tags                  # its TagFilter, or None, borrowed
    int64_t committed           # the newest offset that a pull has committed, -1 without one
    int64_t pulls               # answered since the last collect(),
    int64_t messages            # their messages
    int64_t size                # and bytes
    PullEntry *next_noted
    bint noted                  # it is in the list of the last field
    uint8_t *key
    int32_t key_length
    uint32_t hash


cdef class PullTable:
    cdef AppendLock lock
    cdef object offsets         # ConsumerOffsetManager
    cdef object config
    cdef set names              # topics and groups of the entries
    cdef PullEntry **slots      # open addressing, a power of two of them
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count
    cdef PullEntry *noted       # entries with something for collect()

    cdef PullEntry *find(self, const uint8_t *key, int32_t length) noexcept nogil
    cdef void note(self, PullEntry *entry) noexcept nogil
    # Add a validated pull, unless the table has it.
    cdef int put(self, const uint8_t *key, int32_t length, ValidatedPull validated) except -1
    cdef int grow(self) except -1
    cdef int take(self, PullEntry *noted) except -1
    cdef PullEntry **slot(self, const uint8_t *key, int32_t length, uint32_t hash) noexcept nogil
