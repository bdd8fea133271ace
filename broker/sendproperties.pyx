"""Property strings of sends: what is stored of them, and which of them are no ordinary send."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy, strlen

from congreve.records.checksum cimport string_hash
from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTIES_MAX, PROPERTY_SEPARATOR
from congreve.records.record cimport Message
from congreve.remoting.bytetext cimport put, put_decimal
from congreve.remoting.slices cimport Slice


cdef inline bint is_text(const uint8_t *at, Py_ssize_t length, const char *wanted) noexcept nogil:
    # strlen of a literal is folded by the compiler.
    return <size_t> length == strlen(wanted) and memcmp(at, wanted, length) == 0


cdef inline bint is_extraordinary(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Names that make a message one for the Python handlers; CLUSTER is the broker's to give."""
    return is_text(name, length, b"CLUSTER") or is_text(name, length, b"INNER_MULTI_DISPATCH")


cdef inline bint is_of_parking(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Names that the broker itself gives to messages that wait."""
    return (
        is_text(name, length, b"REAL_TOPIC") or is_text(name, length, b"REAL_QID")
        or is_text(name, length, b"TRANSACTION_CHECK_TIMES")
        or is_text(name, length, b"TRAN_PREPARED_QUEUE_OFFSET")
    )


cdef bint take_time(const uint8_t *name, Py_ssize_t length, Slice value,
                    DeliveryWish *wish) noexcept nogil:
    """One of the times that a message may name; False where it names two, or something else."""
    if wish.time.data != NULL:
        return False
    wish.time = value
    if is_text(name, length, b"TIMER_DELIVER_MS"):
        wish.unit = TIME_OF_DELIVERY
    elif is_text(name, length, b"TIMER_DELAY_MS"):
        wish.unit = TIME_FROM_NOW_MS
    elif is_text(name, length, b"TIMER_DELAY_SEC"):
        wish.unit = TIME_FROM_NOW_S
    else:
        return False
    return True


cdef bint stored_properties(const Slice *given, SendKind kind, bint sync_flush, uint8_t *out,
                            int32_t *length, int64_t *tags_code,
                            DeliveryWish *wish) noexcept nogil:
    cdef const uint8_t *at = given.data
    cdef const uint8_t *end = at + given.length
    cdef const uint8_t *stop
    cdef const uint8_t *middle
    cdef Py_ssize_t name
    cdef Slice value
    cdef uint8_t *start = out
    cdef bint transaction = False
    cdef bint grouped = False
    cdef bint parked_before = False
    tags_code[0] = 0
    wish.level.data = wish.time.data = NULL
    if given.length > PROPERTIES_MAX:
        return False
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        middle = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if middle != NULL and middle > at and middle + 1 < stop:
            name = middle - at
            value.data = middle + 1
            value.length = <int32_t> (stop - middle - 1)
            if is_extraordinary(at, name):
                return False
            parked_before |= is_of_parking(at, name)
            if is_text(at, name, b"TRAN_MSG"):
                if kind != SEND_HALF or not is_text(value.data, value.length, b"true"):
                    return False
                transaction = True
            grouped |= is_text(at, name, b"PGROUP")
            if is_text(at, name, b"TAGS"):
                tags_code[0] = string_hash(0, value.data, value.length)
            if is_text(at, name, b"WAIT"):
                # Whoever does not wait for the disk must not wait with those who do.
                if sync_flush and is_text(value.data, value.length, b"false"):
                    return False
                if kind != SEND_BATCH:
                    at = stop + 1
                    continue
            if is_text(at, name, b"DELAY"):
                if wish.level.data != NULL:
                    return False
                wish.level = value
                at = stop + 1
                continue
            if name > 6 and memcmp(at, b"TIMER_", 6) == 0 and not take_time(at, name, value, wish):
                return False
            if out > start:
                out[0] = PROPERTY_SEPARATOR
                out += 1
            memcpy(out, at, stop - at)
            out += stop - at
        at = stop + 1
    length[0] = <int32_t> (out - start)
    if wish.level.data != NULL or wish.time.data != NULL:
        return kind == SEND_SINGLE and not parked_before
    return kind != SEND_HALF or (transaction and grouped and not parked_before)


cdef uint8_t *put_target(uint8_t *out, const Message *message) noexcept nogil:
    out = put(out, b"\x02REAL_TOPIC\x01", 12)
    out = put(out, <const char *> message.topic, message.topic_length)
    out = put(out, b"\x02REAL_QID\x01", 10)
    return put_decimal(out, message.queue_id)


def stored(bytes properties, *, bint batch=False, bint half=False, bint sync_flush=False):
    cdef SendKind kind = SEND_HALF if half else SEND_BATCH if batch else SEND_SINGLE
    cdef Slice given
    cdef uint8_t out[PROPERTIES_MAX]
    cdef int32_t length = 0
    cdef int64_t tags_code = 0
    cdef DeliveryWish wish
    given.data = properties
    given.length = <int32_t> len(properties)
    if not stored_properties(&given, kind, sync_flush, out, &length, &tags_code, &wish):
        return None
    if wish.level.data != NULL or wish.time.data != NULL:
        return None
    return out[:length], tags_code
