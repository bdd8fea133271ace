"""Turns parked records (delayed or half messages) back into the original messages."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy

from congreve.base.cursor cimport load_i32, load_i64
from congreve.records.byte_compare cimport is_text, starts_with
from congreve.records.checksum cimport string_hash
from congreve.records.host cimport Host, to_host
from congreve.records.layout cimport (
    AT_PHYSICAL_OFFSET, NAME_VALUE_SEPARATOR, PROPERTIES_MAX, PROPERTY_SEPARATOR,
    SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_MASK, TOPIC_MAX,
)
from congreve.records.message.properties cimport (
    DELAY, REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
    TIMER_PREFIX,
)
from congreve.records.record cimport RECORD_OK, Message, RecordView, check

from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.message import Record
from congreve.records.message.property_codec import decode_properties

DELAYED = RESTORE_DELAYED      # parked by a delay level
TIMED = RESTORE_TIMED          # parked until a time of its own
COMMITTED = RESTORE_COMMITTED  # a half message whose transaction was committed


cdef int64_t decimal(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if not 0 < length <= 18:
        return -1
    for i in range(length):
        if not c"0" <= at[i] <= c"9":
            return -1
        number = number * 10 + (at[i] - c"0")
    return number


cdef inline void take_host(Host *host, const uint8_t *at, int32_t length) noexcept nogil:
    host.length = length - 4
    memcpy(host.address, at, host.length)
    host.port = load_i32(at + host.length)


cdef inline bint is_of_timers(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Whether this property was only there to park a timed record."""
    return (
        is_text(name, length, REAL_TOPIC) or is_text(name, length, REAL_QUEUE_ID)
        or is_text(name, length, DELAY)
        or (starts_with(name, length, TIMER_PREFIX) and (
            is_text(name, length, TIMER_DELIVER_MS) or is_text(name, length, TIMER_DELAY_MS)
            or is_text(name, length, TIMER_DELAY_SEC)
        ))
    )


cdef RestoreCheck restore(const RecordView *parked, RestoreKind kind, uint8_t *buffer,
                          Message *message) noexcept nogil:
    message.topic = NULL
    message.queue_id = -1
    message.tags_code = 0
    message.properties_more = NULL
    message.properties_more_length = 0
    read_properties(parked, message)
    message.body = parked.body
    message.body_length = parked.body_length
    message.flag = parked.flag
    message.sys_flag = parked.sys_flag
    message.reconsume_times = parked.reconsume_times
    message.born_timestamp = parked.born_timestamp
    message.prepared_offset = 0
    take_host(&message.born_host, parked.born_host, parked.born_host_length)
    take_host(&message.store_host, parked.store_host, parked.store_host_length)
    if kind == RESTORE_TIMED:
        message.prepared_offset = parked.physical_offset + 1  # 0 says nothing
    elif kind == RESTORE_COMMITTED:
        message.sys_flag = (message.sys_flag & ~SYS_TRANSACTION_MASK) | SYS_TRANSACTION_COMMIT
        message.prepared_offset = parked.physical_offset
    if message.topic == NULL or message.queue_id < 0:
        return RESTORE_NO_TARGET
    if kind == RESTORE_TIMED:
        drop_timer_properties(parked, buffer, message)
    return RESTORE_OK


# The target and the tags' hash; of equal names the last one counts. All properties stay.
cdef void read_properties(const RecordView *parked, Message *message) noexcept nogil:
    cdef const uint8_t *at = parked.properties
    cdef const uint8_t *end = at + parked.properties_length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef int64_t queue_id
    cdef Py_ssize_t name
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL:
            name = value - at
            value += 1
            if is_text(at, name, REAL_TOPIC):
                if 0 < stop - value <= TOPIC_MAX:
                    message.topic = value
                    message.topic_length = <int32_t> (stop - value)
            elif is_text(at, name, REAL_QUEUE_ID):
                queue_id = decimal(value, stop - value)
                message.queue_id = <int32_t> queue_id if queue_id <= INT32_MAX else -1
            elif is_text(at, name, TAGS):
                message.tags_code = string_hash(0, value, stop - value)
        at = stop + 1
    message.properties = parked.properties
    message.properties_length = parked.properties_length


cdef void drop_timer_properties(const RecordView *parked, uint8_t *buffer,
                                Message *message) noexcept nogil:
    cdef const uint8_t *at = parked.properties
    cdef const uint8_t *end = at + parked.properties_length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef uint8_t *out = buffer
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL and not is_of_timers(at, value - at):
            if out > buffer:
                out[0] = PROPERTY_SEPARATOR
                out += 1
            memcpy(out, at, stop - at)
            out += stop - at
        at = stop + 1
    message.properties = buffer
    message.properties_length = <int32_t> (out - buffer)


def restored(record, int kind):
    """The record that a parked record becomes (RocketMQ: messageTimeup, endMessageTransaction).

    It has its real topic and queue. It keeps its properties, as with the reference, but for a
    timed one, which loses DELAY, REAL_TOPIC, REAL_QID and of TIMER_* all but TIMER_OUT_MS, the time
    at which it was due, and has its parked record's physical offset + 1 as prepared offset. A
    committed one has the type COMMIT and its half's offset. Raises RecordError for bytes that are
    not a record, and for a record without a real topic and queue.
    """
    cdef uint8_t property_bytes[PROPERTIES_MAX]
    cdef RecordView view
    cdef Message message
    cdef Py_buffer buffer
    PyObject_GetBuffer(record, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < AT_PHYSICAL_OFFSET + 8 or check(
            <const uint8_t *> buffer.buf, buffer.len,
            load_i64(<const uint8_t *> buffer.buf + AT_PHYSICAL_OFFSET), True, &view,
        ) != RECORD_OK:
            raise RecordError(f"no sound record in these {buffer.len} bytes")
        if restore(&view, <RestoreKind> kind, property_bytes, &message) != RESTORE_OK:
            raise RecordError(
                f"the record at {view.physical_offset} names no topic and queue to restore it to "
                f"({properties.REAL_TOPIC}, {properties.REAL_QUEUE_ID})"
            )
        return Record(
            topic=message.topic[:message.topic_length].decode("utf-8", "replace"),
            body=message.body[:message.body_length],
            properties=decode_properties(message.properties[:message.properties_length]),
            queue_id=message.queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=to_host(view.born_host, view.born_host_length),
            store_host=to_host(view.store_host, view.store_host_length),
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
        )
    finally:
        PyBuffer_Release(&buffer)
