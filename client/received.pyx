"""Messages as views on the body of a pull; fields become Python objects when they are read."""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

from congreve.base.cursor cimport load_i64
from congreve.records cimport layout
from congreve.records.byte_compare cimport starts_with
from congreve.records.host cimport to_host
from congreve.records.message cimport properties as names
from congreve.records.message.topics cimport RETRY_PREFIX
from congreve.records.record cimport RECORD_OK, RecordView, check, find_property, property_of

from congreve.client.compression import decompress
from congreve.client.namespace import unwrap, unwrap_queue
from congreve.client.received_json import received_fields, received_schema
from congreve.records.errors import RecordError
from congreve.records.message.properties import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY
from congreve.records.message.property_codec import decode_properties
from congreve.records.record import offset_message_id

__all__ = ["PulledRecords", "ReceivedMessage"]


# Finds the positions of adjacent valid records; returns their number, or -1 - the position of the
# first that is invalid. `positions` holds as many entries as `length` bytes can have records.
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
    """Parse a record that find_records() has checked."""
    cdef const uint8_t *at = data + position
    return check(at, length - position, load_i64(at + layout.AT_PHYSICAL_OFFSET), False, view)


@cython.final
cdef class PulledRecords:
    """The records of a pull's body, with checked CRCs, and which of them are consumed.

    With `tags`, messages with other tags are left out, because brokers compare only hashes. Topics
    are shown without the `namespace`. Raises RecordError when a record is damaged.
    (RocketMQ: MessageDecoder.decodes.)
    """

    cdef readonly bytes body
    """The body as pulled, including records that were left out."""
    cdef readonly int64_t undone
    """Number of messages that are not consumed."""
    cdef public object owner
    """The process queue that counts unconsumed messages, or None."""
    cdef object namespace
    cdef int64_t count
    cdef int64_t head               # the first record that is not consumed
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
            self.filter_tags(tags)
        self.undone = self.count
        self.done_flags = <uint8_t *> calloc(self.count + 1, 1)
        if self.done_flags == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.positions)
        free(self.done_flags)

    def __len__(self):
        return self.count

    cdef int filter_tags(self, tags) except -1:
        cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(self.body)
        cdef const uint8_t *tag
        cdef RecordView view
        cdef int32_t tag_length = 0
        cdef int64_t matching = 0
        cdef int64_t i
        wanted = {name.encode() for name in tags}
        for i in range(self.count):
            look_at(data, len(self.body), self.positions[i], &view)
            tag = property_of(&view, names.TAGS, &tag_length)
            if tag != NULL and tag[:tag_length] in wanted:
                self.positions[matching] = self.positions[i]
                matching += 1
        self.count = matching
        return 0

    def messages(self, queue):
        """The messages as views on the records; each view keeps the whole body in memory."""
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
        """Mark a message of this pull as consumed; returns False if it already was."""
        return message.source is self and self.set_done(message.index)

    def is_done(self, ReceivedMessage message):
        """Whether a message of this pull is consumed."""
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
        """Mark messages as consumed; returns how many of them were not consumed before."""
        cdef int64_t count = 0
        cdef ReceivedMessage message
        for message in messages:
            if message.source is self:
                count += self.set_done(message.index)
        return count

    def done_rest(self):
        """Mark all messages as consumed; returns how many were not consumed before."""
        cdef int64_t index
        cdef int64_t count = self.undone
        for index in range(self.head, self.count):
            self.set_done(index)
        return count

    def offset_of(self, int64_t index):
        """Queue offset of a record; negative indices count from the end.

        Raises IndexError when there is no such record.
        """
        if not -self.count <= index < self.count:
            raise IndexError(f"record {index} of {self.count}")
        return load_i64(
            <const uint8_t *> PyBytes_AS_STRING(self.body)
            + self.positions[index if index >= 0 else self.count + index]
            + layout.AT_QUEUE_OFFSET
        )

    @property
    def first_undone(self):
        """Queue offset of the first message that is not consumed, or None."""
        return self.offset_of(self.head) if self.head < self.count else None


@cython.final
cdef class ReceivedMessage:
    """A message from a broker (RocketMQ: MessageExt). Times are milliseconds since 1970.

    `queue` is the queue that it was read from: for a retried message a queue of its group's retry
    topic, while `topic` is the topic that it was sent to. A pulled message is a view on the pull's
    bytes: topic, body, properties and hosts are decoded on first access.
    """

    cdef readonly object queue
    """The queue that the message was read from."""
    cdef readonly PulledRecords source
    """The pull of the message, or None."""
    cdef readonly object receipt
    """What a ShareConsumer settles the message with, or None."""
    cdef readonly int64_t queue_offset
    """Offset in the queue."""
    cdef readonly int64_t physical_offset
    """Offset in the broker's commit log, in bytes."""
    cdef readonly int64_t born_timestamp
    """When the producer sent the message."""
    cdef readonly int64_t store_timestamp
    """When the broker stored the message."""
    cdef readonly int32_t reconsume_times
    """How often the message was sent back by its group."""
    cdef readonly int32_t flag
    """The flag that the producer set."""
    cdef readonly int32_t sys_flag
    """RocketMQ's MessageSysFlag, without the bit that says that the body is compressed."""
    cdef int64_t index              # among the records of `source`
    cdef RecordView view            # a record of `source`
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

    @property
    def __dict__(self):
        """The fields as JSON has them: ``vars(message)``, and FastAPI."""
        return received_fields(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        """The schema that pydantic writes for a message."""
        return received_schema(cls, handler)

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

    def hand_out(self, queue, receipt):
        """Note the queue that a pop took the message from, and the receipt to settle it with."""
        self.queue, self.receipt = queue, receipt

    @property
    def stored_queue_id(self):
        """The queue's number in the record; a pop returns records of several queues."""
        return self.queue.queue_id if self.source is None else self.view.queue_id

    def count_attempt(self):
        """Increase `reconsume_times`: an orderly consumer tries a failed message again in place
        (RocketMQ: ConsumeMessageOrderlyService.checkReconsumeTimes)."""
        self.reconsume_times += self.reconsume_times < INT32_MAX

    @property
    def topic(self):
        """The topic that the message was sent to."""
        cdef const uint8_t *at
        if self.known_topic is None:
            at = self.view.topic
            if starts_with(at, self.view.topic_length, RETRY_PREFIX):
                self.known_topic = self.property(RETRY_TOPIC)
            if self.known_topic is None:
                self.known_topic = PyUnicode_DecodeUTF8(
                    <const char *> at, self.view.topic_length, "replace"
                )
        return self.known_topic

    @property
    def body(self):
        """The decompressed body. Raises ClientError when it cannot be decompressed."""
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
        """Bytes of the body as stored."""
        return len(self.known_body) if self.source is None else self.view.body_length

    @property
    def properties(self):
        """All properties of the message."""
        cdef bytes raw
        if self.known_properties is None:
            raw = PyBytes_FromStringAndSize(
                <const char *> self.view.properties, self.view.properties_length
            )
            self.known_properties = decode_properties(raw)
        return self.known_properties

    @property
    def born_host(self):
        """Address and port of the producer."""
        if self.known_born_host is None:
            self.known_born_host = to_host(self.view.born_host, self.view.born_host_length)
        return self.known_born_host

    @property
    def store_host(self):
        """Address and port of the broker."""
        if self.known_store_host is None:
            self.known_store_host = to_host(self.view.store_host, self.view.store_host_length)
        return self.known_store_host

    @property
    def queue_id(self):
        """Number of the queue that the message was read from."""
        return self.queue.queue_id

    @property
    def tags(self):
        """The tag, or None."""
        return self.property(TAGS)

    @property
    def keys(self):
        """The keys, separated by spaces, or None."""
        return self.property(KEYS)

    @property
    def message_id(self):
        """The id that the producer gave to the message, else the id of its position."""
        return self.property(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self):
        """The id of the message's position: the broker's address and the physical offset."""
        return offset_message_id(self.store_host, self.physical_offset)
