from libc.stdint cimport int32_t

from congreve.base.slices cimport Slice

# The queue of a parent topic with so many (at least one) that gets the messages of a lite topic:
# the bucket of Java's String.hashCode of its name, which is ASCII, by jump consistent hashing.
cdef int32_t lite_bucket(Slice name, int32_t queues) noexcept nogil
