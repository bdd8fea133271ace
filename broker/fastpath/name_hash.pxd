from libc.stdint cimport int32_t, uint8_t, uint32_t


# FNV-1a, for tables whose keys are short and whose number is bounded.
cdef inline uint32_t hash_name(const uint8_t *name, int32_t length) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef int32_t i
    for i in range(length):
        h = (h ^ name[i]) * 16777619u
    return h
