from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t

# The fast path's data of a topic. The table owns it; it is valid until the topic is put again or
# removed, so no code keeps it across a return to Python.
cdef struct TopicEntry:
    uint8_t *name
    int32_t name_length
    uint32_t hash
    int32_t write_queues
    int32_t queue_count         # max(read, write): queue ids below it take messages
    PyObject **queues           # ConsumeQueue of each queue id, NULL until it is set


cdef class TopicTable:
    cdef TopicEntry **slots     # open addressing, a power of two of them
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count

    cdef TopicEntry *find(self, const uint8_t *name, int32_t length) noexcept nogil
    cdef int grow(self) except -1
    cdef TopicEntry **slot(self, const uint8_t *name, int32_t length, uint32_t hash) noexcept nogil
