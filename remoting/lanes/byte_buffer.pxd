from libc.stdint cimport int64_t, uint8_t


# Bytes in memory of their own: those from `at` to `used` count.
cdef struct ByteBuffer:
    uint8_t *data
    int64_t at
    int64_t used
    int64_t size


# Appends bytes, which may not lie in the buffer. False without memory; then nothing has changed.
cdef bint append_bytes(ByteBuffer *buffer, const uint8_t *data, int64_t length) noexcept nogil
# Makes the buffer at least `size` bytes large. False without memory.
cdef bint make_room(ByteBuffer *buffer, int64_t size) noexcept nogil
# Frees the memory.
cdef void release(ByteBuffer *buffer) noexcept nogil
