"""The record codec: encodes, checks and decodes stored messages."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, strlen
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

from congreve.base.cursor cimport (
    load_i16, load_i32, load_i64, prefetch_to_write, store_i16, store_i32, store_i64,
)
from congreve.records cimport checksum, layout
from congreve.records.host cimport fill_host, is_v6, put_host, to_host
from congreve.records.message.properties cimport TAGS
from congreve.records.message.property_codec cimport to_properties

from congreve.records.errors import RecordError
from congreve.records.host import offset_message_id, parse_offset_message_id
from congreve.records.message.message import Record
from congreve.records.message.property_codec import encode_properties

cdef extern from * nogil:
    """
    #define congreve_stores_so_far() __atomic_signal_fence(__ATOMIC_RELEASE)
    """
    void stores_so_far "congreve_stores_so_far"()

cdef enum:
    FETCHED_MAX = 8 << 10   # most prefetched bytes of a record; they stay cached until the write

__all__ = [
    "crc32", "decode_record", "decode_records", "encode_record", "index_hash",
    "offset_message_id", "parse_offset_message_id", "queue_offsets", "string_hash",
]


cdef inline bint wants_separator(const Message *message) noexcept nogil:
    return (
        message.properties_length > 0 and message.properties_more_length > 0
        and message.properties[message.properties_length - 1] != layout.PROPERTY_SEPARATOR
    )


cdef inline int64_t properties_size(const Message *message) noexcept nogil:
    return (
        <int64_t> message.properties_length + wants_separator(message)
        + message.properties_more_length
    )


cdef bint is_legal(const Message *message) noexcept nogil:
    return (
        0 < message.topic_length <= layout.TOPIC_MAX
        and message.body_length >= 0
        and properties_size(message) <= layout.PROPERTIES_MAX
    )


cdef int64_t encoded_size(const Message *message) noexcept nogil:
    return (
        layout.RECORD_FIXED + message.topic_length + <int64_t> message.body_length
        + properties_size(message)
        + (is_v6(&message.born_host) + is_v6(&message.store_host))
        * (layout.HOST_V6 - layout.HOST_V4)
    )


cdef inline uint8_t *put_bytes(uint8_t *at, const uint8_t *data, int32_t length) noexcept nogil:
    if length > 0:
        memcpy(at, data, length)
    return at + length


cdef void encode(uint8_t *at, const Message *message, int64_t size, int64_t queue_offset,
                 int64_t physical_offset, int64_t store_timestamp) noexcept nogil:
    cdef int32_t sys_flag = message.sys_flag & ~(
        layout.SYS_BORN_HOST_V6 | layout.SYS_STORE_HOST_V6
    )
    cdef uint8_t *p = at
    cdef int64_t fetched = min(size, FETCHED_MAX)
    cdef int64_t line
    # Another core populated these pages: prefetch their lines while the CRC is computed.
    for line in range(0, fetched, 64):
        prefetch_to_write(at + line)
    if is_v6(&message.born_host):
        sys_flag |= layout.SYS_BORN_HOST_V6
    if is_v6(&message.store_host):
        sys_flag |= layout.SYS_STORE_HOST_V6
    store_i32(p + layout.AT_MAGIC, layout.RECORD_MAGIC)
    store_i32(p + layout.AT_BODY_CRC, checksum.body_crc(message.body, message.body_length))
    store_i32(p + layout.AT_QUEUE_ID, message.queue_id)
    store_i32(p + layout.AT_FLAG, message.flag)
    store_i64(p + layout.AT_QUEUE_OFFSET, queue_offset)
    store_i64(p + layout.AT_PHYSICAL_OFFSET, physical_offset)
    store_i32(p + layout.AT_SYS_FLAG, sys_flag)
    store_i64(p + layout.AT_BORN_TIMESTAMP, message.born_timestamp)
    p = put_host(p + layout.AT_BORN_HOST, &message.born_host)
    store_i64(p, store_timestamp)
    p = put_host(p + 8, &message.store_host)
    store_i32(p, message.reconsume_times)
    store_i64(p + 4, message.prepared_offset)
    store_i32(p + 12, message.body_length)
    p = put_bytes(p + 16, message.body, message.body_length)
    p[0] = <uint8_t> message.topic_length
    p = put_bytes(p + 1, message.topic, message.topic_length)
    store_i16(p, <int16_t> properties_size(message))
    p = put_bytes(p + 2, message.properties, message.properties_length)
    if wants_separator(message):
        p[0] = layout.PROPERTY_SEPARATOR
        p += 1
    put_bytes(p, message.properties_more, message.properties_more_length)
    stores_so_far()
    store_i32(at + layout.AT_SIZE, <int32_t> size)


cdef void encode_blank(uint8_t *at, int64_t remaining) noexcept nogil:
    store_i32(at, <int32_t> remaining)
    store_i32(at + 4, layout.BLANK_MAGIC)


cdef RecordCheck check(const uint8_t *at, int64_t available, int64_t physical_offset,
                       bint verify_crc, RecordView *view) noexcept nogil:
    cdef int32_t magic
    cdef const uint8_t *p
    cdef const uint8_t *end
    if available < layout.BLANK_MIN:
        return RECORD_BAD
    view.size = load_i32(at + layout.AT_SIZE)
    magic = load_i32(at + layout.AT_MAGIC)
    if magic == layout.BLANK_MAGIC:
        return RECORD_BLANK if view.size >= layout.BLANK_MIN else RECORD_BAD
    if magic == 0 and view.size == 0:
        return RECORD_END
    if (magic != layout.RECORD_MAGIC or view.size < layout.RECORD_FIXED
            or view.size > available):
        return RECORD_BAD
    view.physical_offset = load_i64(at + layout.AT_PHYSICAL_OFFSET)
    if view.physical_offset != physical_offset:
        return RECORD_BAD
    end = at + view.size
    view.body_crc = load_i32(at + layout.AT_BODY_CRC)
    view.queue_id = load_i32(at + layout.AT_QUEUE_ID)
    view.flag = load_i32(at + layout.AT_FLAG)
    view.queue_offset = load_i64(at + layout.AT_QUEUE_OFFSET)
    view.sys_flag = load_i32(at + layout.AT_SYS_FLAG)
    view.born_timestamp = load_i64(at + layout.AT_BORN_TIMESTAMP)
    view.born_host = at + layout.AT_BORN_HOST
    view.born_host_length = (
        layout.HOST_V6 if view.sys_flag & layout.SYS_BORN_HOST_V6 else layout.HOST_V4
    )
    view.store_host_length = (
        layout.HOST_V6 if view.sys_flag & layout.SYS_STORE_HOST_V6 else layout.HOST_V4
    )
    if view.size < (layout.RECORD_FIXED + view.born_host_length + view.store_host_length
                    - 2 * layout.HOST_V4):
        return RECORD_BAD
    p = view.born_host + view.born_host_length
    view.store_timestamp = load_i64(p)
    view.store_host = p + 8
    p = view.store_host + view.store_host_length
    view.reconsume_times = load_i32(p)
    view.prepared_offset = load_i64(p + 4)
    view.body_length = load_i32(p + 12)
    view.body = p + 16
    return check_slices(end, verify_crc, view)


# From the body on, three lengths must add up to the record's size. 3 is the length byte of the
# topic plus the two length bytes of the properties.
cdef RecordCheck check_slices(const uint8_t *end, bint verify_crc,
                              RecordView *view) noexcept nogil:
    cdef const uint8_t *p = view.body
    if view.body_length < 0 or end - p < <int64_t> view.body_length + 3:
        return RECORD_BAD
    p += view.body_length
    view.topic_length = p[0]
    view.topic = p + 1
    if view.topic_length > layout.TOPIC_MAX or end - view.topic < view.topic_length + 2:
        return RECORD_BAD
    p = view.topic + view.topic_length
    view.properties_length = load_i16(p)
    view.properties = p + 2
    if view.properties_length < 0 or end - view.properties != view.properties_length:
        return RECORD_BAD
    if (verify_crc and view.body_length > 0
            and checksum.body_crc(view.body, view.body_length) != view.body_crc):
        return RECORD_BAD
    return RECORD_OK


cdef const uint8_t *find_property(const uint8_t *properties, int32_t length, const char *name,
                                  int32_t name_length, int32_t *value_length) noexcept nogil:
    cdef const uint8_t *found = NULL
    cdef const uint8_t *at = properties
    cdef const uint8_t *end = properties + length
    cdef const uint8_t *stop
    while at < end:
        stop = <const uint8_t *> memchr(at, layout.PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        if (stop - at > name_length + 1 and at[name_length] == layout.NAME_VALUE_SEPARATOR
                and memcmp(at, name, name_length) == 0):
            found = at + name_length + 1
            value_length[0] = <int32_t> (stop - found)
        at = stop + 1
    return found


cdef int64_t tags_code(const uint8_t *properties, int32_t length) noexcept nogil:
    cdef int32_t tags_length = 0
    cdef const uint8_t *tags = find_property(properties, length, TAGS,
                                             <int32_t> strlen(TAGS), &tags_length)
    return 0 if tags == NULL else checksum.string_hash(0, tags, tags_length)


cdef int32_t read_batch_element(const uint8_t *at, int32_t left,
                                Message *element) noexcept nogil:
    cdef int32_t size
    cdef int64_t rest
    if left < layout.BATCH_ELEMENT_FIXED:
        return 0
    size = load_i32(at)
    if size < layout.BATCH_ELEMENT_FIXED or size > left:
        return 0
    rest = size - layout.BATCH_ELEMENT_FIXED
    element.flag = load_i32(at + 12)
    element.body_length = load_i32(at + 16)
    element.body = at + 20
    if element.body_length < 0 or element.body_length > rest:
        return 0
    at = element.body + element.body_length
    element.properties_length = load_i16(at)
    element.properties = at + 2
    return size if element.properties_length == rest - element.body_length else 0


cdef class Outgoing:
    """A `Record` as the struct for encode(), with references to the bytes that it points at.

    Raises RecordError if a number does not fit the format.
    """

    def __cinit__(self, record):
        cdef Message *message = &self.message
        self.topic = record.topic.encode()
        self.body = record.body
        self.properties = encode_properties(record.properties)
        message.topic = <const uint8_t *> PyBytes_AS_STRING(self.topic)
        message.body = <const uint8_t *> PyBytes_AS_STRING(self.body)
        message.properties = <const uint8_t *> PyBytes_AS_STRING(self.properties)
        message.properties_more = NULL
        message.properties_more_length = 0
        try:
            message.topic_length = <int32_t> len(self.topic)
            message.body_length = len(self.body)
            message.properties_length = len(self.properties)
            message.queue_id = record.queue_id
            message.flag = record.flag
            message.sys_flag = record.sys_flag
            message.reconsume_times = record.reconsume_times
            message.born_timestamp = record.born_timestamp
            message.prepared_offset = record.prepared_offset
            fill_host(&message.born_host, record.born_host)
            fill_host(&message.store_host, record.store_host)
        except OverflowError as error:
            numbers = (record.queue_id, record.flag, record.sys_flag, record.reconsume_times)
            raise RecordError(
                f"one of {numbers}, {record.born_timestamp}, {record.prepared_offset} or a port is "
                "too large for the format"
            ) from error
        message.tags_code = tags_code(message.properties, message.properties_length)


def encode_record(record):
    """Encode one record as the commit log stores it (RocketMQ: MessageExtEncoder).

    It computes size, CRC and host bits and ignores `record.size` and `record.body_crc`. Raises
    RecordError if a length or a number exceeds the format's limit.
    """
    cdef Outgoing outgoing = Outgoing(record)
    cdef int64_t size
    cdef bytes encoded
    if not is_legal(&outgoing.message):
        raise RecordError(
            f"topic of {len(outgoing.topic)} and properties of {len(outgoing.properties)} bytes: "
            f"allowed are 1 to {layout.TOPIC_MAX} and at most {layout.PROPERTIES_MAX}"
        )
    size = encoded_size(&outgoing.message)
    if size > 0x7FFFFFFF:
        raise RecordError(f"a record of {size} bytes exceeds the format's limit of 2147483647")
    encoded = PyBytes_FromStringAndSize(NULL, size)
    encode(<uint8_t *> PyBytes_AS_STRING(encoded), &outgoing.message, size,
           record.queue_offset, record.physical_offset, record.store_timestamp)
    return encoded


cdef object to_record(const RecordView *view):
    return Record(
        topic=PyUnicode_DecodeUTF8(<const char *> view.topic, view.topic_length, "replace"),
        body=PyBytes_FromStringAndSize(<const char *> view.body, view.body_length),
        properties=to_properties(view.properties, view.properties_length),
        queue_id=view.queue_id,
        flag=view.flag,
        sys_flag=view.sys_flag,
        born_timestamp=view.born_timestamp,
        born_host=to_host(view.born_host, view.born_host_length),
        store_host=to_host(view.store_host, view.store_host_length),
        reconsume_times=view.reconsume_times,
        prepared_offset=view.prepared_offset,
        store_timestamp=view.store_timestamp,
        queue_offset=view.queue_offset,
        physical_offset=view.physical_offset,
        body_crc=view.body_crc,
        size=view.size,
    )


cdef object read_record(const uint8_t *data, int64_t length, int64_t position, bint verify_crc,
                        physical_offset):
    cdef RecordView view
    cdef const uint8_t *at = data + position
    cdef int64_t available = length - position
    cdef int64_t expected = 0
    cdef RecordCheck found
    if physical_offset is not None:
        expected = physical_offset
    elif available >= layout.RECORD_FIXED:
        expected = load_i64(at + layout.AT_PHYSICAL_OFFSET)
    found = check(at, available, expected, verify_crc, &view)
    if found == RECORD_OK:
        return to_record(&view)
    if found == RECORD_BLANK:
        raise RecordError(f"no record at {position}: the rest of the segment is blank")
    if found == RECORD_END:
        raise RecordError(f"no record at {position}: this part was never written")
    raise RecordError(
        f"no valid record at {position} ({available} bytes): "
        "magic, size, CRC, physical offset or a length is wrong"
    )


def decode_record(buffer, int64_t position=0, *, bint verify_crc=True, physical_offset=None):
    """Decode the record at byte `position` (RocketMQ: MessageDecoder.decode).

    With `physical_offset` the record must have this offset. Raises RecordError for bytes that are
    not a complete and valid record.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            raise RecordError(f"position {position} is outside the buffer of {view.len} bytes")
        return read_record(<const uint8_t *> view.buf, view.len, position, verify_crc,
                           physical_offset)
    finally:
        PyBuffer_Release(&view)


def decode_records(buffer):
    """Decode consecutive records, the body of a pull, and check their CRCs. Raises RecordError."""
    cdef Py_buffer view
    cdef int64_t position = 0
    cdef list records = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while position < view.len:
            records.append(read_record(<const uint8_t *> view.buf, view.len, position, True, None))
            position += load_i32(<const uint8_t *> view.buf + position)
    finally:
        PyBuffer_Release(&view)
    return records


def queue_offsets(buffer):
    """The queue offsets of consecutive whole records, the body of a pull: a list of ints."""
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef int64_t position = 0
    cdef list offsets = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while position + layout.RECORD_FIXED <= view.len:
            at = <const uint8_t *> view.buf + position
            offsets.append(load_i64(at + layout.AT_QUEUE_OFFSET))
            position += max(load_i32(at + layout.AT_SIZE), <int32_t> layout.RECORD_FIXED)
    finally:
        PyBuffer_Release(&view)
    return offsets


def crc32(buffer, uint32_t crc=0):
    """A faster zlib.crc32; `crc` continues an earlier one."""
    return checksum.crc_of(checksum.crc32, buffer, crc)


cdef bytes to_utf8(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def string_hash(text):
    """Java's String.hashCode, signed 32 bits; bytes are taken as UTF-8."""
    cdef bytes utf8 = to_utf8(text)
    return checksum.string_hash(0, <const uint8_t *> PyBytes_AS_STRING(utf8), len(utf8))


def index_hash(topic, key):
    """Key hash of an index entry (RocketMQ: IndexFile.indexKeyHashMethod), never negative."""
    cdef bytes first = to_utf8(topic)
    cdef bytes second = to_utf8(key)
    return checksum.index_hash(<const uint8_t *> PyBytes_AS_STRING(first), len(first),
                               <const uint8_t *> PyBytes_AS_STRING(second), len(second))
