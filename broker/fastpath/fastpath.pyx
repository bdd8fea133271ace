"""Sends and pulls of ordinary messages, a chunk of bytes at a time.

`FastPath` takes the frames of a connection's chunk. `run()` decodes, appends and answers ordinary
sends without the GIL and without a Python object for each. `broker/pull/fast` answers pulls from
the consume queue or lets them wait, `broker/transaction/fast` stores and ends half messages,
`broker/delay/fast` parks delayed messages. Every other frame goes to the Python handlers, which
have all rules, including those of this module.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t

from congreve.broker.accounts.account_table cimport AccountTable
from congreve.broker.send.batch_body cimport is_ordinary_batch
from congreve.broker.delay.fast cimport PARK_COLD, PARK_QUEUE, DelayPath, ParkStatus
from congreve.broker.pull.fast cimport PullPath
from congreve.broker.send.properties cimport (
    SEND_BATCH,
    SEND_HALF,
    SEND_SINGLE,
    stored_properties,
)
from congreve.broker.fastpath.answer_buffer cimport (
    allocate_answers,
    grow_answers,
    has_room,
    put_send_answer,
    put_success,
    send_answer_room,
    set_id_host,
)
from congreve.broker.fastpath.arrivals cimport note_arrival
from congreve.broker.fastpath.packed_host cimport unpack_host
from congreve.broker.fastpath.send_message cimport fill_message
from congreve.broker.fastpath.topic_table cimport TopicTable
from congreve.broker.transaction.fast cimport (
    END_DONE,
    END_QUEUE,
    END_QUEUE_ROOM,
    END_SEGMENT,
    EndStatus,
    TransactionPath,
)
from congreve.engine.log.commit_log cimport (
    APPEND_NEXT_SEGMENT,
    APPEND_OK,
    APPEND_QUEUE_ROOM,
    AppendStatus,
)
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.layout cimport (
    PROPERTIES_MAX,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
)
from congreve.remoting.wire.answers cimport SEND_RESPONSE_MAX
from congreve.remoting.wire.frame cimport (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    FRAME_BAD,
    FRAME_PARTIAL,
    HEADER_OK,
    FrameStatus,
    next_frame,
)
from congreve.remoting.wire.header_decoder cimport HeaderDecoder
from congreve.remoting.wire.fast_headers cimport is_pull, is_send
from congreve.remoting.transport.frame_reader cimport FrameReader
from congreve.remoting.wire.slices cimport slice_of

from congreve.errors import CongreveError
from congreve.remoting.errors import FrameError

cdef enum:
    END_TRANSACTION = 37
    STEPS_A_TURN = 16               # requests for handlers and new files in one chunk
    PIECE = 64 * 1024               # bytes of requests that are served under one hold of the lock


@cython.final
cdef class FastPath(FrameSink):
    """Serves ordinary sends and pulls of a whole chunk; hands every other frame to the handlers.

    After each chunk it calls `arrived` with each queue that got an entry and is either watched by a
    waiting pull or holds parked messages. (RocketMQ: SendMessageProcessor, PullMessageProcessor.)
    """

    def __cinit__(self):
        self.headers = HeaderDecoder()
        self.put_times = PutTimes()
        allocate_answers(&self.answers)
        self.properties = <uint8_t *> PyMem_Malloc(2 * PROPERTIES_MAX)
        if self.properties == NULL:
            raise MemoryError()
        self.message.properties = self.properties

    def __dealloc__(self):
        PyMem_Free(self.answers.data)
        PyMem_Free(self.properties)

    def __init__(self, *, store, TopicTable topics, group_commit, arrived, PullPath pulls,
                 TransactionPath transactions, DelayPath delays, settings,
                 AccountTable accounts=None):
        self.accounts = accounts
        self.headers.keeps_fields = accounts is not None
        self.store = store
        self.log = store.log
        self.topics = topics
        self.transactions, self.delays = transactions, delays
        self.group_commit = group_commit
        self.arrived = arrived
        self.pulls = pulls
        self.sync_flush = settings.sync_flush
        self.max_message_size = settings.max_message_size
        self.constant_bytes = (settings.cluster, *settings.send_constants)
        self.cluster = slice_of(self.constant_bytes[0])
        self.answers.constants[0] = slice_of(self.constant_bytes[1])
        self.answers.constants[1] = slice_of(self.constant_bytes[2])
        self.set_store_host(settings.store_host)

    def set_store_host(self, bytes host):
        """Set the broker's address in records and ids: 4 or 16 bytes, then the port as i32."""
        unpack_host(&self.message.store_host, host)
        set_id_host(&self.answers, &self.message.store_host)
        self.transactions.set_store_host(host)

    # --- a chunk, with the GIL

    cdef Py_ssize_t take(self, FrameReader connection, const uint8_t *data,
                         Py_ssize_t available) except -1:
        cdef Stop stop
        cdef int steps = 0
        unpack_host(&self.message.born_host, connection.peer_bytes)
        self.accepting = self.store.writable
        self.begin_chunk()
        while not connection.reading_paused:
            with nogil:
                self.log.lock.take()
                stop = self.run(data, available)
                self.log.lock.drop()
                if stop == STOP_PIECE:
                    self.log.lock.let_others_in()
            if stop == STOP_DONE:
                break
            if stop == STOP_UNFRAMEABLE:
                self.finish(connection)
                begin = bytes(data[self.at:self.at + 8])
                raise FrameError(f"{connection.peer}: these bytes are not a frame: {begin!r}")
            self.resume(stop, connection)
            if stop not in (STOP_PULL, STOP_OUT, STOP_NOTIFY, STOP_PIECE):
                steps += 1
                if steps == STEPS_A_TURN:
                    connection.rest()
        self.finish(connection)
        return self.at

    cdef int resume(self, Stop stop, object connection) except -1:
        """Do the step that needs the GIL, so that run() can continue."""
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
            grow_answers(&self.answers, self.answer_room())
        elif stop == STOP_NOTIFY:
            self.notify_arrivals()
            self.at += size
        return 0

    cdef bint room_made(self, bint in_log) except -1:
        """Reserve disk space; false if that fails: then a Python handler fails with the reason."""
        try:
            with self.log.lock:
                if in_log:
                    self.log.next_segment()
                else:
                    (<ConsumeQueue> self.full_queue).make_room()
        except (CongreveError, MemoryError):
            return False
        return True

    cdef int answer_cold(self, object connection) except -1:
        cdef int32_t size = self.frame.size
        self.notify_arrivals()  # a handler may delete a topic with a queue of this list
        connection.on_frame(<bytes> self.frame.data[:self.frame.size])
        self.transactions.find_queues()
        self.at += size
        return 0

    def finish(self, connection):
        """Send the chunk's answers, and notify the index, the flush timer and waiting pulls."""
        cdef bint parks = self.sync_flush and self.appended_end and self.answers.used
        if self.answers.used:
            answers = self.answers.data[:self.answers.used]
            if parks:
                self.group_commit.send_when_durable(
                    connection, answers, self.appended_end, self.begun_ns, self.chunk_messages
                )
            else:
                connection.write(answers)
                self.put_times.add(self.begun_ns, self.chunk_messages)
        if self.appended_end:
            self.store.after_append(self.appended_end, flush=not parks)
        self.notify_arrivals()

    def notify_arrivals(self):
        """Call `arrived` for each queue that got an entry."""
        cdef int32_t i
        for i in range(self.arrivals.count):
            self.arrived(<ConsumeQueue> self.arrivals.queues[i].queue)
        self.arrivals.count = 0

    def open_queue(self):
        """Open the queue of the current send, which the topic table does not have yet."""
        topic = self.topic.name.bytes[:self.topic.name.length].decode()
        self.topics.set_queue(topic, self.store.queues.get(topic, self.send.queue_id))

    # --- a chunk, without the GIL

    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        cdef FrameStatus status
        cdef Stop stop
        cdef Py_ssize_t end = self.at + PIECE
        self.holds += 1
        self.now_ms = self.log.clock.now_ms()
        while self.at < end:
            status = next_frame(data + self.at, available - self.at, &self.frame)
            if status == FRAME_PARTIAL:
                return STOP_DONE
            if status == FRAME_BAD:
                return STOP_UNFRAMEABLE
            stop = self.serve_frame()
            if stop != STOP_NEXT_FRAME:
                return stop
            self.at += self.frame.size
        return STOP_PIECE

    cdef Stop serve_frame(self) noexcept nogil:
        if self.headers.decode(&self.frame, &self.header, &self.send) != HEADER_OK:
            self.header.code = UNKNOWN_CODE
            return STOP_COLD
        if self.header.flag & FLAG_RESPONSE:
            return STOP_COLD
        if self.accounts is not None and not self.accounts.may_pass(
                &self.header, &self.send, self.frame.body):
            return STOP_COLD
        if is_send(self.header.code):
            return self.serve_send()
        if is_pull(self.header.code):
            return STOP_PULL
        if self.header.code == END_TRANSACTION:
            return self.serve_end()
        return STOP_COLD

    cdef Stop serve_send(self) noexcept nogil:
        cdef Stop stop = STOP_NEXT_FRAME
        cdef bint delayed = False
        cdef void *queue
        if not self.is_ordinary_send():
            return STOP_COLD
        queue = self.topic.queues[self.send.queue_id]
        if queue == NULL:
            return STOP_QUEUE
        if not has_room(&self.answers, self.answer_room()):
            return STOP_OUT
        fill_message(&self.message, &self.send, self.frame.body, self.cluster, self.properties)
        if self.kind == SEND_HALF:
            self.transactions.make_half(&self.message)
            queue = <void *> self.transactions.half_queue
        elif self.wish.level.data != NULL or self.wish.time.data != NULL:
            stop = self.park()
            queue = self.delays.queue
            delayed = True
        if stop == STOP_NEXT_FRAME:
            stop = self.append(queue)
        if stop != STOP_NEXT_FRAME:
            return stop
        if not self.header.flag & FLAG_ONEWAY:
            put_send_answer(
                &self.answers, self.answer_room(), self.frame.serialize_type, self.header.opaque,
                self.send.queue_id, &self.appended,
                self.log.active.data - self.log.active.base_offset,
            )
        return STOP_NOTIFY if note_arrival(&self.arrivals, queue, delayed) else STOP_NEXT_FRAME

    cdef bint is_ordinary_send(self) noexcept nogil:
        """Whether the send is ordinary: no rule of the Python handlers applies.

        Finds its topic, and sets `kind`, `wish` and the properties of `message`.
        """
        cdef SendHeader *send = &self.send
        if not (send.complete and self.accepting) or self.log.backend.failure:
            return False
        if self.frame.body.length > self.max_message_size:
            return False
        self.kind = SEND_BATCH if send.batch else SEND_SINGLE
        if send.sys_flag & SYS_TRANSACTION_MASK:
            self.kind = SEND_HALF
            if not self.is_half():
                return False
        self.topic = self.topics.find(send.topic.data, send.topic.length)
        if self.topic == NULL or not 0 <= send.queue_id < self.topic.queue_count:
            return False
        if not stored_properties(
            &send.properties, self.kind, self.sync_flush, self.properties,
            &self.message.properties_length, &self.message.tags_code, &self.wish,
        ):
            return False
        return not send.batch or is_ordinary_batch(self.frame.body.data, self.frame.body.length)

    cdef bint is_half(self) noexcept nogil:
        """Whether a send with a transaction type is an ordinary half message."""
        return (
            self.send.sys_flag & SYS_TRANSACTION_MASK == SYS_TRANSACTION_PREPARED
            and not self.send.batch and self.transactions.takes_half_messages
            and self.transactions.half_queue is not None
        )

    cdef Stop park(self) noexcept nogil:
        """Turn the message into its parked form."""
        cdef ParkStatus status = self.delays.park(&self.message, &self.wish)
        if status == PARK_COLD:
            return STOP_COLD
        return STOP_PARK_QUEUE if status == PARK_QUEUE else STOP_NEXT_FRAME

    cdef Stop append(self, void *queue) noexcept nogil:
        """Append the message, or the batch, to the log and the queue, and count it."""
        cdef AppendStatus status
        if self.send.batch:
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
            self.full_topic, self.full_queue_id = self.send.topic, self.send.queue_id
            return STOP_QUEUE_ROOM
        if status != APPEND_OK:
            return STOP_COLD
        self.appended_end = self.appended.end
        self.put_messages += self.appended.count
        self.chunk_messages += self.appended.count
        self.put_batches += self.send.batch
        self.put_bytes += self.appended.end - self.appended.physical_offset
        return STOP_NEXT_FRAME

    cdef Stop serve_end(self) noexcept nogil:
        cdef EndStatus status
        cdef void *queue
        if not (self.accepting and self.transactions.ends_transactions):
            return STOP_COLD
        if self.log.backend.failure:
            return STOP_COLD
        if not has_room(&self.answers, SEND_RESPONSE_MAX):
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
            self.full_queue, self.full_topic = queue, self.transactions.target()
            self.full_queue_id = self.transactions.queue_id
            return STOP_QUEUE_ROOM
        if status != END_DONE:
            return STOP_COLD
        self.appended_end = self.appended.end
        if not self.header.flag & FLAG_ONEWAY:
            put_success(&self.answers, self.frame.serialize_type, self.header.opaque)
        if queue != NULL and note_arrival(&self.arrivals, queue, False):
            return STOP_NOTIFY
        return STOP_NEXT_FRAME

    cdef Py_ssize_t answer_room(self) noexcept nogil:
        """The largest size in bytes of the answer to the current send."""
        return send_answer_room(&self.answers, self.frame.body.length, self.send.batch)
