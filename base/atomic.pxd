# Numbers that one thread stores and others load. What was written before a release is seen after
# the acquire; a relaxed number is read whole, and is in order with no other one.
from libc.stdint cimport int64_t, uint64_t

cdef extern from * nogil:
    """
    #define congreve_full_barrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define congreve_add_relaxed(to, value) ((void) __atomic_fetch_add(to, value, __ATOMIC_RELAXED))
    #define congreve_or_bits(to, bits) ((void) __atomic_fetch_or(to, bits, __ATOMIC_SEQ_CST))
    #define congreve_and_bits(to, bits) __atomic_fetch_and(to, bits, __ATOMIC_SEQ_CST)
    #define congreve_load_acquire(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
    #define congreve_store_release(to, value) __atomic_store_n(to, value, __ATOMIC_RELEASE)
    #define congreve_load_relaxed(from) __atomic_load_n(from, __ATOMIC_RELAXED)
    #define congreve_store_relaxed(to, value) __atomic_store_n(to, value, __ATOMIC_RELAXED)
    """
    void full_barrier "congreve_full_barrier"()
    void add_relaxed "congreve_add_relaxed"(int64_t *to, int64_t value)
    void or_bits "congreve_or_bits"(uint64_t *to, uint64_t bits)
    uint64_t and_bits "congreve_and_bits"(uint64_t *to, uint64_t bits)  # returns the bits before
    int64_t load_acquire "congreve_load_acquire"(const int64_t *at)
    void store_release "congreve_store_release"(int64_t *at, int64_t value)
    int64_t load_relaxed "congreve_load_relaxed"(const int64_t *at)
    void store_relaxed "congreve_store_relaxed"(int64_t *at, int64_t value)
    uint64_t load_acquire_bits "congreve_load_acquire"(const uint64_t *at)
    int load_acquire_int "congreve_load_acquire"(const int *at)
    void store_release_int "congreve_store_release"(int *at, int value)
