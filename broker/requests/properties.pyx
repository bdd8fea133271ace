"""Property strings of sends: which properties are stored, and which need the Python handlers."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy

from congreve.base.slices cimport Slice
from congreve.records.byte_compare cimport is_text, same, starts_with
from congreve.records.checksum cimport string_hash
from congreve.records.layout cimport NAME_VALUE_SEPARATOR, PROPERTIES_MAX, PROPERTY_SEPARATOR
from congreve.records.message.properties cimport (
    CLUSTER, DELAY, INNER_MULTI_DISPATCH, LITE_TOPIC, POP_CK, PRIORITY, PRODUCER_GROUP,
    REAL_QUEUE_ID, REAL_TOPIC, SHARDING_KEY, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC,
    TIMER_DELIVER_MS, TIMER_PREFIX,
    TRANSACTION_CHECK_TIMES, TRANSACTION_PREPARED, TRANSACTION_PREPARED_QUEUE_OFFSET, WAIT,
    is_set_by_brokers, put_name, put_next_name,
)
from congreve.records.record cimport Message
from congreve.records.restore cimport decimal
from congreve.remoting.wire.byte_text cimport put, put_decimal


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


cdef bint take_priority(Slice value, DeliveryWish *wish) noexcept nogil:
    """Take a priority; False for a second one and for what is no plain number."""
    cdef int64_t number = decimal(value.data, value.length)
    if wish.priority >= 0 or not 0 <= number <= INT32_MAX:
        return False
    wish.priority = <int32_t> number
    return True


# What happens to one property of a send.
cdef enum Fate:
    PROPERTY_STORED
    PROPERTY_LEFT_OUT
    PROPERTY_FOR_PYTHON

cdef struct Seen:
    bint transaction        # TRAN_MSG=true
    bint grouped            # PGROUP
    bint parked_before      # a name of parked messages
    Slice wait              # the value of WAIT; no data: not given, or of a batch


cdef inline Fate fate_of(const uint8_t *name, Py_ssize_t length, Slice value, SendKind kind,
                         const Slice *group, bint sync_flush, int64_t *tags_code, Seen *seen,
                         DeliveryWish *wish) noexcept nogil:
    if is_extraordinary(name, length):
        return PROPERTY_FOR_PYTHON
    seen.parked_before |= is_of_parking(name, length)
    if is_text(name, length, TRANSACTION_PREPARED):
        if kind != SEND_HALF or not is_text(value.data, value.length, b"true"):
            return PROPERTY_FOR_PYTHON
        seen.transaction = True
    if is_text(name, length, PRODUCER_GROUP):
        if kind == SEND_HALF and not same(value.data, value.length, group.data, group.length):
            return PROPERTY_FOR_PYTHON      # it needs permissions of both groups
        seen.grouped = True
    if is_text(name, length, POP_CK):
        return PROPERTY_LEFT_OUT
    if is_text(name, length, TAGS):
        tags_code[0] = string_hash(0, value.data, value.length)
    if is_text(name, length, WAIT):
        # A sender that does not wait for the disk must not wait with others that do.
        if sync_flush and is_text(value.data, value.length, b"false"):
            return PROPERTY_FOR_PYTHON
        if kind != SEND_BATCH:
            seen.wait = value
            return PROPERTY_LEFT_OUT
    if is_text(name, length, DELAY):
        if wish.level.data != NULL:
            return PROPERTY_FOR_PYTHON
        wish.level = value
        return PROPERTY_LEFT_OUT
    if is_text(name, length, PRIORITY) and kind != SEND_BATCH and not take_priority(value, wish):
        return PROPERTY_FOR_PYTHON
    wish.in_order |= is_text(name, length, SHARDING_KEY)
    if is_text(name, length, LITE_TOPIC) and kind == SEND_SINGLE:
        wish.lite = value
    if starts_with(name, length, TIMER_PREFIX) and not take_time(name, length, value, wish):
        return PROPERTY_FOR_PYTHON
    return PROPERTY_STORED


cdef inline uint8_t *separated(uint8_t *out, const uint8_t *start) noexcept nogil:
    """Write a separator after the properties from `start` to `out`, if there are any."""
    if out > start:
        out[0] = PROPERTY_SEPARATOR
        out += 1
    return out


cdef bint stored_properties(const Slice *given, SendKind kind, const Slice *group,
                            bint sync_flush, bint reserves, uint8_t *out, int32_t *length,
                            int64_t *tags_code, DeliveryWish *wish) noexcept nogil:
    cdef const uint8_t *at = given.data
    cdef const uint8_t *end = at + given.length
    cdef const uint8_t *stop
    cdef const uint8_t *middle
    cdef uint8_t *start = out
    cdef bint delayed
    cdef Slice value
    cdef Fate fate
    cdef Seen seen
    seen.transaction = seen.grouped = seen.parked_before = False
    tags_code[0] = 0
    wish.level.data = wish.time.data = wish.lite.data = seen.wait.data = NULL
    wish.in_order = False
    wish.priority = -1
    if given.length > PROPERTIES_MAX:
        return False
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        middle = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if middle != NULL and middle > at and middle + 1 < stop:
            if reserves and is_set_by_brokers(at, stop):
                return False
            value.data = middle + 1
            value.length = <int32_t> (stop - middle - 1)
            fate = fate_of(at, middle - at, value, kind, group, sync_flush, tags_code, &seen,
                           wish)
            if fate == PROPERTY_FOR_PYTHON:
                return False
            if fate == PROPERTY_STORED:
                out = separated(out, start)
                memcpy(out, at, stop - at)
                out += stop - at
        at = stop + 1
    delayed = wish.level.data != NULL or wish.time.data != NULL
    if seen.wait.data != NULL and (kind == SEND_HALF or delayed):
        out = put_name(separated(out, start), WAIT)
        out = put(out, <const char *> seen.wait.data, seen.wait.length)
    length[0] = <int32_t> (out - start)
    if wish.priority >= 0 and (delayed or wish.in_order or kind == SEND_HALF):
        return False        # these lose it
    if delayed:
        return kind == SEND_SINGLE and not seen.parked_before
    return kind != SEND_HALF or (seen.transaction and seen.grouped and not seen.parked_before)


cdef uint8_t *put_target(uint8_t *out, const Message *message) noexcept nogil:
    out = put_next_name(out, REAL_TOPIC)
    out = put(out, <const char *> message.topic, message.topic_length)
    out = put_next_name(out, REAL_QUEUE_ID)
    return put_decimal(out, message.queue_id)


def stored(bytes properties, *, bint batch=False, bint half=False, bytes group=b"P",
           bint sync_flush=False, bint reserves=False):
    """(stored bytes, tags code) of a send's properties; None when Python has to decide."""
    cdef SendKind kind = SEND_HALF if half else SEND_BATCH if batch else SEND_SINGLE
    cdef Slice given, of_group
    cdef uint8_t out[PROPERTIES_MAX]
    cdef int32_t length = 0
    cdef int64_t tags_code = 0
    cdef DeliveryWish wish
    given.data = properties
    given.length = <int32_t> len(properties)
    of_group.data, of_group.length = group, <int32_t> len(group)
    if not stored_properties(&given, kind, &of_group, sync_flush, reserves, out, &length,
                             &tags_code, &wish):
        return None
    if wish.level.data != NULL or wish.time.data != NULL:
        return None
    return out[:length], tags_code
