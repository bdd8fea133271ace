# Numbers that the lane's thread changes and the loop reads: each is read whole, and none is in
# order with another one.
from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #define congreve_load_relaxed(from) __atomic_load_n(from, __ATOMIC_RELAXED)
    #define congreve_store_relaxed(to, value) __atomic_store_n(to, value, __ATOMIC_RELAXED)
    """
    int64_t load_relaxed "congreve_load_relaxed"(const int64_t *at)
    void store_relaxed "congreve_store_relaxed"(int64_t *at, int64_t value)
