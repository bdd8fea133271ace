"""Property strings of sends: what is stored of them, and which of them are no ordinary send."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, strlen

from congreve.records.checksum cimport string_hash
from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTIES_MAX, PROPERTY_SEPARATOR
from congreve.remoting.slices cimport Slice


cdef inline bint is_text(const uint8_t *at, Py_ssize_t length, const char *wanted) noexcept nogil:
    # strlen of a literal is folded by the compiler.
    return <size_t> length == strlen(wanted) and memcmp(at, wanted, length) == 0


cdef inline bint is_extraordinary(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Names that make a message one for the Python handlers; CLUSTER is the broker's to give."""
    return (
        is_text(name, length, b"DELAY") or is_text(name, length, b"CLUSTER")
        or is_text(name, length, b"INNER_MULTI_DISPATCH")
        or (length > 6 and memcmp(name, b"TIMER_", 6) == 0)
    )


cdef inline bint is_of_half(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Names that the broker itself gives to half messages."""
    return (
        is_text(name, length, b"REAL_TOPIC") or is_text(name, length, b"REAL_QID")
        or is_text(name, length, b"TRANSACTION_CHECK_TIMES")
        or is_text(name, length, b"TRAN_PREPARED_QUEUE_OFFSET")
    )


cdef bint stored_properties(const Slice *given, SendKind kind, bint sync_flush, uint8_t *out,
                            int32_t *length, int64_t *tags_code) noexcept nogil:
    cdef const uint8_t *at = given.data
    cdef const uint8_t *end = at + given.length
    cdef const uint8_t *stop
    cdef const uint8_t *middle
    cdef Py_ssize_t name, value
    cdef uint8_t *start = out
    cdef bint transaction = False
    cdef bint grouped = False
    tags_code[0] = 0
    if given.length > PROPERTIES_MAX:
        return False
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        middle = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if middle != NULL and middle > at and middle + 1 < stop:
            name = middle - at
            value = stop - middle - 1
            if is_extraordinary(at, name) or (kind == SEND_HALF and is_of_half(at, name)):
                return False
            if is_text(at, name, b"TRAN_MSG"):
                if kind != SEND_HALF or not is_text(middle + 1, value, b"true"):
                    return False
                transaction = True
            grouped |= is_text(at, name, b"PGROUP")
            if is_text(at, name, b"TAGS"):
                tags_code[0] = string_hash(0, middle + 1, value)
            if is_text(at, name, b"WAIT"):
                # Whoever does not wait for the disk must not wait with those who do.
                if sync_flush and is_text(middle + 1, value, b"false"):
                    return False
                if kind != SEND_BATCH:
                    at = stop + 1
                    continue
            if out > start:
                out[0] = PROPERTY_SEPARATOR
                out += 1
            memcpy(out, at, stop - at)
            out += stop - at
        at = stop + 1
    length[0] = <int32_t> (out - start)
    return kind != SEND_HALF or (transaction and grouped)


def stored(bytes properties, *, bint batch=False, bint half=False, bint sync_flush=False):
    cdef SendKind kind = SEND_HALF if half else SEND_BATCH if batch else SEND_SINGLE
    cdef Slice given
    cdef uint8_t out[PROPERTIES_MAX]
    cdef int32_t length = 0
    cdef int64_t tags_code = 0
    given.data = properties
    given.length = <int32_t> len(properties)
    if not stored_properties(&given, kind, sync_flush, out, &length, &tags_code):
        return None
    return out[:length], tags_code
