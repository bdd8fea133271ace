from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t

from congreve.engine.log.append_lock cimport AppendLock
from congreve.records.byte_table cimport Key

# The fast path's data of a topic. The table owns it, and changes it under the append lock: no code
# keeps it after it drops the lock.
cdef struct TopicEntry:
    Key name
    int32_t write_queues
    bint takes_normal           # messages that are not ordered, delayed or of a transaction
    bint takes_lite             # messages of lite topics
    int32_t queue_count         # max(read, write): queue ids below it take messages
    PyObject **queues           # ConsumeQueue of each queue id, NULL until it is set
    void *counts                # TopicCounts, which the table owns; NULL before the first queue


cdef class TopicTable:
    cdef AppendLock lock
    cdef list retired           # what was replaced or deleted: a lane may still point to it
    cdef readonly dict counts
    """What is counted of each topic that got messages."""
    cdef public bint lite_full
    """Whether no send may create a lite topic: Python serves those with one."""
    cdef Key **slots            # of TopicEntries
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count

    cdef TopicEntry *find(self, const uint8_t *name, int32_t length) noexcept nogil
    cdef TopicEntry *find_key(self, const Key *name) noexcept nogil
    # Whether this queue is still the one of its topic and id in the table.
    cdef bint holds(self, void *queue, const uint8_t *name, int32_t length,
                    int32_t queue_id) noexcept nogil
    cdef int retire(self, TopicEntry *entry) except -1
    cdef int grow(self) except -1
