# Values of a filter's expression, and how Java compares them.
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

from congreve.records.filter.numbers cimport compare_reals, read_integer, read_real

cdef enum:
    BITS_INTEGER = 32
    BITS_LONG = 64
    VALUES_INCOMPARABLE = -1    # the result for values of classes that Java cannot compare

# The Java classes of values.
cdef enum Kind:
    KIND_NULL
    KIND_BOOLEAN
    KIND_INTEGER
    KIND_LONG
    KIND_DOUBLE
    KIND_STRING

cdef struct Value:
    Kind kind
    int32_t length          # of a string
    int64_t number          # also of a boolean
    double real
    const char *text


cdef inline void set_boolean(Value *value, bint truth) noexcept nogil:
    value.kind = KIND_BOOLEAN
    value.number = truth


cdef inline bint same_text(const Value *a, const Value *b) noexcept nogil:
    return a.length == b.length and memcmp(a.text, b.text, a.length) == 0


cdef inline bint compare(Value *left, Value *right, int *order) noexcept nogil:
    """Compare two values, not both strings, in one class (RocketMQ: __compare)."""
    order[0] = VALUES_INCOMPARABLE
    if left.kind == KIND_STRING:
        if not text_as(left, right.kind):
            return False
    elif right.kind == KIND_STRING:
        # There Java casts the boolean to a string.
        if left.kind == KIND_BOOLEAN or not text_as(right, left.kind):
            return False
    if (left.kind == KIND_BOOLEAN) != (right.kind == KIND_BOOLEAN):
        return True
    if left.kind == KIND_DOUBLE or right.kind == KIND_DOUBLE:
        order[0] = compare_reals(real_of(left), real_of(right))
    else:
        order[0] = (left.number > right.number) - (left.number < right.number)
    return True


cdef inline double real_of(const Value *value) noexcept nogil:
    return value.real if value.kind == KIND_DOUBLE else <double> value.number


cdef inline bint text_as(Value *value, Kind kind) noexcept nogil:
    """Convert a string to that class; false if it is not a value of the class."""
    if kind == KIND_BOOLEAN:
        set_boolean(value, is_true(value.text, value.length))
        return True
    if kind == KIND_DOUBLE:
        return real_of_text(value)
    if not read_integer(value.text, value.length,
                        BITS_INTEGER if kind == KIND_INTEGER else BITS_LONG, &value.number):
        return False
    value.kind = kind
    return True


cdef inline bint real_of_text(Value *value) noexcept nogil:
    if not read_real(value.text, value.length, &value.real):
        return False
    value.kind = KIND_DOUBLE
    return True


cdef inline bint is_true(const char *text, int32_t length) noexcept nogil:
    """"true" in any case (Java: Boolean.valueOf)."""
    cdef const char *wanted = b"true"
    cdef int32_t i
    if length != 4:
        return False
    for i in range(4):
        if (text[i] | 0x20) != wanted[i]:
            return False
    return True
