# Parquet's hybrid of runs and bit-packed groups of eight, for levels and indexes of dictionaries.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

# The most bytes that put_indexes() writes, and those behind them that it may touch.
cdef int64_t room_of_indexes(int64_t count, int32_t width) noexcept nogil

# Each function returns the place behind what it wrote.
cdef uint8_t *put_run(uint8_t *at, int64_t count, int32_t value, int32_t width) noexcept nogil
cdef uint8_t *put_groups_header(uint8_t *at, int64_t groups) noexcept nogil
cdef uint8_t *put_indexes(uint8_t *at, const uint16_t *indexes, int64_t count,
                          int32_t width) noexcept nogil
