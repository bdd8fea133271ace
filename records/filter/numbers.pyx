"""Numbers in the text of properties, parsed as in Java, independent of the locale."""

from libc.math cimport isnan, signbit
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

cdef extern from "<locale.h>" nogil:
    ctypedef void *locale_t
    int LC_ALL_MASK
    locale_t newlocale(int mask, const char *name, locale_t ground)

cdef extern from "<stdlib.h>" nogil:
    double strtod_l(const char *text, char **end, locale_t locale)

cdef enum:
    SHORT = 64      # longer texts are copied into allocated memory, with a zero at the end
    # Longer texts are not numbers here, unlike in Java, because a filter may parse one a thousand
    # times for each message. No double needs more characters.
    NUMBER_MAX = 1_100

cdef locale_t PLAIN = newlocale(LC_ALL_MASK, "C", NULL)


cdef bint read_integer(const char *text, int32_t length, int bits,
                       int64_t *number) noexcept nogil:
    cdef uint64_t most = (<uint64_t> 1 << (bits - 1)) - 1
    cdef uint64_t value = 0
    cdef bint negative = length > 0 and text[0] == b"-"
    cdef int32_t i = 1 if length > 0 and (text[0] == b"-" or text[0] == b"+") else 0
    cdef int32_t digit
    if i == length or length > NUMBER_MAX:
        return False
    most += negative
    while i < length:
        digit = text[i] - 48  # '0'
        if not 0 <= digit <= 9 or value > (most - digit) // 10:
            return False
        value = value * 10 + digit
        i += 1
    number[0] = <int64_t> (0 - value) if negative else <int64_t> value
    return True


cdef bint read_real(const char *text, int32_t length, double *number) noexcept nogil:
    cdef char short_text[SHORT]
    cdef char *ended = short_text
    # Java trims all characters up to the space.
    while length and 0 <= text[0] <= 0x20:
        text += 1
        length -= 1
    while length and 0 <= text[length - 1] <= 0x20:
        length -= 1
    length = real_length(text, length) if length <= NUMBER_MAX else 0
    if length == 0:
        return False
    if length >= SHORT:
        ended = <char *> malloc(length + 1)
        if ended == NULL:
            return False
    memcpy(ended, text, length)
    ended[length] = 0
    number[0] = strtod_l(ended, NULL, PLAIN)
    if ended != short_text:
        free(ended)
    return True


cdef int32_t real_length(const char *text, int32_t length) noexcept nogil:
    """Length of the number without a suffix f or d; 0 if the text is not a number."""
    cdef int32_t at = 1 if length and (text[0] == b"-" or text[0] == b"+") else 0
    cdef int32_t start = at
    cdef int32_t digits
    cdef char exponent = b"e"
    cdef bint hexadecimal = (
        length - at > 2 and text[at] == b"0" and (text[at + 1] | 0x20) == b"x"
    )
    if (length - at == 3 and memcmp(text + at, b"NaN", 3) == 0) or (
            length - at == 8 and memcmp(text + at, b"Infinity", 8) == 0):
        return length
    if hexadecimal:
        exponent = b"p"
        at += 2
        start = at
    at = skip_digits(text, length, at, hexadecimal)
    digits = at - start
    if at < length and text[at] == b".":
        start = at + 1
        at = skip_digits(text, length, start, hexadecimal)
        digits += at - start
    if digits == 0:
        return 0
    if at < length and (text[at] | 0x20) == exponent:
        start = at + 1
        if start < length and (text[start] == b"-" or text[start] == b"+"):
            start += 1
        at = skip_digits(text, length, start, False)
        if at == start:
            return 0
    elif hexadecimal:
        return 0
    if at + 1 == length and ((text[at] | 0x20) == b"f" or (text[at] | 0x20) == b"d"):
        return at
    return at if at == length else 0


cdef int32_t skip_digits(const char *text, int32_t length, int32_t at,
                         bint hexadecimal) noexcept nogil:
    cdef char c
    while at < length:
        c = text[at]
        if not (b"0" <= c <= b"9" or (hexadecimal and b"a" <= (c | 0x20) <= b"f")):
            break
        at += 1
    return at


cdef int compare_reals(double a, double b) noexcept nogil:
    if a < b:
        return -1
    if a > b:
        return 1
    if a == b:
        return (signbit(b) != 0) - (signbit(a) != 0)
    return <int> (isnan(a) != 0) - <int> (isnan(b) != 0)
