# Numbers in text, as Java reads them.
from libc.stdint cimport int32_t, int64_t

# Integer.valueOf (32 bits) and Long.valueOf (64): False if they throw.
cdef bint read_integer(const char *text, int32_t length, int bits, int64_t *number) noexcept nogil

# Double.valueOf: False if it throws.
cdef bint read_real(const char *text, int32_t length, double *number) noexcept nogil

# Double.compare: NaN is greater than all other values, -0.0 less than 0.0.
cdef int compare_reals(double a, double b) noexcept nogil
