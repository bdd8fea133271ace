# Big-endian loads and stores at an address. Bounds are the caller's, but for prefetch() and
# prefetch_to_write(), which only ask memory for the line that will be read or written.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #define congreve_bswap16(x) __builtin_bswap16(x)
    #define congreve_bswap32(x) __builtin_bswap32(x)
    #define congreve_bswap64(x) __builtin_bswap64(x)
    /* The compiler leaves this instruction out for the oldest x86-64, which does nothing at it. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #define congreve_prefetchw(at) \\
        __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *) (at)))
    #else
    #define congreve_prefetchw(at) __builtin_prefetch(at, 1)
    #endif
    """
    uint16_t congreve_bswap16(uint16_t x)
    uint32_t congreve_bswap32(uint32_t x)
    uint64_t congreve_bswap64(uint64_t x)
    void prefetch "__builtin_prefetch"(const void *at)
    void prefetch_to_write "congreve_prefetchw"(const void *at)


cdef inline int16_t load_i16(const uint8_t *at) noexcept nogil:
    cdef uint16_t x
    memcpy(&x, at, 2)
    return <int16_t> congreve_bswap16(x)


cdef inline int32_t load_i32(const uint8_t *at) noexcept nogil:
    cdef uint32_t x
    memcpy(&x, at, 4)
    return <int32_t> congreve_bswap32(x)


cdef inline int64_t load_i64(const uint8_t *at) noexcept nogil:
    cdef uint64_t x
    memcpy(&x, at, 8)
    return <int64_t> congreve_bswap64(x)


cdef inline void store_i16(uint8_t *at, int16_t value) noexcept nogil:
    cdef uint16_t x = congreve_bswap16(<uint16_t> value)
    memcpy(at, &x, 2)


cdef inline void store_i32(uint8_t *at, int32_t value) noexcept nogil:
    cdef uint32_t x = congreve_bswap32(<uint32_t> value)
    memcpy(at, &x, 4)


cdef inline void store_i64(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t x = congreve_bswap64(<uint64_t> value)
    memcpy(at, &x, 8)
