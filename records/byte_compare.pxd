# Comparison of bytes in a buffer with a text constant, whose length the compiler folds.
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, strlen


cdef inline bint is_text(const uint8_t *at, Py_ssize_t length, const char *wanted) noexcept nogil:
    return <size_t> length == strlen(wanted) and memcmp(at, wanted, length) == 0


cdef inline bint starts_with(const uint8_t *at, Py_ssize_t length,
                             const char *prefix) noexcept nogil:
    """Whether something follows the prefix."""
    return length > <Py_ssize_t> strlen(prefix) and memcmp(at, prefix, strlen(prefix)) == 0


cdef inline bint same(const uint8_t *one, Py_ssize_t length, const uint8_t *other,
                      Py_ssize_t other_length) noexcept nogil:
    return length == other_length and memcmp(one, other, length) == 0
