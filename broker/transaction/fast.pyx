"""Half messages and END_TRANSACTION without the GIL, for the fast path."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memset, strlen

from congreve.broker.requests.properties cimport TARGET_MAX, put_target
from congreve.records.byte_compare cimport is_text, same, starts_with
from congreve.records.layout cimport (
    BLANK_MIN,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_MAX,
    PROPERTY_SEPARATOR,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_MASK,
)
from congreve.records.message.properties cimport (
    DELAY,
    PRODUCER_GROUP,
    REAL_TOPIC,
    TIMER_PREFIX,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
)
from congreve.records.message.topics cimport (
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.records.packed_host cimport unpack_host
from congreve.records.record cimport RECORD_OK, check, encoded_size, is_legal, tags_code
from congreve.records.restore cimport RESTORE_COMMITTED, RESTORE_OK, restore
from congreve.remoting.wire.byte_text cimport put, put_decimal
from congreve.remoting.wire.json_text cimport parse_int32, parse_integer

from congreve.records.message import properties
from congreve.records.message.half_messages import OP_PROPERTIES
from congreve.records.message.property_codec import encode_properties

cdef enum:
    ROLLBACK = SYS_TRANSACTION_MASK     # both of its bits
    GROUP_SEEN = 1                      # required fields of an end
    HALF_OFFSET_SEEN = 2
    PHYSICAL_OFFSET_SEEN = 4
    HOW_SEEN = 8
    MESSAGE_ID_SEEN = 16
    ALL_SEEN = 31


cdef bint read_end_header(const Header *header, EndHeader *ask) noexcept nogil:
    """False if a field is missing or not a number, or if the request answers a check."""
    cdef Slice key
    cdef Slice value
    cdef int32_t i
    cdef int32_t seen = 0
    cdef bint good = True
    memset(ask, 0, sizeof(EndHeader))
    for i in range(header.count):
        key = header.fields[i].key
        value = header.fields[i].value
        if is_text(key.data, key.length, b"producerGroup"):
            ask.producer_group = value
            seen |= GROUP_SEEN
        elif is_text(key.data, key.length, b"tranStateTableOffset"):
            good &= parse_integer(value, &ask.half_offset)
            seen |= HALF_OFFSET_SEEN
        elif is_text(key.data, key.length, b"commitLogOffset"):
            good &= parse_integer(value, &ask.physical_offset)
            seen |= PHYSICAL_OFFSET_SEEN
        elif is_text(key.data, key.length, b"commitOrRollback"):
            good &= parse_int32(value, &ask.how)
            seen |= HOW_SEEN
        elif is_text(key.data, key.length, b"fromTransactionCheck"):
            good &= is_text(value.data, value.length, b"false")
        elif is_text(key.data, key.length, b"msgId"):
            seen |= MESSAGE_ID_SEEN
    return good and seen == ALL_SEEN


cdef inline bint needs_handler(const uint8_t *name, Py_ssize_t length) noexcept nogil:
    """Whether only copies and delayed messages have this property: the handler ends those."""
    return (
        is_text(name, length, TRANSACTION_CHECK_TIMES) or is_text(name, length, DELAY)
        or is_text(name, length, TRANSACTION_PREPARED_QUEUE_OFFSET)
        or starts_with(name, length, TIMER_PREFIX)
    )


cdef bint is_plain_half_of(const RecordView *half, Slice group, Slice *topic) noexcept nogil:
    """Whether the half message belongs to this producer group and is an ordinary one.

    Sets the topic of the message.
    """
    cdef const uint8_t *at = half.properties
    cdef const uint8_t *end = at + half.properties_length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    cdef bint belongs = False
    topic.data, topic.length = at, 0
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop == NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value != NULL:
            if needs_handler(at, value - at):
                return False
            if is_text(at, value - at, PRODUCER_GROUP):
                belongs = same(value + 1, stop - value - 1, group.data, group.length)
            elif is_text(at, value - at, REAL_TOPIC):
                topic.data, topic.length = value + 1, <int32_t> (stop - value - 1)
        at = stop + 1
    return belongs


@cython.final
cdef class TransactionPath:
    """Stores and ends half messages for the fast path.

    It serves the ordinary case only; SendMessageProcessor and EndTransactionProcessor serve all
    other requests. While `takes_half_messages` is False every half message goes to the Python
    handler, which rejects it; `ends_transactions` does the same for END_TRANSACTION.
    (RocketMQ: EndTransactionProcessor.)
    """

    def __cinit__(self, store, TopicTable topics, HalfWindow window, str cluster):
        self.cluster = encode_properties({properties.CLUSTER: cluster})
        self.added_properties = <uint8_t *> PyMem_Malloc(len(self.cluster) + TARGET_MAX)
        self.committed_properties = <uint8_t *> PyMem_Malloc(PROPERTIES_MAX)
        if self.added_properties == NULL or self.committed_properties == NULL:
            raise MemoryError()
        self.store = store
        self.log = store.log
        self.topics = topics
        self.window = window
        self.takes_half_messages = True
        self.ends_transactions = True
        self.op.topic = <const uint8_t *> TRANS_OP_HALF_TOPIC
        self.op.topic_length = <int32_t> strlen(TRANS_OP_HALF_TOPIC)
        self.op.body = self.op_body
        self.op_properties = encode_properties(OP_PROPERTIES)
        self.op.properties = self.op_properties
        self.op.properties_length = <int32_t> len(self.op_properties)
        self.op.tags_code = tags_code(self.op.properties, self.op.properties_length)
        self.find_queues()

    def __dealloc__(self):
        PyMem_Free(self.added_properties)
        PyMem_Free(self.committed_properties)

    def set_store_host(self, bytes host):
        """Set the broker's address in op records.

        `host` has 4 or 16 address bytes, then the port as i32.
        """
        unpack_host(&self.op.store_host, host)
        self.op.born_host = self.op.store_host

    def find_queues(self):
        """Look up the queues again: a Python handler may have created or deleted them."""
        self.half_queue = self.store.queues.find(TRANS_HALF_TOPIC.decode(), TRANS_QUEUE_ID)
        self.op_queue = self.store.queues.find(TRANS_OP_HALF_TOPIC.decode(), TRANS_QUEUE_ID)

    cdef void make_half(self, Message *message) noexcept nogil:
        cdef uint8_t *at = self.added_properties
        at = put(at, <const char *> message.properties_more, message.properties_more_length)
        at = put_target(at, message)
        message.properties_more = self.added_properties
        message.properties_more_length = <int32_t> (at - self.added_properties)
        message.topic = <const uint8_t *> TRANS_HALF_TOPIC
        message.topic_length = <int32_t> strlen(TRANS_HALF_TOPIC)
        message.queue_id = TRANS_QUEUE_ID
        message.sys_flag &= ~SYS_TRANSACTION_MASK

    cdef EndStatus end(self, const Header *header, Appended *appended) noexcept nogil:
        cdef EndHeader ask
        cdef RecordView half
        cdef EndStatus status
        cdef int64_t size = 0
        self.queue = NULL
        if self.op_queue is None or not read_end_header(header, &ask):
            return END_PYTHON
        if ask.how != SYS_TRANSACTION_COMMIT and ask.how != ROLLBACK:
            return END_PYTHON
        if not self.find(&ask, &half) or not self.window.has_room(ask.half_offset):
            return END_PYTHON
        if self.op_queue.free_entries == 0:
            self.queue = <void *> self.op_queue
            return END_QUEUE_ROOM
        if ask.how == SYS_TRANSACTION_COMMIT:
            status = self.prepare_commit(&half)
            if status != END_DONE:
                return status
            size = encoded_size(&self.committed)
        else:
            self.topic = self.topics.find(self.real_topic.data, self.real_topic.length)
            if self.topic == NULL or self.topic.counts == NULL:
                return END_PYTHON
        self.prepare_op(ask.half_offset)
        size += encoded_size(&self.op)
        if size + BLANK_MIN > self.log.segment_size:
            return END_PYTHON
        # Both records fit, so neither append can fail and nothing comes between them.
        if not self.log.has_room(size):
            return END_SEGMENT
        if self.queue != NULL:
            self.log.append(&self.committed, <ConsumeQueue> self.queue, self.op.born_timestamp,
                            appended)
        self.log.append(&self.op, self.op_queue, self.op.born_timestamp, appended)
        self.window.settle(ask.half_offset)
        return END_DONE

    cdef bint find(self, const EndHeader *ask, RecordView *half) noexcept nogil:
        """Read the half message in the open segment; False unless the request names it."""
        cdef int64_t at
        if self.log.active is None:
            return False
        at = ask.physical_offset - self.log.active.base_offset
        if at < 0 or ask.physical_offset >= self.log.max_offset:
            return False
        if check(self.log.active.data + at, self.log.max_offset - ask.physical_offset,
                 ask.physical_offset, True, half) != RECORD_OK:
            return False
        return (
            is_text(half.topic, half.topic_length, TRANS_HALF_TOPIC)
            and half.queue_id == TRANS_QUEUE_ID
            and half.queue_offset == ask.half_offset
            and self.half_queue is not None
            and self.half_queue.names_lately(ask.half_offset, ask.physical_offset)
            and self.window.is_free(ask.half_offset)
            and is_plain_half_of(half, ask.producer_group, &self.real_topic)
        )

    cdef EndStatus prepare_commit(self, const RecordView *half) noexcept nogil:
        if restore(
            half, RESTORE_COMMITTED, self.committed_properties, &self.committed
        ) != RESTORE_OK:
            return END_PYTHON
        if not is_legal(&self.committed):
            return END_PYTHON
        self.queue_id = self.committed.queue_id
        self.topic = self.topics.find(self.committed.topic, self.committed.topic_length)
        if self.topic == NULL or self.queue_id >= self.topic.queue_count:
            return END_PYTHON
        self.queue = <void *> self.topic.queues[self.queue_id]
        if self.queue == NULL:
            return END_QUEUE
        return END_QUEUE_ROOM if (<ConsumeQueue> self.queue).free_entries == 0 else END_DONE

    cdef void prepare_op(self, int64_t half_offset) noexcept nogil:
        self.op.body_length = <int32_t> (put_decimal(self.op_body, half_offset) - self.op_body)
        self.op.born_timestamp = self.log.clock.now_ms()
