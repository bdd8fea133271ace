from libc.stdint cimport int32_t, uint64_t

from congreve.base.slices cimport Slice

cdef enum:
    WORDS = 512                 # of 64 bits


cdef inline uint64_t hash_of(Slice name) noexcept nogil:
    """Equal for equal names."""
    cdef uint64_t found = <uint64_t> name.length
    cdef int32_t i
    for i in range(name.length):
        found = found * 31 + name.data[i]
    return found % (64 * WORDS)


cdef class HashedNames:
    cdef uint64_t[WORDS] bits

    # Whether it is one of the names, or, seldom, another one.
    cdef inline bint may_have(self, Slice name) noexcept nogil:
        cdef uint64_t hashed = hash_of(name)
        return self.bits[hashed // 64] >> hashed % 64 & 1
