from libc.stdint cimport int32_t, uint8_t

# False where a member asks for what a batch cannot give: a delay, a transaction. A malformed body
# is fine here: the append refuses it.
cdef bint is_ordinary_batch(const uint8_t *body, int32_t length) noexcept nogil
