from libc.stdint cimport int64_t, uint8_t

# decode_properties() of the `length` bytes at `at`.
cdef dict to_properties(const uint8_t *at, int64_t length)
