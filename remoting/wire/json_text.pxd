# JSON text of a header, piece by piece. Each function starts at `at`, never looks at `end` or
# after it, and returns where it stopped; NULL if the text is not plain, valid JSON: then the
# tolerant reader in Python reads it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from congreve.base.slices cimport Scratch, Slice

cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    /* How many bytes from `at` on are ASCII that stands for itself in a JSON string. */
    static inline Py_ssize_t congreve_plain_run(const unsigned char *at, const unsigned char *end) {
        const unsigned char *start = at;
    #if defined(__SSE2__)
        const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\\\');
        const __m128i space = _mm_set1_epi8(0x20);
        while (end - at >= 16) {
            __m128i x = _mm_loadu_si128((const __m128i *) at);
            /* compared as signed, so bytes from 0x80 on are below a space too */
            __m128i stop = _mm_or_si128(_mm_cmplt_epi8(x, space),
                _mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, backslash)));
            int mask = _mm_movemask_epi8(stop);
            if (mask) return at - start + __builtin_ctz((unsigned) mask);
            at += 16;
        }
    #endif
        while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\\\') at++;
        return at - start;
    }
    """
    Py_ssize_t plain_run "congreve_plain_run"(const uint8_t *at, const uint8_t *end) noexcept nogil


cdef inline const uint8_t *skip_space(const uint8_t *at, const uint8_t *end) noexcept nogil:
    while at < end and (at[0] == c" " or at[0] == c"\n" or at[0] == c"\r" or at[0] == c"\t"):
        at += 1
    return at


cdef inline const uint8_t *skip_sign(const uint8_t *at, const uint8_t *end,
                                     uint8_t sign) noexcept nogil:
    """Skip `sign` and the spaces around it."""
    if at < end and at[0] == sign:
        at += 1
    else:
        at = skip_space(at, end)
        if at == end or at[0] != sign:
            return NULL
        at += 1
    if at < end and at[0] <= c" ":
        return skip_space(at, end)
    return at


cdef inline const uint8_t *utf8_character(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Skip a character of two to four bytes: shortest form, no surrogate, at most U+10FFFF."""
    cdef Py_ssize_t left = end - at
    cdef uint8_t first = at[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef Py_ssize_t following
    cdef Py_ssize_t i
    if 0xC2 <= first <= 0xDF:
        following = 1
    elif 0xE0 <= first <= 0xEF:
        following = 2
        low = 0xA0 if first == 0xE0 else 0x80
        high = 0x9F if first == 0xED else 0xBF
    elif 0xF0 <= first <= 0xF4:
        following = 3
        low = 0x90 if first == 0xF0 else 0x80
        high = 0x8F if first == 0xF4 else 0xBF
    else:
        return NULL
    if left <= following or not low <= at[1] <= high:
        return NULL
    for i in range(2, following + 1):
        if at[i] & 0xC0 != 0x80:
            return NULL
    return at + following + 1


cdef inline bint is_utf8(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef const uint8_t *end = at + length
    cdef uint64_t eight
    while at < end:
        if end - at >= 8:
            memcpy(&eight, at, 8)
            if not eight & 0x8080808080808080ULL:
                at += 8
                continue
        if at[0] < 0x80:
            at += 1
            continue
        at = utf8_character(at, end)
        if at == NULL:
            return False
    return True


cdef inline const uint8_t *hex4(const uint8_t *at, const uint8_t *end,
                                uint32_t *unit) noexcept nogil:
    cdef uint32_t value = 0
    cdef uint8_t digit
    cdef Py_ssize_t i
    if end - at < 4:
        return NULL
    for i in range(4):
        digit = at[i]
        if c"0" <= digit <= c"9":
            digit -= c"0"
        elif c"a" <= (digit | 0x20) <= c"f":
            digit = (digit | 0x20) - c"a" + 10
        else:
            return NULL
        value = value << 4 | digit
    unit[0] = value
    return at + 4


cdef inline uint8_t *put_utf8(uint8_t *out, uint32_t point) noexcept nogil:
    if point < 0x80:
        out[0] = <uint8_t> point
        return out + 1
    if point < 0x800:
        out[0] = <uint8_t> (0xC0 | point >> 6)
        out[1] = <uint8_t> (0x80 | point & 0x3F)
        return out + 2
    if point < 0x10000:
        out[0] = <uint8_t> (0xE0 | point >> 12)
        out[1] = <uint8_t> (0x80 | point >> 6 & 0x3F)
        out[2] = <uint8_t> (0x80 | point & 0x3F)
        return out + 3
    out[0] = <uint8_t> (0xF0 | point >> 18)
    out[1] = <uint8_t> (0x80 | point >> 12 & 0x3F)
    out[2] = <uint8_t> (0x80 | point >> 6 & 0x3F)
    out[3] = <uint8_t> (0x80 | point & 0x3F)
    return out + 4


cdef inline const uint8_t *unescape(const uint8_t *at, const uint8_t *end,
                                    uint8_t **out) noexcept nogil:
    """Decode an escape from after its backslash on; NULL for half of a surrogate pair."""
    cdef uint32_t unit
    cdef uint32_t second
    cdef uint8_t sign
    if at == end:
        return NULL
    sign = at[0]
    at += 1
    if sign == c"u":
        at = hex4(at, end, &unit)
        if at == NULL or 0xDC00 <= unit <= 0xDFFF:
            return NULL
        if 0xD800 <= unit <= 0xDBFF:
            if end - at < 6 or at[0] != c"\\" or at[1] != c"u":
                return NULL
            at = hex4(at + 2, end, &second)
            if at == NULL or not 0xDC00 <= second <= 0xDFFF:
                return NULL
            unit = 0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00)
        out[0] = put_utf8(out[0], unit)
        return at
    if sign == c"b":
        sign = 8
    elif sign == c"t":
        sign = 9
    elif sign == c"n":
        sign = 10
    elif sign == c"f":
        sign = 12
    elif sign == c"r":
        sign = 13
    elif sign != c'"' and sign != c"\\" and sign != c"/":
        return NULL
    out[0][0] = sign
    out[0] += 1
    return at


cdef inline const uint8_t *scan_string(const uint8_t *at, const uint8_t *end, Scratch *scratch,
                                       Slice *text) noexcept nogil:
    """Read a string, from its opening quote on, and skip its closing quote.

    Without an escape the slice points into the text itself, else into the scratch, which must have
    room for as many bytes as the whole text has.
    """
    cdef const uint8_t *start
    cdef const uint8_t *piece
    cdef uint8_t *copy = NULL
    cdef uint8_t *out = NULL
    if at >= end or at[0] != c'"':
        return NULL
    at += 1
    start = piece = at
    while True:
        at += plain_run(at, end)
        if at >= end:
            return NULL
        if at[0] == c'"':
            break
        if at[0] >= 0x80:
            at = utf8_character(at, end)
        elif at[0] == c"\\":
            if copy == NULL:
                copy = out = scratch.data + scratch.used
            memcpy(out, piece, at - piece)
            out += at - piece
            at = unescape(at + 1, end, &out)
            piece = at
        else:
            return NULL
        if at == NULL:
            return NULL
    if copy == NULL:
        text.data = start
        text.length = <int32_t> (at - start)
    else:
        memcpy(out, piece, at - piece)
        out += at - piece
        text.data = copy
        text.length = <int32_t> (out - copy)
        scratch.used += out - copy
    return at + 1


cdef inline const uint8_t *skip_digits(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Skip one digit or more."""
    cdef const uint8_t *start = at
    while at < end and c"0" <= at[0] <= c"9":
        at += 1
    if at == start:
        return NULL
    return at


cdef inline const uint8_t *scan_number(const uint8_t *at, const uint8_t *end,
                                       Slice *text) noexcept nogil:
    cdef const uint8_t *start = at
    if at < end and at[0] == c"-":
        at += 1
    if at < end and at[0] == c"0":
        at += 1
    else:
        at = skip_digits(at, end)
    if at != NULL and at < end and at[0] == c".":
        at = skip_digits(at + 1, end)
    if at != NULL and at < end and at[0] | 0x20 == c"e":
        at += 1
        if at < end and (at[0] == c"+" or at[0] == c"-"):
            at += 1
        at = skip_digits(at, end)
    if at == NULL:
        return NULL
    text.data = start
    text.length = <int32_t> (at - start)
    return at


cdef inline const uint8_t *scan_word(const uint8_t *at, const uint8_t *end, const char *word,
                                     int32_t length, Slice *text) noexcept nogil:
    if end - at < length or memcmp(at, word, length) != 0:
        return NULL
    text.data = at
    text.length = length
    return at + length


cdef inline bint eight_digits(const uint8_t *at, uint64_t *value) noexcept nogil:
    """Read eight digits at once: pairs, then fours, then all, each in its own part of a word."""
    cdef uint64_t word
    memcpy(&word, at, 8)
    if (word & 0xF0F0F0F0F0F0F0F0ULL) | (
        ((word + 0x0606060606060606ULL) & 0xF0F0F0F0F0F0F0F0ULL) >> 4
    ) != 0x3333333333333333ULL:
        return False
    word = (word & 0x0F0F0F0F0F0F0F0FULL) * (10 << 8 | 1) >> 8
    word = (word & 0x00FF00FF00FF00FFULL) * (100ULL << 16 | 1) >> 16
    value[0] = (word & 0x0000FFFF0000FFFFULL) * (10000ULL << 32 | 1) >> 32
    return True


cdef inline bint parse_integer(Slice text, int64_t *value) noexcept nogil:
    """Read a number as Java writes it: no plus, leading zero or -0. False for any other text."""
    cdef const uint8_t *at = text.data
    cdef const uint8_t *end = at + text.length
    cdef bint negative = text.length > 1 and at[0] == c"-"
    cdef uint64_t found = 0
    at += negative
    if at == end or end - at > 19:
        return False
    if at[0] == c"0" and text.length > 1:
        return False
    if end - at >= 8:
        if not eight_digits(at, &found):
            return False
        at += 8
    while at < end:
        if not c"0" <= at[0] <= c"9":
            return False
        found = found * 10 + (at[0] - c"0")
        at += 1
    if found > (<uint64_t> 1 << 63) - 1 + negative:
        return False
    value[0] = <int64_t> (0 - found) if negative else <int64_t> found
    return True


cdef inline bint parse_int32(Slice text, int32_t *value) noexcept nogil:
    cdef int64_t wide
    if not parse_integer(text, &wide) or not -2147483648 <= wide <= 2147483647:
        return False
    value[0] = <int32_t> wide
    return True
