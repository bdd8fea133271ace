from libc.stdint cimport int64_t, uint8_t


# A buffer in memory of its own; the bytes from `at` to `used` are its content.
cdef struct ByteBuffer:
    uint8_t *data
    int64_t at
    int64_t used
    int64_t size


# Appends bytes from outside the buffer. False without memory; the buffer is then unchanged.
cdef bint append_bytes(ByteBuffer *buffer, const uint8_t *data, int64_t length) noexcept nogil
# Makes the buffer at least `size` bytes large. False without memory.
cdef bint make_room(ByteBuffer *buffer, int64_t size) noexcept nogil
# Frees the memory.
cdef void release(ByteBuffer *buffer) noexcept nogil
# Moves the entries of a full ring, in order, to memory for twice as many; NULL without memory.
cdef void *double_ring(void *ring, int64_t entry_size, int64_t first,
                       int64_t capacity) noexcept nogil
