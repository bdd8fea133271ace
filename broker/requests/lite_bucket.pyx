"""Which queue of a parent topic gets the messages of a lite topic (RocketMQ 5:
MessageQueueSelector, Guava: Hashing.consistentHash)."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from congreve.base.slices cimport Slice, slice_of


cdef int32_t lite_bucket(Slice name, int32_t queues) noexcept nogil:
    cdef uint32_t hashed = 0
    cdef uint64_t state
    cdef double draw
    cdef int64_t following
    cdef int32_t candidate = 0
    cdef int32_t i
    for i in range(name.length):
        hashed = hashed * 31 + name.data[i]
    state = <uint64_t> <int64_t> <int32_t> hashed
    while True:
        state = <uint64_t> 2862933555777941757 * state + 1
        draw = <double> ((state >> 33) + 1) / <double> (<uint64_t> 1 << 31)
        following = <int64_t> ((candidate + 1) / draw)
        if following >= queues:
            return candidate
        candidate = <int32_t> following


def queue_of_lite(str name not None, int32_t queues):
    """The queue of `queues` that gets the messages of a lite topic."""
    cdef bytes text = name.encode()
    return lite_bucket(slice_of(text), queues)
