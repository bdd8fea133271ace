"""Pulls in a lane, without the GIL: a lane answers a pull from memory or lets it wait for messages.

All other pulls go to the event loop, which serves them like those of its own connections. A pull
that has waited also goes there when its time is over or its checks may have another result.
"""

cimport cython
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from congreve.base.byte_buffer cimport make_room, release
from congreve.base.clock cimport monotonic_ns
from congreve.base.slices cimport Slice
from congreve.broker.figures.put_times cimport (
    RPC_PULL,
    RPC_WAITED_PULL,
    Answered,
    clear_answered,
)
from congreve.broker.pull.lanes.polling cimport LanePolling, WaitingPull, free_pull
from congreve.broker.pull.suspended_pull cimport may_wait, put_found_head
from congreve.broker.pull.validated_pull cimport (
    COMMIT_OFFSET,
    SUSPEND,
    ValidatedPull,
    ValidatedPulls,
)
from congreve.broker.quotas.charged cimport charged_to
from congreve.broker.quotas.quota_table cimport PULLS, has_quotas
from congreve.engine.format cimport CQ_ENTRY
from congreve.engine.log.watch cimport watch_queue
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_files cimport Mapping
from congreve.engine.read.gather cimport (
    GET_FOUND,
    GET_NO_MATCHED_MESSAGE,
    FilePart,
    Gather,
)
from congreve.remoting.transport.zero_copy cimport send_file, send_head
from congreve.remoting.wire.answers cimport (
    PULL_REMARK_MAX,
    PULL_RESPONSE_MAX,
    encode_response,
)
from congreve.remoting.wire.fast_headers cimport read_pull_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY, next_frame
from congreve.remoting.wire.header_decoder cimport HeaderDecoder

from congreve.base.errors import CongreveError

cdef enum:
    ROOM = PULL_RESPONSE_MAX + PULL_REMARK_MAX
    FLUSH_BYTES = 32 * 1024   # of answers, after which they are sent
    FROM_FILE_MIN = 16 * 1024   # bytes of an answer that are cheaper to send from the log's file
    KEPT_BYTES = 1024 * 1024    # at most, of the answers' buffer between two chunks
    AT_ONCE = 64                # pulls that one turn of the lane checks
    RETRY_MS = 100              # until the next try, when the peer or the loop accepts no more
    STOPPING = 14               # SERVICE_NOT_AVAILABLE

# The work of a filter (FilterMemory.work) in one pull, after which the loop serves such pulls: a
# lane has the sends of many connections to answer.
cdef int64_t FILTER_WORK_MAX = 200_000


@cython.final
cdef class LanePulls:
    """Answers ordinary pulls in a lane's thread; PullMessageProcessor has the rules.

    `watcher` is the lane's bit among the watchers of a queue (engine/log/watch.pyx). Entries of
    kind `ended_kind` bring the loop pulls that it must answer now, with any result. Waiting pulls
    take at most `waiting_bytes_max`.
    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(self, store, ValidatedPulls validated_pulls not None, QuotaTable quotas not None,
                 *, uint64_t watcher, int32_t ended_kind, int64_t waiting_bytes_max):
        # A mapping that a pull keeps outlives the budget of its queue.
        self.table = LanePullTable(validated_pulls, max(store.queues.writable.limit // 8, 1))
        self.gather = Gather(store.log, store.limits, memory_only=True)
        self.polling = LanePolling(quotas, waiting_bytes_max)
        self.headers = HeaderDecoder()
        self.quotas, self.watcher, self.ended_kind = quotas, watcher, ended_kind

    def __dealloc__(self):
        release(&self.answers)

    cdef bint serve(self, Lane lane, LaneConnection *connection, const Frame *frame,
                    const Header *header) noexcept nogil:
        cdef LanePull *known
        cdef int64_t wait_ns = 0
        read_pull_header(header, &self.pull)
        if not self.pull.complete or header.flag & FLAG_ONEWAY:
            return False
        known = self.table.find(&self.pull)
        if known == NULL:
            return False
        self.meter(connection, header)
        if self.metered:
            wait_ns = self.quotas.take(&self.charged, PULLS, 0, 0, monotonic_ns())
            if wait_ns:
                return self.postpone(lane, connection, frame, header, known, wait_ns)
        if not self.scan(known):
            return False
        if self.gather.status != GET_FOUND and not (
            self.pull.sys_flag & SUSPEND and not self.stopping
            and may_wait(self.gather.status, self.pull.queue_offset)
        ):
            return False
        if self.pull.sys_flag & COMMIT_OFFSET:
            self.table.commit(known, self.pull.commit_offset)   # before the client gets the answer
        if self.gather.status == GET_FOUND:
            self.answered_now += 1
            return self.answer(lane, connection, known, frame.serialize_type, header.opaque)
        return self.hold(lane, connection, frame, header, known)

    cdef bint answer(self, Lane lane, LaneConnection *connection, LanePull *known,
                     int32_t serialize_type, int32_t opaque) noexcept nogil:
        """Answer with the messages found; False without memory."""
        cdef FilePart part
        part.descriptor = -1
        if (
            self.gather.span_count == 1
            and self.gather.size >= FROM_FILE_MIN
            and connection.session == NULL      # the kernel cannot encrypt the log's pages
        ):
            self.flush(lane, connection)
            part = self.gather.file_part()
        if part.descriptor >= 0 and connection.fd >= 0 and not connection.unsent:
            self.count(known)
            self.send_from_file(lane, connection, serialize_type, opaque, part)
            return True
        if not make_room(&self.answers, self.answers.used + ROOM + self.gather.size):
            return False
        self.count(known)
        self.put_found(serialize_type, opaque)
        if self.answers.used >= FLUSH_BYTES:
            self.flush(lane, connection)
        return True

    cdef void count(self, LanePull *known) noexcept nogil:
        self.answered += 1
        (<ValidatedPull> known.validated).counter.add(self.gather.count, self.gather.size)
        if self.metered:
            self.quotas.charge(&self.charged, PULLS, self.gather.count, self.gather.size,
                               monotonic_ns())

    cdef void meter(self, LaneConnection *connection, const Header *header) noexcept nogil:
        self.metered = has_quotas(self.quotas)
        if self.metered:
            self.charged = charged_to(
                self.quotas, header, self.pull.topic, self.pull.consumer_group,
                connection.address, connection.address_length,
            )

    cdef bint postpone(self, Lane lane, LaneConnection *connection, const Frame *frame,
                       const Header *header, LanePull *known, int64_t wait_ns) noexcept nogil:
        cdef WaitingPull *waiting
        if not self.pull.sys_flag & SUSPEND or self.stopping:
            return False
        waiting = self.polling.add(
            connection, frame, header, lane.now_ms,
            min(wait_ns // 1_000_000 + 1, self.pull.suspend_timeout_ms), &self.charged,
        )
        if waiting == NULL:
            return False
        self.polling.wait(waiting, NULL)    # no queue wakes it: the loop gets it in time
        if self.pull.sys_flag & COMMIT_OFFSET:
            self.table.commit(known, self.pull.commit_offset)
        return True

    cdef bint scan(self, LanePull *known) noexcept nogil:
        """Look for messages of the current pull; False if that fails."""
        cdef bint looked = self.gather.look_mapped(
            (<ValidatedPull> known.validated).queue, known.file, known.base,
            self.pull.queue_offset, max(self.pull.max_count, 1),
            (<ValidatedPull> known.validated).tags, (<ValidatedPull> known.validated).records,
        ) or self.look_with_gil(known)
        if self.gather.filter_memory.work > FILTER_WORK_MAX:
            known.costly = True
        return looked

    cdef bint look_with_gil(self, LanePull *known) noexcept with gil:
        cdef ValidatedPull validated = <ValidatedPull> known.validated
        try:
            self.gather.look(validated.queue, self.pull.queue_offset, max(self.pull.max_count, 1),
                             validated.tags, validated.records)
            self.map_file(known)
        except (CongreveError, MemoryError):
            return False
        return True

    cdef int map_file(self, LanePull *known) except -1:
        """Map the queue's file that the next look needs."""
        cdef ConsumeQueue queue = (<ValidatedPull> known.validated).queue
        cdef int64_t position = self.gather.next_offset * CQ_ENTRY
        cdef int64_t base = position - position % queue.file_size
        cdef Mapping mapping = queue.mapping_at(base)
        if mapping is None:
            return self.table.drop_file(known)
        return self.table.keep_file(known, mapping, base)

    cdef void put_found(self, int32_t serialize_type, int32_t opaque) noexcept nogil:
        """Append the answer to the buffer, which has room."""
        cdef uint8_t *at = self.answers.data + self.answers.used
        cdef Py_ssize_t length = put_found_head(at, self.gather, serialize_type, opaque)
        self.gather.copy_to(<char *> at + length)
        self.answers.used += length + self.gather.size

    cdef void send_from_file(self, Lane lane, LaneConnection *connection, int32_t serialize_type,
                             int32_t opaque, FilePart part) noexcept nogil:
        """Let the kernel send the log's pages, and keep the bytes that it does not accept."""
        cdef uint8_t[ROOM] head
        cdef Py_ssize_t length = put_found_head(head, self.gather, serialize_type, opaque)
        cdef int64_t head_taken = send_head(connection.fd, head, length)
        cdef int64_t taken = 0
        connection.active_ms = lane.now_ms
        if head_taken == length:
            taken = send_file(connection.fd, part.descriptor, part.offset, self.gather.size)
        if head_taken < 0 or taken < 0:
            lane.close(connection, errno)
            return
        if head_taken < length:
            lane.put(connection, head + head_taken, length - head_taken)
        if taken < self.gather.size and connection.fd >= 0:
            lane.put(connection, self.gather.spans[0].data + taken, self.gather.size - taken)

    cdef void flush(self, Lane lane, LaneConnection *connection) noexcept nogil:
        if not self.answers.used:
            return
        lane.put(connection, self.answers.data, self.answers.used)
        self.answers.used = 0
        if self.answers.size > KEPT_BYTES:
            release(&self.answers)

    cdef void count_answers(self, LaneConnection *connection, const Stages *stages) noexcept nogil:
        cdef Answered answered
        cdef int64_t now
        if not self.answered_now:
            return
        clear_answered(&answered)
        answered.requests[<int> RPC_PULL] = self.answered_now
        self.answered_now = 0
        now = monotonic_ns()
        if self.times.add(stages, &answered, now):
            self.times.note_slow(stages, &answered, now, connection.address,
                                 connection.address_length, connection.port)

    # Pulls that wait.

    cdef bint hold(self, Lane lane, LaneConnection *connection, const Frame *frame,
                   const Header *header, LanePull *known) noexcept nogil:
        cdef WaitingPull *waiting = self.polling.add(
            connection, frame, header, lane.now_ms, self.pull.suspend_timeout_ms,
            &self.charged if self.metered else NULL,
        )
        if waiting == NULL:
            return False
        waiting.offset = self.pull.queue_offset
        self.wait(waiting, known)
        return True

    cdef void wait(self, WaitingPull *waiting, LanePull *known) noexcept nogil:
        """Let the pull wait for an entry after those that the last look saw."""
        cdef int64_t end = watch_queue(
            self.gather.log.lock, (<ValidatedPull> known.validated).queue, self.watcher
        )
        self.polling.wait(waiting, <void *> (<ValidatedPull> known.validated).queue)
        if end != self.gather.stored_end:
            self.polling.check_soon(waiting)
        elif end != self.gather.max_offset:
            self.polling.wait_hidden(waiting, waiting.queue)

    cdef int turn_ended(self, Lane lane) noexcept nogil:
        cdef int _
        self.polling.turn(lane.now_ms)
        for _ in range(AT_ONCE):
            if self.polling.next() == NULL:
                break
            self.serve_due(lane, self.polling.next())
        if self.gather.segments is not None and self.gather.is_behind():
            self.release_segments()
        return self.polling.sleep_ms(lane.now_ms)

    cdef void serve_due(self, Lane lane, WaitingPull *waiting) noexcept nogil:
        """Answer a pull that waited, let it wait again, or give it to the loop."""
        cdef LaneConnection *connection = lane.table.find(waiting.connection)
        if not connection.peer_slow:
            if waiting.deadline_ms > lane.now_ms and self.serve_again(lane, connection, waiting):
                return
            if lane.to_loop.post(self.ended_kind, connection.id, waiting.frame, waiting.size,
                                 <int32_t> (lane.now_ms - waiting.begun_ms), False):
                self.polling.take_out(waiting)
                free_pull(waiting)
                return
        self.polling.wait(waiting, waiting.queue)
        self.polling.check_at(waiting, lane.now_ms + RETRY_MS)

    cdef bint serve_again(self, Lane lane, LaneConnection *connection,
                          WaitingPull *waiting) noexcept nogil:
        """Answer the pull, or let it wait again; False if the loop must answer it."""
        cdef Frame frame
        cdef Header header
        cdef LanePull *known
        next_frame(waiting.frame, waiting.size, &frame)
        self.headers.decode(&frame, &header, NULL)
        read_pull_header(&header, &self.pull)
        self.pull.queue_offset = waiting.offset
        known = self.table.find(&self.pull)
        self.meter(connection, &header)
        if known == NULL or not self.scan(known):
            return False
        if (
            self.gather.status == GET_NO_MATCHED_MESSAGE
            and self.gather.next_offset >= self.gather.max_offset
        ):
            waiting.offset = self.gather.next_offset
        elif self.gather.status == GET_FOUND:
            self.polling.take_out(waiting)  # the answer may close the connection
            if not self.answer(lane, connection, known, frame.serialize_type, header.opaque):
                lane.close(connection, ENOMEM)
            self.flush(lane, connection)
            self.times.add_requests(
                <int> RPC_WAITED_PULL, (lane.now_ms - waiting.begun_ms) * 1_000_000, 1
            )
            free_pull(waiting)
            return True
        elif not may_wait(self.gather.status, waiting.offset):
            return False
        self.polling.check_at(waiting, waiting.deadline_ms)
        self.wait(waiting, known)
        return True

    cdef void end_all(self) noexcept nogil:
        """Give all waiting pulls to the loop, which checks them again."""
        self.polling.expire_all()

    cdef void dismiss(self, Lane lane, const uint8_t *remark, int64_t length) noexcept nogil:
        cdef uint8_t[PULL_RESPONSE_MAX] answer
        cdef Frame frame
        cdef Header header
        cdef Slice text
        cdef LaneConnection *connection
        cdef WaitingPull *waiting
        text.data, text.length = remark, <int32_t> length
        self.stopping = True
        self.polling.all_soon()
        while self.polling.next() != NULL:
            waiting = self.polling.next()
            connection = lane.table.find(waiting.connection)
            next_frame(waiting.frame, waiting.size, &frame)
            self.headers.decode(&frame, &header, NULL)
            self.polling.take_out(waiting)
            free_pull(waiting)
            lane.put(connection, answer, encode_response(
                answer, frame.serialize_type, header.opaque, STOPPING, text
            ))

    cdef void release_segments(self) noexcept with gil:
        # A deleted segment keeps its disk space while something maps it.
        self.gather.segments = None
