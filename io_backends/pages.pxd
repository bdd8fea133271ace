from libc.stdint cimport int64_t, uint8_t


# Whether all pages of [data, data + length) are in memory, of up to 256 KiB; true where the kernel
# does not say.
cdef bint in_memory(const uint8_t *data, int64_t length) noexcept nogil
