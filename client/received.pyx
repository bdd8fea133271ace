"""Messages as views on the body of a pull: what nobody looks at is never made an object."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

from congreve.records cimport layout
from congreve.records.cursor cimport load_i64
from congreve.records.host cimport to_host
from congreve.records.record cimport RECORD_OK, RecordView, check, find_property

from congreve.client.compression import decompress
from congreve.client.namespace import unwrap, unwrap_queue
from congreve.records.errors import RecordError
from congreve.records.properties import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY
from congreve.records.record import decode_properties, offset_message_id

__all__ = ["PulledRecords", "ReceivedMessage"]

cdef const char *RETRY_PREFIX = b"%RETRY%"
cdef enum:
    RETRY_PREFIX_LENGTH = 7


# Positions of whole and sound records that stand one behind the other; how many, or -1 - position
# of the first that is none. `positions` has room for as many as `length` bytes can hold.
cdef int64_t find_records(const uint8_t *data, int64_t length, int32_t *positions) noexcept nogil:
    cdef RecordView view
    cdef int64_t position = 0
    cdef int64_t count = 0
    while position < length:
        if length - position < layout.RECORD_FIXED or check(
            data + position, length - position,
            load_i64(data + position + layout.AT_PHYSICAL_OFFSET), True, &view,
        ) != RECORD_OK:
            return -1 - position
        positions[count] = <int32_t> position
        count += 1
        position += view.size
    return count


cdef inline int look_at(const uint8_t *data, int64_t length, int32_t position,
                        RecordView *view) noexcept nogil:
    """A record that was found before."""
    cdef const uint8_t *at = data + position
    return check(at, length - position, load_i64(at + layout.AT_PHYSICAL_OFFSET), False, view)


@cython.final
cdef class PulledRecords:
    cdef readonly bytes body
    cdef readonly int64_t undone
    cdef public object owner        # the process queue that counts what is undone
    cdef object namespace           # what programs do not see of topics, or None
    cdef int64_t count
    cdef int64_t head               # the first that is not done
    cdef int32_t *positions
    cdef uint8_t *done_flags

    def __cinit__(self, bytes body, *, tags=None, namespace=None):
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(body)
        cdef int64_t length = len(body)
        cdef int64_t most = length // layout.RECORD_FIXED + 1
        self.body = body
        self.namespace = namespace
        self.positions = <int32_t *> malloc(most * sizeof(int32_t))
        if self.positions == NULL:
            raise MemoryError()
        with nogil:
            self.count = find_records(data, length, self.positions)
        if self.count < 0:
            raise RecordError(
                f"the record at byte {-1 - self.count} of the {length} of a pull is damaged"
            )
        if tags is not None:
            self.keep_tags(tags)
        self.undone = self.count
        self.done_flags = <uint8_t *> calloc(self.count + 1, 1)
        if self.done_flags == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.positions)
        free(self.done_flags)

    def __len__(self):
        return self.count

    cdef int keep_tags(self, tags) except -1:
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(self.body)
        cdef const uint8_t *tag
        cdef RecordView view
        cdef int32_t tag_length = 0
        cdef int64_t kept = 0
        cdef int64_t i
        wanted = {name.encode() for name in tags}
        for i in range(self.count):
            look_at(data, len(self.body), self.positions[i], &view)
            tag = find_property(view.properties, view.properties_length, b"TAGS", 4, &tag_length)
            if tag != NULL and tag[:tag_length] in wanted:
                self.positions[kept] = self.positions[i]
                kept += 1
        self.count = kept
        return 0

    def messages(self, queue):
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(self.body)
        cdef list messages = []
        cdef ReceivedMessage message
        cdef int64_t i
        if self.namespace:
            queue = unwrap_queue(self.namespace, queue)
        for i in range(self.count):
            message = ReceivedMessage.__new__(ReceivedMessage)
            look_at(data, len(self.body), self.positions[i], &message.view)
            message.adopt_view()
            message.queue = queue
            message.source = self
            message.index = i
            if self.namespace:
                message.known_topic = unwrap(self.namespace, message.topic)
            messages.append(message)
        return messages

    def done(self, ReceivedMessage message):
        return message.source is self and self.set_done(message.index)

    def is_done(self, ReceivedMessage message):
        return message.source is self and self.done_flags[message.index] != 0

    cdef bint set_done(self, int64_t index) noexcept:
        if self.done_flags[index]:
            return False
        self.done_flags[index] = 1
        self.undone -= 1
        while self.head < self.count and self.done_flags[self.head]:
            self.head += 1
        return True

    def done_all(self, list messages):
        cdef int64_t count = 0
        cdef ReceivedMessage message
        for message in messages:
            if message.source is self:
                count += self.set_done(message.index)
        return count

    def done_rest(self):
        cdef int64_t index
        cdef int64_t count = self.undone
        for index in range(self.head, self.count):
            self.set_done(index)
        return count

    def offset_of(self, int64_t index):
        if not -self.count <= index < self.count:
            raise IndexError(f"record {index} of {self.count}")
        return load_i64(
            <const uint8_t *> PyBytes_AS_STRING(self.body)
            + self.positions[index if index >= 0 else self.count + index]
            + layout.AT_QUEUE_OFFSET
        )

    @property
    def first_undone(self):
        return self.offset_of(self.head) if self.head < self.count else None


@cython.final
cdef class ReceivedMessage:
    cdef readonly object queue
    cdef readonly PulledRecords source
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t born_timestamp
    cdef readonly int64_t store_timestamp
    cdef readonly int32_t reconsume_times
    cdef readonly int32_t flag
    cdef readonly int32_t sys_flag
    cdef int64_t index              # among the records of `source`
    cdef RecordView view            # of `source`, where there is one
    cdef object known_topic
    cdef object known_body
    cdef object known_properties
    cdef object known_born_host
    cdef object known_store_host

    def __init__(self, *, topic, body, properties, queue, queue_offset=0, physical_offset=0,
                 born_timestamp=0, born_host=("0.0.0.0", 0), store_timestamp=0,
                 store_host=("0.0.0.0", 0), reconsume_times=0, flag=0, sys_flag=0):
        self.known_topic, self.known_body, self.known_properties = topic, body, properties
        self.known_born_host, self.known_store_host = born_host, store_host
        self.queue, self.queue_offset = queue, queue_offset
        self.physical_offset, self.reconsume_times = physical_offset, reconsume_times
        self.born_timestamp, self.store_timestamp = born_timestamp, store_timestamp
        self.flag, self.sys_flag = flag, sys_flag

    cdef void adopt_view(self) noexcept:
        self.queue_offset = self.view.queue_offset
        self.physical_offset = self.view.physical_offset
        self.born_timestamp = self.view.born_timestamp
        self.store_timestamp = self.view.store_timestamp
        self.reconsume_times = self.view.reconsume_times
        self.flag = self.view.flag
        self.sys_flag = self.view.sys_flag & ~layout.SYS_COMPRESSED

    def __repr__(self):
        return (
            f"<ReceivedMessage {self.topic} {self.message_id} at {self.queue.broker_name} "
            f"{self.queue.queue_id}:{self.queue_offset}>"
        )

    cdef object property(self, str name):
        cdef bytes key
        cdef const uint8_t *value
        cdef int32_t length = 0
        if self.known_properties is not None:
            return self.known_properties.get(name)
        key = name.encode()
        value = find_property(self.view.properties, self.view.properties_length, key, len(key),
                              &length)
        if value == NULL:
            return None
        return PyUnicode_DecodeUTF8(<const char *> value, length, "replace")

    @property
    def topic(self):
        cdef const uint8_t *at
        if self.known_topic is None:
            at = self.view.topic
            if (self.view.topic_length > RETRY_PREFIX_LENGTH
                    and memcmp(at, RETRY_PREFIX, RETRY_PREFIX_LENGTH) == 0):
                self.known_topic = self.property(RETRY_TOPIC)
            if self.known_topic is None:
                self.known_topic = PyUnicode_DecodeUTF8(
                    <const char *> at, self.view.topic_length, "replace"
                )
        return self.known_topic

    @property
    def body(self):
        if self.known_body is None:
            body = PyBytes_FromStringAndSize(
                <const char *> self.view.body, self.view.body_length
            )
            if self.view.sys_flag & layout.SYS_COMPRESSED:
                body = decompress(body, self.view.sys_flag)
            self.known_body = body
        return self.known_body

    @property
    def body_size(self):
        return len(self.known_body) if self.source is None else self.view.body_length

    @property
    def properties(self):
        cdef bytes raw
        if self.known_properties is None:
            raw = PyBytes_FromStringAndSize(
                <const char *> self.view.properties, self.view.properties_length
            )
            self.known_properties = decode_properties(raw)
        return self.known_properties

    @property
    def born_host(self):
        if self.known_born_host is None:
            self.known_born_host = to_host(self.view.born_host, self.view.born_host_length)
        return self.known_born_host

    @property
    def store_host(self):
        if self.known_store_host is None:
            self.known_store_host = to_host(self.view.store_host, self.view.store_host_length)
        return self.known_store_host

    @property
    def queue_id(self):
        return self.queue.queue_id

    @property
    def tags(self):
        return self.property(TAGS)

    @property
    def keys(self):
        return self.property(KEYS)

    @property
    def message_id(self):
        return self.property(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self):
        return offset_message_id(self.store_host, self.physical_offset)
