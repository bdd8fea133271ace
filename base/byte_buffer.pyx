"""Buffers of bytes outside of Python's memory, for compiled code (byte_buffer.pxd)."""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove


cdef bint append_bytes(ByteBuffer *buffer, const uint8_t *data, int64_t length) noexcept nogil:
    cdef int64_t wanted
    # A move of the content for each append would take a time that grows with the square.
    if buffer.at * 2 >= buffer.used and buffer.used + length > buffer.size:
        buffer.used -= buffer.at
        memmove(buffer.data, buffer.data + buffer.at, buffer.used)
        buffer.at = 0
    wanted = buffer.used + length
    if wanted > buffer.size and not make_room(buffer, wanted + wanted // 4):
        return False
    memcpy(buffer.data + buffer.used, data, length)
    buffer.used += length
    return True


cdef bint make_room(ByteBuffer *buffer, int64_t size) noexcept nogil:
    cdef uint8_t *grown
    if size <= buffer.size:
        return True
    grown = <uint8_t *> realloc(buffer.data, size)
    if grown == NULL:
        return False
    buffer.data = grown
    buffer.size = size
    return True


cdef void release(ByteBuffer *buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.at = buffer.used = buffer.size = 0


cdef void *double_ring(void *ring, int64_t entry_size, int64_t first,
                       int64_t capacity) noexcept nogil:
    cdef int64_t before = first * entry_size
    cdef int64_t size = capacity * entry_size
    cdef uint8_t *grown = <uint8_t *> malloc(2 * size)
    if grown == NULL:
        return NULL
    memcpy(grown, <uint8_t *> ring + before, size - before)
    memcpy(grown + size - before, ring, before)
    free(ring)
    return grown
