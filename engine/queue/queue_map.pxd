from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

# A queue as compiled code looks it up. `topic` NULL: the slot is free. `queue` NULL: its records
# are skipped.
cdef struct KnownQueue:
    const uint8_t *topic        # kept alive by the map, as is the queue
    int32_t topic_length
    int32_t queue_id
    bint delayed                # its entries hold due times instead of tag hashes
    PyObject *queue             # a borrowed ConsumeQueue


cdef class QueueMap:
    # (topic, queue id) -> ConsumeQueue for passes without the GIL: open addressing, at most half
    # full. Code that removes queues of the store clears it.
    cdef readonly list queues
    """(topic, queue or None) of each entry, in the order of insertion."""
    cdef KnownQueue *table
    cdef int64_t capacity

    # The queue's slot, or the free one where it belongs.
    cdef KnownQueue *find(self, const uint8_t *topic, int32_t length,
                          int32_t queue_id) noexcept nogil
    # Adds a queue that find() did not find; with `queue` None its records are skipped.
    cdef KnownQueue *add(self, bytes topic, int32_t queue_id, queue) except NULL
    cdef int clear(self) except -1
    cdef int grow(self) except -1
