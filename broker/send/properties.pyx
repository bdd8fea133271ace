"""Property strings of sends: which properties are stored, and which need the Python handlers."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy

from congreve.records.byte_compare cimport is_text, starts_with
from congreve.records.checksum cimport string_hash
from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTIES_MAX, PROPERTY_SEPARATOR
from congreve.records.message.properties cimport (
    CLUSTER, DELAY, INNER_MULTI_DISPATCH, PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, TAGS,
    TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS, TIMER_PREFIX, TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED, TRANSACTION_PREPARED_QUEUE_OFFSET, WAIT, put_name, put_next_name,
)
from congreve.records.record cimport Message
from congreve.remoting.wire.byte_text cimport put, put_decimal
from congreve.remoting.wire.slices cimport Slice


cdef inline bint is_extraordinary(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Names that only the Python handlers serve; CLUSTER is set by the broker."""
    return is_text(name, length, CLUSTER) or is_text(name, length, INNER_MULTI_DISPATCH)


cdef inline bint is_of_parking(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Names that the broker itself gives to parked messages and half messages."""
    return (
        is_text(name, length, REAL_TOPIC) or is_text(name, length, REAL_QUEUE_ID)
        or is_text(name, length, TRANSACTION_CHECK_TIMES)
        or is_text(name, length, TRANSACTION_PREPARED_QUEUE_OFFSET)
    )


cdef bint take_time(const uint8_t *name, Py_ssize_t length, Slice value,
                    DeliveryWish *wish) noexcept nogil:
    """Take a delivery time; False for a second one and for an unknown name."""
    if wish.time.data != NULL:
        return False
    wish.time = value
    if is_text(name, length, TIMER_DELIVER_MS):
        wish.unit = TIME_OF_DELIVERY
    elif is_text(name, length, TIMER_DELAY_MS):
        wish.unit = TIME_FROM_NOW_MS
    elif is_text(name, length, TIMER_DELAY_SEC):
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
    cdef Slice wait
    cdef uint8_t *start = out
    cdef bint transaction = False
    cdef bint grouped = False
    cdef bint parked_before = False
    tags_code[0] = 0
    wish.level.data = wish.time.data = wait.data = NULL
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
            if is_text(at, name, TRANSACTION_PREPARED):
                if kind != SEND_HALF or not is_text(value.data, value.length, b"true"):
                    return False
                transaction = True
            grouped |= is_text(at, name, PRODUCER_GROUP)
            if is_text(at, name, TAGS):
                tags_code[0] = string_hash(0, value.data, value.length)
            if is_text(at, name, WAIT):
                # A sender that does not wait for the disk must not wait with others that do.
                if sync_flush and is_text(value.data, value.length, b"false"):
                    return False
                if kind != SEND_BATCH:
                    wait = value
                    at = stop + 1
                    continue
            if is_text(at, name, DELAY):
                if wish.level.data != NULL:
                    return False
                wish.level = value
                at = stop + 1
                continue
            if starts_with(at, name, TIMER_PREFIX) and not take_time(at, name, value, wish):
                return False
            if out > start:
                out[0] = PROPERTY_SEPARATOR
                out += 1
            memcpy(out, at, stop - at)
            out += stop - at
        at = stop + 1
    if wait.data != NULL and (
        kind == SEND_HALF or wish.level.data != NULL or wish.time.data != NULL
    ):
        if out > start:
            out[0] = PROPERTY_SEPARATOR
            out += 1
        out = put_name(out, WAIT)
        out = put(out, <const char *> wait.data, wait.length)
    length[0] = <int32_t> (out - start)
    if wish.level.data != NULL or wish.time.data != NULL:
        return kind == SEND_SINGLE and not parked_before
    return kind != SEND_HALF or (transaction and grouped and not parked_before)


cdef uint8_t *put_target(uint8_t *out, const Message *message) noexcept nogil:
    out = put_next_name(out, REAL_TOPIC)
    out = put(out, <const char *> message.topic, message.topic_length)
    out = put_next_name(out, REAL_QUEUE_ID)
    return put_decimal(out, message.queue_id)


def stored(bytes properties, *, bint batch=False, bint half=False, bint sync_flush=False):
    """(stored bytes, tags code) of a send's properties; None when Python has to decide."""
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
