from libc.stdint cimport int32_t, uint8_t

# False when a member asks for a delay or a transaction, which a batch cannot have. A malformed body
# passes here: the append rejects it.
cdef bint is_ordinary_batch(const uint8_t *body, int32_t length, bint reserves) noexcept nogil
# The members of a batch, as far as it is well formed; at least 1.
cdef int32_t member_count(const uint8_t *body, int32_t length) noexcept nogil
