"""Sends and pulls of ordinary messages, a chunk of bytes at a time.

`FastPath` takes the frames of a connection's chunk. `run()` decodes them without the GIL and
without a Python object for each. `broker/send/fast` appends and answers ordinary sends,
`broker/pull/fast` answers pulls from the consume queue or lets them wait, `broker/transaction/fast`
stores and ends half messages, `broker/delay/fast` parks delayed messages. Every other frame goes to
the Python handlers, which have all rules, including those of this module.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.accounts.account_table cimport AccountTable
from congreve.broker.delay.fast cimport DelayPath
from congreve.broker.fastpath.answer_buffer cimport grow_answers, has_room, put_success
from congreve.broker.fastpath.arrivals cimport note_arrival
from congreve.broker.fastpath.stops cimport (
    STOP_ALONE,
    STOP_PYTHON,
    STOP_DONE,
    STOP_FULL,
    STOP_NEXT_FRAME,
    STOP_NOTIFY,
    STOP_ANSWER_BUFFER,
    STOP_PARK_QUEUE,
    STOP_PULL,
    STOP_QUEUE,
    STOP_QUEUE_ROOM,
    STOP_SEGMENT,
    STOP_UNFRAMEABLE,
)
from congreve.broker.fastpath.topic_table cimport TopicTable
from congreve.broker.figures.message_counts cimport TopicCounts
from congreve.broker.figures.put_times cimport RPC_END, RPC_PULL, Answered, clear_answered
from congreve.broker.pull.fast cimport PullPath
from congreve.broker.quotas.send_quota cimport REST_MS, SendQuota
from congreve.broker.send.fast cimport SendPath
from congreve.broker.send.prepared cimport clear_prepared
from congreve.broker.transaction.fast cimport (
    END_DONE,
    END_QUEUE,
    END_QUEUE_ROOM,
    END_SEGMENT,
    EndStatus,
    TransactionPath,
)
from congreve.engine.log.commit_log cimport Appended
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.host cimport Host
from congreve.records.packed_host cimport unpack_host
from congreve.remoting.transport.frame_reader cimport FrameReader
from congreve.remoting.wire.answers cimport SEND_RESPONSE_MAX
from congreve.remoting.wire.fast_headers cimport is_pull, is_send
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

from congreve.base.errors import CongreveError
from congreve.remoting.errors import FrameError

cdef enum:
    END_TRANSACTION = 37
    STEPS_A_TURN = 16               # requests for handlers and new files in one chunk
    PIECE = 64 * 1024               # bytes of requests that are appended under one hold of the lock


@cython.final
cdef class FastPath(FrameSink):
    """Serves ordinary sends and pulls of a whole chunk; hands every other frame to the handlers.

    After each chunk it calls `arrived` with each queue that got an entry and is either watched by a
    waiting pull or holds parked messages. (RocketMQ: SendMessageProcessor, PullMessageProcessor.)
    """

    def __cinit__(self):
        self.headers = HeaderDecoder()
        self.put_times = PutTimes()

    def __init__(self, *, store, TopicTable topics, arrived, PullPath pulls,
                 TransactionPath transactions, DelayPath delays, settings,
                 SendQuota quota not None, AccountTable accounts=None):
        self.accounts = accounts
        self.headers.keeps_fields = accounts is not None
        self.store = store
        self.log = store.log
        self.topics = topics
        self.transactions, self.delays = transactions, delays
        self.sends = SendPath(
            self.log, topics, transactions=transactions, delays=delays, settings=settings,
            quota=quota,
        )
        self.arrived = arrived
        self.pulls = pulls
        self.answers_wait = settings.answers_wait
        self.set_store_host(settings.store_host)

    def set_store_host(self, bytes host):
        """Set the broker's address in records and ids: 4 or 16 bytes, then the port as i32."""
        self.sends.set_store_host(host)
        self.transactions.set_store_host(host)

    # --- a chunk, with the GIL

    cdef Py_ssize_t take(self, FrameReader connection, const uint8_t *data,
                         Py_ssize_t available) except -1:
        cdef Stop stop
        cdef int steps = 0
        unpack_host(&self.sends.born_host, connection.peer_bytes)
        self.sends.accepting = False    # lanes pass on only what handlers have to serve
        self.begin_chunk()
        while not connection.reading_paused:
            with nogil:
                stop = self.run(data, available)
            if stop == STOP_DONE:
                break
            if stop == STOP_UNFRAMEABLE:
                self.finish(connection)
                begin = bytes(data[self.at:self.at + 8])
                raise FrameError(f"{connection.peer}: these bytes are not a frame: {begin!r}")
            self.resume(stop, connection)
            if stop not in (STOP_PULL, STOP_ANSWER_BUFFER, STOP_NOTIFY):
                steps += 1
                if steps == STEPS_A_TURN:
                    connection.rest()
        self.finish(connection)
        return self.at

    cdef int resume(self, Stop stop, object connection) except -1:
        """Do the step that needs the GIL, so that run() can continue."""
        cdef int32_t size = self.frame.size
        if stop == STOP_PYTHON:
            self.answer_by_handler(connection)
        elif stop == STOP_PULL:
            if self.pulls.serve(connection, &self.frame, &self.header):
                self.at += size
                if self.pulls.answered:
                    self.count_pull(connection)
            else:
                self.answer_by_handler(connection)
        elif stop == STOP_NOTIFY:
            self.notify_arrivals()
            self.at += size
        elif not self.room_made(stop):
            self.answer_by_handler(connection)
        return 0

    cdef bint room_made(self, Stop stop) except -1:
        """Make room for the current send, in memory or in files.

        False if no disk space can be reserved, when a Python handler fails with the reason, or if
        the queue has no file: a handler waits for a thread that makes it.
        """
        cdef int64_t before = monotonic_ns()
        if stop == STOP_QUEUE:
            return self.open_queue()
        elif stop == STOP_PARK_QUEUE:
            self.delays.open_queue()
        elif stop == STOP_ANSWER_BUFFER:
            grow_answers(&self.sends.answers, self.sends.wanted_bytes)
        else:
            if stop == STOP_QUEUE_ROOM:
                full = <ConsumeQueue> self.sends.full_queue
                if self.store.first_files.is_missing(full.topic, full.queue_id):
                    return False
            try:
                with self.log.lock:
                    if stop == STOP_SEGMENT:
                        self.log.next_segment()
                    else:
                        (<ConsumeQueue> self.sends.full_queue).make_room()
            except (CongreveError, MemoryError):
                return False
        self.stages.files += monotonic_ns() - before
        return True

    cdef int count_pull(self, object connection) except -1:
        cdef Answered answered
        cdef Host peer
        cdef int64_t now = monotonic_ns()
        clear_answered(&answered)
        answered.requests[<int> RPC_PULL] = 1
        if self.put_times.add(&self.stages, &answered, now):
            unpack_host(&peer, connection.peer_bytes)
            self.put_times.note_slow(&self.stages, &answered, now, peer.address, peer.length,
                                     peer.port)
        return 0

    cdef int answer_by_handler(self, object connection) except -1:
        cdef int32_t size = self.frame.size
        self.sends.cancel_charge(&self.frame, &self.header, &self.send)
        self.notify_arrivals()  # a handler may delete a topic with a queue of this list
        connection.on_frame(<bytes> self.frame.data[:self.frame.size])
        self.transactions.find_queues()
        self.at += size
        return 0

    def finish(self, connection):
        """Send the chunk's answers, and notify the index, the flush timer and waiting pulls."""
        cdef SendPath sends = self.sends
        cdef int64_t now
        if sends.answers.used:
            connection.write(sends.answers.data[:sends.answers.used])
            now = monotonic_ns()
            if self.put_times.add(&self.stages, &sends.answered, now):
                self.put_times.note_slow(
                    &self.stages, &sends.answered, now, sends.born_host.address,
                    sends.born_host.length, sends.born_host.port,
                )
        self.notify_arrivals()
        if sends.quota.limited:
            connection.rest_for(REST_MS / 1e3)

    def notify_arrivals(self):
        """Call `arrived` for each queue that got an entry."""
        cdef int32_t i
        for i in range(self.sends.arrivals.count):
            self.arrived(<ConsumeQueue> self.sends.arrivals.queues[i].queue)
        self.sends.arrivals.count = 0

    def open_queue(self):
        """Open the queue of the current send, which the topic table does not have yet.

        False if a handler must wait for its file.
        """
        topic = self.sends.topic.name.bytes[:self.sends.topic.name.length].decode()
        if self.store.first_files.is_missing(topic, self.send.queue_id):
            return False
        self.topics.set_queue(topic, self.store.queues.get(topic, self.send.queue_id))
        return True

    # --- a chunk, without the GIL

    cdef Stop run(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        cdef Stop stop, appended
        while True:
            stop = self.prepare(data, available)
            if self.sends.prepared.count:
                appended = self.sends.append_prepared(&self.at)
                if appended != STOP_NEXT_FRAME:
                    self.decode_again(data, available)
                    return appended
                if stop == STOP_DONE or stop == STOP_UNFRAMEABLE:
                    return stop
            elif stop == STOP_ALONE:
                stop = self.serve_alone()
                if stop != STOP_NEXT_FRAME:
                    return stop
                self.at += self.frame.size
            else:
                return stop
            self.log.lock.let_others_in()

    cdef Stop prepare(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        """Prepare sends up to PIECE bytes, or up to a frame that is something else."""
        cdef Stop stop
        if self.accounts is None:
            return self.prepare_piece(data, available)
        self.accounts.begin_checks()
        stop = self.prepare_piece(data, available)
        self.accounts.end_checks()
        return stop

    cdef Stop prepare_piece(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        cdef Py_ssize_t at = self.at
        cdef FrameStatus status
        cdef Stop stop
        clear_prepared(&self.sends.prepared)
        while at - self.at < PIECE:
            status = next_frame(data + at, available - at, &self.frame)
            if status == FRAME_PARTIAL:
                return STOP_DONE
            if status == FRAME_BAD:
                return STOP_UNFRAMEABLE
            stop = self.prepare_frame()
            if stop != STOP_NEXT_FRAME:
                return stop
            at += self.frame.size
        return STOP_FULL

    cdef void decode_again(self, const uint8_t *data, Py_ssize_t available) noexcept nogil:
        """Decode the frame at `at`, after others behind it were prepared."""
        next_frame(data + self.at, available - self.at, &self.frame)
        self.headers.decode(&self.frame, &self.header, &self.send)

    cdef Stop prepare_frame(self) noexcept nogil:
        if self.headers.decode(&self.frame, &self.header, &self.send) != HEADER_OK:
            self.header.code = UNKNOWN_CODE
            return STOP_PYTHON
        if self.header.flag & FLAG_RESPONSE or not self.is_permitted():
            return STOP_PYTHON
        if is_send(self.header.code):
            return self.sends.prepare(&self.frame, &self.header, &self.send)
        if is_pull(self.header.code):
            return STOP_PULL
        return STOP_ALONE if self.header.code == END_TRANSACTION else STOP_PYTHON

    cdef bint is_permitted(self) noexcept nogil:
        return self.accounts is None or self.accounts.may_pass(
            &self.header, &self.send, self.frame.body, self.headers.signed
        )

    cdef Stop serve_alone(self) noexcept nogil:
        cdef Stop stop
        self.sends.take_lock()
        if self.header.code == END_TRANSACTION:
            stop = self.serve_end()
        else:
            stop = self.sends.append_parked()
        self.log.lock.drop()
        if self.header.code == END_TRANSACTION and (
            stop == STOP_NEXT_FRAME or stop == STOP_NOTIFY
        ):
            self.sends.quota.charge_end(&self.header, &self.sends.born_host)
        return stop

    cdef Stop serve_end(self) noexcept nogil:
        cdef Appended appended
        cdef EndStatus status
        cdef void *queue
        if not (self.sends.accepting and self.transactions.ends_transactions):
            return STOP_PYTHON
        if self.log.backend.failure:
            return STOP_PYTHON
        if not has_room(&self.sends.answers, SEND_RESPONSE_MAX):
            self.sends.wanted_bytes = SEND_RESPONSE_MAX
            return STOP_ANSWER_BUFFER
        status = self.transactions.end(&self.header, &appended)
        queue = self.transactions.queue
        if status == END_SEGMENT:
            return STOP_SEGMENT
        if status == END_QUEUE:
            self.sends.topic = self.transactions.topic
            self.send.queue_id = self.transactions.queue_id
            return STOP_QUEUE
        if status == END_QUEUE_ROOM:
            self.sends.full_queue, self.sends.full_topic = queue, self.transactions.target()
            self.sends.full_queue_id = self.transactions.queue_id
            return STOP_QUEUE_ROOM
        if status != END_DONE:
            return STOP_PYTHON
        self.sends.appended_end = appended.end
        if queue == NULL:
            (<TopicCounts> self.transactions.topic.counts).add_rollback()
        else:
            (<TopicCounts> self.transactions.topic.counts).add_commit(
                self.transactions.age_ms() // 1000
            )
        if not self.header.flag & FLAG_ONEWAY:
            self.sends.count_request(<int> RPC_END)
            put_success(&self.sends.answers, self.frame.serialize_type, self.header.opaque)
        if queue != NULL and note_arrival(&self.sends.arrivals, queue, False):
            return STOP_NOTIFY
        return STOP_NEXT_FRAME
