# The rule of ParkingRule in parked.py for compiled code; a property test of the broker's fast path
# compares the two.
from libc.stdint cimport int32_t, int64_t


cdef inline int64_t level_due(const int64_t *delays_ms, int32_t levels, int64_t level,
                              int64_t stored_ms) noexcept nogil:
    return stored_ms + delays_ms[min(level, <int64_t> levels) - 1]


cdef inline int64_t timer_wake(int64_t due_ms, int64_t stored_ms, int64_t roll_ms) noexcept nogil:
    return min(due_ms, stored_ms + roll_ms)
