"""Sends and pulls of ordinary messages, a chunk of bytes at a time.

`HotPath` takes the frames of a connection's chunk. Sends that need nothing special are decoded,
appended and answered in `run()`, without the GIL and without a Python object for each.
`broker/pullpath` answers pulls from the consume queue or lets them wait, `broker/transactionpath`
takes half messages and their ends, `broker/delaypath` messages that are to be delivered later.
Whatever else a frame may be (another code, a topic to create, a limit broken) goes to the Python
handlers, which hold the rules; so nothing is decided here that is not decided there too.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from congreve.broker.batchbody cimport is_ordinary_batch
from congreve.broker.delaypath cimport PARK_COLD, PARK_QUEUE, DelayPath, ParkStatus
from congreve.broker.pullpath cimport PullPath
from congreve.broker.sendproperties cimport (
    SEND_BATCH,
    SEND_HALF,
    SEND_SINGLE,
    SendKind,
    stored_properties,
)
from congreve.broker.topictable cimport TopicTable
from congreve.broker.transactionpath cimport (
    END_DONE,
    END_QUEUE,
    END_QUEUE_ROOM,
    END_SEGMENT,
    EndStatus,
    TransactionPath,
)
from congreve.engine.commitlog cimport (
    APPEND_NEXT_SEGMENT,
    APPEND_OK,
    APPEND_QUEUE_ROOM,
    AppendStatus,
)
from congreve.engine.consumequeue cimport ConsumeQueue
from congreve.records.cursor cimport load_i32
from congreve.records.host cimport MESSAGE_ID_MAX, Host, put_id_host, put_id_offset
from congreve.records.layout cimport (
    BATCH_ELEMENT_FIXED,
    PROPERTIES_MAX,
    PROPERTY_SEPARATOR,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
)
from congreve.remoting.answers cimport (
    SEND_RESPONSE_MAX,
    encode_send_response,
    encode_success,
)
from congreve.remoting.frame cimport (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    FRAME_BAD,
    FRAME_PARTIAL,
    HEADER_OK,
    FrameStatus,
    next_frame,
)
from congreve.remoting.headerdecoder cimport HeaderDecoder
from congreve.remoting.hotheaders cimport is_send
from congreve.remoting.inbox cimport FrameReader
from congreve.remoting.slices cimport Slice

from congreve.errors import CongreveError
from congreve.remoting.errors import FrameError

cdef enum:
    PULL_MESSAGE = 11
    END_TRANSACTION = 37
    LITE_PULL_MESSAGE = 361
    ID_ROOM = MESSAGE_ID_MAX + 1    # and a comma


cdef int fill(Host *host, bytes packed) except -1:
    """Address and port as a record holds them: 4 or 16 bytes, then the port as i32."""
    cdef const uint8_t *raw = packed
    host.length = <int32_t> len(packed) - 4
    memcpy(host.address, raw, host.length)
    host.port = load_i32(raw + host.length)
    return 0


cdef Slice slice_of(bytes text) noexcept:
    cdef Slice found
    found.data = text
    found.length = <int32_t> len(text)
    return found


@cython.final
cdef class HotPath(FrameSink):
    def __cinit__(self):
        self.headers = HeaderDecoder()
        self.out_capacity = 256 * 1024
        self.out = <uint8_t *> PyMem_Malloc(self.out_capacity)
        self.properties = <uint8_t *> PyMem_Malloc(2 * PROPERTIES_MAX)
        if self.out == NULL or self.properties == NULL:
            raise MemoryError()
        self.message.properties = self.properties

    def __dealloc__(self):
        PyMem_Free(self.out)
        PyMem_Free(self.properties)

    def __init__(self, *, store, TopicTable topics, gate, arrived, PullPath pulls,
                 TransactionPath transactions, DelayPath delays, settings):
        self.store = store
        self.log = store.log
        self.topics = topics
        self.transactions = transactions
        self.delays = delays
        self.gate = gate
        self.arrived = arrived
        self.pulls = pulls
        self.sync_flush = settings.sync_flush
        self.max_message_size = settings.max_message_size
        self.kept = (b"CLUSTER\x01" + settings.cluster.encode(), *settings.send_constants)
        self.cluster = slice_of(self.kept[0])
        self.constants[0] = slice_of(self.kept[1])
        self.constants[1] = slice_of(self.kept[2])
        self.set_store_host(settings.store_host)

    def set_store_host(self, bytes host):
        fill(&self.message.store_host, host)
        self.id_host_length = put_id_host(self.id_host, &self.message.store_host) - self.id_host
        self.transactions.set_store_host(host)

    # ---- a chunk, with the GIL -----------------------------------------------------------------

    cdef Py_ssize_t take(self, FrameReader connection, const uint8_t *data,
                         Py_ssize_t available) except -1:
        cdef Stop stop
        fill(&self.message.born_host, connection.peer_bytes)
        self.accepting = self.store.writable
        self.at = 0
        self.out_used = 0
        self.appended_end = 0
        self.touched_count = 0
        while not connection.reading_paused:
            with nogil:
                stop = self.run(data, available)
            if stop == STOP_DONE:
                break
            if stop == STOP_UNFRAMEABLE:
                self.finish(connection)
                begin = bytes(data[self.at:self.at + 8])
                raise FrameError(f"{connection.peer}: bytes that are no frame: {begin!r}")
            self.resume(stop, connection)
        self.finish(connection)
        return self.at

    cdef int resume(self, Stop stop, object connection) except -1:
        """Do what compiled code could not, so that run() can go on."""
        cdef bint batch
        cdef int32_t size = self.frame.size
        if stop == STOP_COLD:
            self.answer_cold(connection)
        elif stop == STOP_PULL:
            if self.pulls.serve(connection, &self.frame, &self.header):
                self.at += size
            else:
                self.answer_cold(connection)
        elif stop == STOP_SEGMENT or stop == STOP_QUEUE_ROOM:
            if not self.room_made(stop == STOP_SEGMENT):
                self.answer_cold(connection)
        elif stop == STOP_QUEUE:
            self.open_queue()
        elif stop == STOP_PARK_QUEUE:
            self.delays.open_queue()
        elif stop == STOP_OUT:
            batch = self.send.batch
            self.grow_out(self.answer_room(batch))
        return 0

    cdef bint room_made(self, bint in_log) except -1:
        """Whether there is room on disk now; if not, the Python handlers meet it and say why."""
        try:
            if in_log:
                self.log.next_segment()
            else:
                (<ConsumeQueue> self.full_queue).make_room()
        except CongreveError:
            return False
        return True

    cdef int answer_cold(self, object connection) except -1:
        cdef int32_t size = self.frame.size
        self.wake_held()  # a handler may delete a topic, and with it what is remembered here
        connection.on_frame(
            PyBytes_FromStringAndSize(<const char *> self.frame.data, self.frame.size)
        )
        self.transactions.find_queues()
        self.at += size
        return 0

    def finish(self, connection):
        """What one chunk owes: its answers, the index's and the flusher's wake-up, who waits."""
        cdef bint parks = self.sync_flush and self.appended_end and self.out_used
        if self.out_used:
            answers = PyBytes_FromStringAndSize(<const char *> self.out, self.out_used)
            if parks:
                self.gate.park(connection, answers, self.appended_end)
            else:
                connection.write(answers)
        if self.appended_end:
            self.store.after_append(self.appended_end, flush=not parks)
        self.wake_held()

    def wake_held(self):
        cdef int32_t i
        for i in range(self.touched_count):
            self.arrived(<ConsumeQueue> self.touched[i])
        self.touched_count = 0

    def open_queue(self):
        topic = self.topic.name[:self.topic.name_length].decode()
        self.topics.set_queue(topic, self.store.queues.get(topic, self.send.queue_id))

    cdef int grow_out(self, Py_ssize_t wanted) except -1:
        cdef Py_ssize_t capacity = max(self.out_capacity * 2, self.out_used + wanted)
        out = <uint8_t *> PyMem_Realloc(self.out, capacity)
        if out == NULL:
            raise MemoryError()
        self.out = out
        self.out_capacity = capacity
        return 0

    # ---- a chunk, without it -------------------------------------------------------------------

    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        cdef FrameStatus status
        cdef Stop stop
        self.now_ms = self.log.clock.now_ms()
        while True:
            status = next_frame(data + self.at, available - self.at, &self.frame)
            if status == FRAME_PARTIAL:
                return STOP_DONE
            if status == FRAME_BAD:
                return STOP_UNFRAMEABLE
            stop = self.serve_frame()
            if stop != STOP_NEXT_FRAME:
                return stop
            self.at += self.frame.size

    cdef Stop serve_frame(self) noexcept nogil:
        cdef int32_t code
        if self.headers.decode(&self.frame, &self.header, &self.send) != HEADER_OK:
            return STOP_COLD
        if self.header.flag & FLAG_RESPONSE:
            return STOP_COLD
        code = self.header.code
        if is_send(code):
            return self.serve_send()
        if code == PULL_MESSAGE or code == LITE_PULL_MESSAGE:
            return STOP_PULL
        if code == END_TRANSACTION:
            return self.serve_end()
        return STOP_COLD

    cdef Stop serve_send(self) noexcept nogil:
        cdef SendHeader *send = &self.send
        cdef AppendStatus status
        cdef ParkStatus parked
        cdef void *queue
        cdef SendKind kind
        cdef bint waits = False
        if not (send.complete and self.accepting) or self.log.backend.failure:
            return STOP_COLD
        if self.frame.body.length > self.max_message_size:
            return STOP_COLD
        kind = SEND_BATCH if send.batch else SEND_SINGLE
        if send.sys_flag & SYS_TRANSACTION_MASK:
            kind = SEND_HALF
            if not self.is_half():
                return STOP_COLD
        self.topic = self.topics.find(send.topic.data, send.topic.length)
        if self.topic == NULL or not 0 <= send.queue_id < self.topic.queue_count:
            return STOP_COLD
        if not stored_properties(
            &send.properties, kind, self.sync_flush, self.properties,
            &self.message.properties_length, &self.message.tags_code, &self.wish,
        ):
            return STOP_COLD
        if send.batch and not is_ordinary_batch(self.frame.body.data, self.frame.body.length):
            return STOP_COLD
        queue = self.topic.queues[send.queue_id]
        if queue == NULL:
            return STOP_QUEUE
        if self.out_capacity - self.out_used < self.answer_room(send.batch):
            return STOP_OUT
        self.fill_message()
        if kind == SEND_HALF:
            self.transactions.make_half(&self.message)
            queue = <void *> self.transactions.half_queue
        elif self.wish.level.data != NULL or self.wish.time.data != NULL:
            parked = self.delays.park(&self.message, &self.wish)
            if parked == PARK_COLD:
                return STOP_COLD
            if parked == PARK_QUEUE:
                return STOP_PARK_QUEUE
            queue = self.delays.queue
            waits = True
        if send.batch:
            status = self.log.append_batch(
                &self.message, self.frame.body.data, self.frame.body.length,
                <ConsumeQueue> queue, self.now_ms, &self.appended,
            )
        else:
            status = self.log.append(
                &self.message, <ConsumeQueue> queue, self.now_ms, &self.appended
            )
        if status == APPEND_NEXT_SEGMENT:
            return STOP_SEGMENT
        if status == APPEND_QUEUE_ROOM:
            self.full_queue = queue
            return STOP_QUEUE_ROOM
        if status != APPEND_OK:
            return STOP_COLD
        self.appended_end = self.appended.end
        self.put_messages += self.appended.count
        self.put_batches += send.batch
        self.put_bytes += self.appended.end - self.appended.physical_offset
        if not self.header.flag & FLAG_ONEWAY:
            self.answer_send(send.batch)
        if waits or (<ConsumeQueue> queue).watched:
            return self.touch(queue)
        return STOP_NEXT_FRAME

    cdef bint is_half(self) noexcept nogil:
        """Whether a send of some transaction type is a half message as clients send them."""
        return (
            self.send.sys_flag & SYS_TRANSACTION_MASK == SYS_TRANSACTION_PREPARED
            and not self.send.batch and self.transactions.takes_half_messages
            and self.transactions.half_queue is not None
        )

    cdef Stop serve_end(self) noexcept nogil:
        cdef EndStatus status
        cdef void *queue
        if not (self.accepting and self.transactions.ends_transactions):
            return STOP_COLD
        if self.log.backend.failure:
            return STOP_COLD
        if self.out_capacity - self.out_used < SEND_RESPONSE_MAX:
            return STOP_OUT
        status = self.transactions.end(&self.header, &self.appended)
        queue = self.transactions.queue
        if status == END_SEGMENT:
            return STOP_SEGMENT
        if status == END_QUEUE:
            self.topic = self.transactions.topic
            self.send.queue_id = self.transactions.queue_id
            return STOP_QUEUE
        if status == END_QUEUE_ROOM:
            self.full_queue = queue
            return STOP_QUEUE_ROOM
        if status != END_DONE:
            return STOP_COLD
        self.appended_end = self.appended.end
        if not self.header.flag & FLAG_ONEWAY:
            self.out_used += encode_success(
                self.out + self.out_used, self.frame.serialize_type, self.header.opaque
            )
        if queue != NULL and (<ConsumeQueue> queue).watched:
            return self.touch(queue)
        return STOP_NEXT_FRAME

    cdef Stop touch(self, void *queue) noexcept nogil:
        """Remember to tell of this queue's new entry; a full list ends the run early."""
        cdef int32_t i
        for i in range(self.touched_count):
            if self.touched[i] == queue:
                return STOP_NEXT_FRAME
        self.touched[self.touched_count] = queue
        self.touched_count += 1
        if self.touched_count < TOUCHED_MAX:
            return STOP_NEXT_FRAME
        self.at += self.frame.size
        return STOP_DONE

    cdef void fill_message(self) noexcept nogil:
        cdef Message *m = &self.message
        m.topic = self.send.topic.data
        m.topic_length = self.send.topic.length
        m.body = self.frame.body.data
        m.body_length = self.frame.body.length
        m.properties_more = self.cluster.data
        m.properties_more_length = self.cluster.length
        if self.send.batch and m.properties_length:
            # What the header of a batch says is added to each of its members, as CLUSTER is.
            self.properties[m.properties_length] = PROPERTY_SEPARATOR
            memcpy(self.properties + m.properties_length + 1, self.cluster.data,
                   self.cluster.length)
            m.properties_more = self.properties
            m.properties_more_length += m.properties_length + 1
        m.queue_id = self.send.queue_id
        m.flag = self.send.flag
        m.sys_flag = self.send.sys_flag
        m.reconsume_times = self.send.reconsume_times
        m.born_timestamp = self.send.born_timestamp
        m.prepared_offset = 0

    # ---- answers -------------------------------------------------------------------------------

    cdef Py_ssize_t answer_room(self, bint batch) noexcept nogil:
        """Bytes that the answer to the frame at hand may need, at most."""
        cdef Py_ssize_t room = SEND_RESPONSE_MAX + ID_ROOM + self.constants[0].length
        if batch:
            room += 2 * (self.frame.body.length // BATCH_ELEMENT_FIXED + 1) * ID_ROOM
        return room

    cdef Py_ssize_t message_ids(self, uint8_t *at) noexcept nogil:
        """Offset ids of the records just appended, joined by commas; returns their length."""
        cdef const uint8_t *log = self.log.active.data - self.log.active.base_offset
        cdef int64_t offset = self.appended.physical_offset
        cdef uint8_t *start = at
        while True:
            memcpy(at, self.id_host, self.id_host_length)
            at = put_id_offset(at + self.id_host_length, offset)
            offset += load_i32(log + offset)
            if offset >= self.appended.end:
                return at - start
            at[0] = b","
            at += 1

    cdef void answer_send(self, bint batch) noexcept nogil:
        # The ids are written at the far end of the answer's room and moved into it by the encoder.
        cdef uint8_t *out = self.out + self.out_used
        cdef Py_ssize_t room = self.answer_room(batch)
        cdef Py_ssize_t ids_room = (<Py_ssize_t> self.appended.count) * ID_ROOM
        cdef uint8_t *ids = out + room - ids_room
        cdef Py_ssize_t length = self.message_ids(ids)
        self.out_used += encode_send_response(
            out, self.frame.serialize_type, self.header.opaque, <const char *> ids,
            <int32_t> length, self.send.queue_id, self.appended.queue_offset,
            self.constants[self.frame.serialize_type],
        )
