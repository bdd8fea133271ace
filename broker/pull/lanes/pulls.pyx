"""Pulls in a lane, without the GIL: a lane answers a pull from memory or lets it wait for messages.

The event loop validates a pull of a new kind and gives it back (serve_again). It also gets pulls
whose messages have to be read or repaired, gives them back when that is done, and answers all
others, with any result: those whose time is over, whose offset is not in the queue, or whose checks
may have another result now. (RocketMQ: PullMessageProcessor, PullRequestHoldService.)
"""

cimport cython
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from congreve.base.atomic cimport load_acquire
from congreve.base.byte_buffer cimport make_room, release
from congreve.base.clock cimport monotonic_ns
from congreve.base.slices cimport Slice
from congreve.broker.figures.put_times cimport (
    RPC_PULL,
    RPC_WAITED_PULL,
    Answered,
    begin_stages,
    clear_answered,
)
from congreve.broker.pull.lanes.polling cimport (
    COMMITTED,
    MAY_WAIT,
    METERED,
    MUST_END,
    POLLED,
    LanePolling,
    WaitingPull,
    free_pull,
)
from congreve.broker.pull.lanes.pull_plan cimport (
    COMMIT_OFFSET,
    SUSPEND,
    PullPlan,
    PullPlans,
)
from congreve.broker.quotas.charged cimport charged_to
from congreve.broker.quotas.quota_table cimport PULLS, has_quotas
from congreve.broker.quotas.send_quota cimport busy_remark
from congreve.engine.format cimport CQ_ENTRY
from congreve.engine.log.watch cimport watch_queue
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.queue_files cimport Mapping
from congreve.engine.read.gather cimport (
    GET_COLD,
    GET_DAMAGED,
    GET_FOUND,
    GET_NO_MATCHED_MESSAGE,
    GET_NO_MESSAGE_IN_QUEUE,
    GET_OFFSET_OVERFLOW_ONE,
    FilePart,
    Gather,
)
from congreve.remoting.transport.zero_copy cimport send_file, send_head
from congreve.remoting.wire.answers cimport (
    PULL_REMARK_MAX,
    PULL_RESPONSE_MAX,
    encode_pull_response,
    encode_response,
)
from congreve.remoting.wire.fast_headers cimport read_pull_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY, HEADER_OK, next_frame
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
    FLOW_CONTROL = 215
    FLAG_BITS = 5               # of PullFlag; the time that an ended pull has waited is above them
    WAITED_MS_MAX = 1 << 25
    COSTLY_ENTRIES = 32         # at most, that a lane reads for a filter that took long once

SERVE_AGAIN_KIND = SERVE_AGAIN
"""For a lane: a pull that it can serve now, behind its progress."""


cdef inline bint may_wait(int status, int64_t offset) noexcept nogil:
    """Whether a pull at `offset` that got this status may wait for a message."""
    return status == GET_OFFSET_OVERFLOW_ONE or (status == GET_NO_MESSAGE_IN_QUEUE and offset == 0)


cdef Py_ssize_t put_found_head(uint8_t *at, Gather gather, int32_t serialize_type,
                               int32_t opaque) noexcept nogil:
    """Write the head of the answer with what `gather` holds, at most ROOM bytes."""
    cdef Slice remark
    remark.data = b"FOUND"
    remark.length = 5
    return encode_pull_response(
        at, serialize_type, opaque, 0, remark, 0,
        gather.next_offset, gather.min_offset, gather.max_offset, <int32_t> gather.size,
    )


# The work of a filter (FilterMemory.work) in one pull, after which the loop reads many entries: a
# lane has the sends of many connections to answer.
cdef int64_t FILTER_WORK_MAX = 200_000


@cython.final
cdef class LanePulls:
    """Answers ordinary pulls in a lane's thread; PullMessageProcessor has the rules.

    `watcher` is the lane's bit among the watchers of a queue (engine/log/watch.pyx). Entries of
    kind `ended_kind` bring the loop pulls that it must answer now, with any result; their number
    has PullFlags and, above FLAG_BITS, the ms that the pull has waited. Those of kind
    `unreadable_kind` bring it pulls that wait for the disk, behind their PullProgress. Waiting
    pulls take at most `waiting_bytes_max`.
    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(self, store, PullPlans plans not None, QuotaTable quotas not None,
                 *, uint64_t watcher, int32_t ended_kind, int32_t unreadable_kind,
                 int64_t waiting_bytes_max):
        # A mapping that a pull keeps outlives the budget of its queue.
        self.table = LanePullTable(plans, max(store.queues.writable.limit // 8, 1))
        self.gather = Gather(store.log, store.limits, memory_only=True)
        self.polling = LanePolling(quotas, waiting_bytes_max)
        self.headers = HeaderDecoder()
        self.quotas, self.watcher = quotas, watcher
        self.ended_kind, self.unreadable_kind = ended_kind, unreadable_kind

    def __dealloc__(self):
        release(&self.answers)

    cdef bint serve(self, Lane lane, LaneConnection *connection, const Frame *frame,
                    const Header *header) noexcept nogil:
        cdef LanePull *known
        cdef WaitingPull *waiting
        cdef PullProgress progress
        cdef Outcome outcome
        cdef int64_t wait_ns
        read_pull_header(header, &self.pull)
        if not self.pull.complete or header.flag & FLAG_ONEWAY:
            return False
        known = self.table.find(&self.pull)
        if known == NULL:
            return False
        progress.offset, progress.begun_ms = self.pull.queue_offset, lane.now_ms
        progress.place, progress.status = -1, 0
        progress.flags = METERED | (MAY_WAIT if self.pull.sys_flag & SUSPEND else 0)
        self.meter(connection, header)
        wait_ns = self.quota_wait()
        outcome = ENDS if wait_ns else self.look(known, &progress)
        if outcome == FOUND:
            self.commit(known, &progress)
            self.answered_now += 1
            return self.answer(lane, connection, known, frame.serialize_type, header.opaque)
        waiting = self.polling.add(
            connection, frame, header, &progress, lane.now_ms, self.timeout_ms(known)
        )
        if waiting == NULL:
            return lane.to_loop.post(self.ended_kind, connection.id, frame.data, frame.size,
                                     progress.flags, False)
        if wait_ns:
            self.postpone(lane, connection, waiting, known, wait_ns)
        else:
            self.go_on(lane, connection, waiting, known, outcome)
        return True

    cdef void serve_again(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                          int64_t size) noexcept nogil:
        cdef Frame frame
        cdef Header header
        cdef PullProgress progress
        cdef WaitingPull *waiting = NULL
        memcpy(&progress, data, sizeof(PullProgress))
        data += sizeof(PullProgress)
        size -= <int64_t> sizeof(PullProgress)
        next_frame(data, size, &frame)
        if self.headers.decode(&frame, &header, NULL) == HEADER_OK:
            read_pull_header(&header, &self.pull)
            if progress.offset < 0:
                progress.offset = self.pull.queue_offset
            if not self.pull.sys_flag & SUSPEND:
                progress.flags &= ~MAY_WAIT
            waiting = self.polling.add(connection, &frame, &header, &progress, lane.now_ms, 0)
        if waiting == NULL:
            lane.to_loop.post(self.ended_kind, connection.id, data, size, progress.flags, True)
        else:
            self.serve_due(lane, waiting)

    cdef Outcome look(self, LanePull *known, PullProgress *progress) noexcept nogil:
        """Look for messages from where the pull has come, and say what becomes of it."""
        cdef int64_t place
        cdef int status
        self.pull.queue_offset = progress.offset
        if known.costly and progress.offset + COSTLY_ENTRIES < load_acquire(
            &(<PullPlan> known.cached.plan).queue.max_offset
        ):
            return ENDS
        if not self.scan(known):
            return ENDS
        status = self.gather.status
        if status == GET_FOUND:
            return ENDS if known.by_loop else FOUND
        if status == GET_COLD or status == GET_DAMAGED:
            place = self.gather.cold_offset if status == GET_COLD else self.gather.next_offset
            if progress.status == status and progress.place == place:
                return ENDS         # that did not help
            progress.status, progress.place = status, place
            progress.offset = self.gather.next_offset
            return UNREADABLE
        if status == GET_NO_MATCHED_MESSAGE and progress.flags & POLLED and (
            self.gather.next_offset >= self.gather.max_offset
        ):
            progress.offset = self.gather.next_offset
            return WAITS
        return WAITS if may_wait(status, progress.offset) else ENDS

    cdef void go_on(self, Lane lane, LaneConnection *connection, WaitingPull *waiting,
                    LanePull *known, Outcome outcome) noexcept nogil:
        """Do what look() said, unless the pull was found at once."""
        cdef int64_t head = sizeof(PullProgress)
        self.commit(known, &waiting.progress)
        if outcome == UNREADABLE:
            memcpy(waiting.frame - head, &waiting.progress, head)
            if lane.to_loop.post(self.unreadable_kind, connection.id, waiting.frame - head,
                                 waiting.size + head, 0, False):
                self.drop(waiting)
            else:
                self.try_later(lane, waiting)
        elif outcome == ENDS or self.stopping or waiting.deadline_ms <= lane.now_ms or not (
            waiting.progress.flags & MAY_WAIT
        ):
            self.end(lane, connection, waiting)
        elif self.metered and not self.polling.take_place(waiting, &self.charged):
            self.refuse(lane, connection, waiting)
        else:
            waiting.progress.flags |= POLLED
            self.polling.check_at(waiting, waiting.deadline_ms)
            self.wait(waiting, known)

    cdef void end(self, Lane lane, LaneConnection *connection, WaitingPull *waiting) noexcept nogil:
        """Give the pull to the loop, which answers it with any result."""
        cdef int64_t waited_ms = min(lane.now_ms - waiting.progress.begun_ms, WAITED_MS_MAX)
        if lane.to_loop.post(self.ended_kind, connection.id, waiting.frame, waiting.size,
                             <int32_t> waited_ms << FLAG_BITS | waiting.progress.flags, False):
            self.drop(waiting)
        else:
            self.try_later(lane, waiting)

    cdef void try_later(self, Lane lane, WaitingPull *waiting) noexcept nogil:
        """Check the pull again soon: its peer does not read, or the mailbox has no room."""
        self.polling.wait(waiting, waiting.queue)
        self.polling.check_at(waiting, lane.now_ms + RETRY_MS)

    cdef void drop(self, WaitingPull *waiting) noexcept nogil:
        self.polling.take_out(waiting)
        free_pull(waiting)

    cdef void commit(self, LanePull *known, PullProgress *progress) noexcept nogil:
        """Commit the pull's offset, before the client gets the answer."""
        if self.pull.sys_flag & COMMIT_OFFSET and not progress.flags & COMMITTED:
            self.table.commit(known, self.pull.commit_offset)
        progress.flags |= COMMITTED

    cdef int64_t timeout_ms(self, const LanePull *known) noexcept nogil:
        """How long the current pull waits for messages, at most."""
        return known.timeout_ms if known.timeout_ms >= 0 else self.pull.suspend_timeout_ms

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
        (<PullPlan> known.cached.plan).counter.add(self.gather.count, self.gather.size)
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

    cdef int64_t quota_wait(self) noexcept nogil:
        """Nanoseconds until the quota of the current pull has room; 0: now."""
        if not self.metered:
            return 0
        return self.quotas.take(&self.charged, PULLS, 0, 0, monotonic_ns())

    cdef void postpone(self, Lane lane, LaneConnection *connection, WaitingPull *waiting,
                       LanePull *known, int64_t wait_ns) noexcept nogil:
        """Let a pull wait whose quota is used up; then it is answered, or refused."""
        if not waiting.progress.flags & MAY_WAIT or self.stopping or (
            not self.polling.take_place(waiting, &self.charged)
        ):
            self.refuse(lane, connection, waiting)
            return
        self.commit(known, &waiting.progress)
        waiting.progress.flags &= ~(MAY_WAIT | METERED)
        waiting.deadline_ms = lane.now_ms + min(wait_ns // 1_000_000 + 1, self.timeout_ms(known))
        self.polling.wait(waiting, NULL)    # no queue wakes it
        self.polling.check_at(waiting, waiting.deadline_ms)

    cdef void refuse(self, Lane lane, LaneConnection *connection,
                     WaitingPull *waiting) noexcept nogil:
        self.answer_error(lane, connection, waiting, FLOW_CONTROL, busy_remark())

    cdef void answer_error(self, Lane lane, LaneConnection *connection, WaitingPull *waiting,
                           int32_t code, Slice remark) noexcept nogil:
        cdef uint8_t[PULL_RESPONSE_MAX] answer
        cdef Frame frame
        cdef Header header
        next_frame(waiting.frame, waiting.size, &frame)
        self.headers.decode(&frame, &header, NULL)
        self.drop(waiting)
        lane.put(connection, answer, encode_response(
            answer, frame.serialize_type, header.opaque, code, remark
        ))

    cdef bint scan(self, LanePull *known) noexcept nogil:
        """Look for messages of the current pull; False if that fails."""
        cdef bint looked = self.gather.look_mapped(
            (<PullPlan> known.cached.plan).queue, known.file, known.base,
            self.pull.queue_offset, max(self.pull.max_count, 1),
            (<PullPlan> known.cached.plan).tags, (<PullPlan> known.cached.plan).records,
        ) or self.look_with_gil(known)
        if self.gather.filter_memory.work > FILTER_WORK_MAX:
            known.costly = True
        return looked

    cdef bint look_with_gil(self, LanePull *known) noexcept with gil:
        cdef PullPlan plan = <PullPlan> known.cached.plan
        try:
            self.gather.look(plan.queue, self.pull.queue_offset, max(self.pull.max_count, 1),
                             plan.tags, plan.records)
            self.map_file(known)
        except (CongreveError, MemoryError):
            return False
        return True

    cdef int map_file(self, LanePull *known) except -1:
        """Map the queue's file that the next look needs."""
        cdef ConsumeQueue queue = (<PullPlan> known.cached.plan).queue
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
        answered.by_grpc = connection.http2 != NULL
        answered.requests[<int> RPC_PULL] = self.answered_now
        self.answered_now = 0
        now = monotonic_ns()
        if self.times.add(stages, &answered, now):
            self.times.note_slow(stages, &answered, now, connection.address,
                                 connection.address_length, connection.port)

    cdef void count_answer(self, LaneConnection *connection,
                           const PullProgress *progress) noexcept nogil:
        """Count the answer to a pull that the loop has given back, or that has waited."""
        cdef Stages stages
        cdef int64_t begun = progress.begun_ms * 1_000_000
        if progress.flags & POLLED:
            self.times.add_requests(<int> RPC_WAITED_PULL, monotonic_ns() - begun, 1,
                                    connection.http2 != NULL)
        elif progress.status:   # the loop has logged a slow read
            self.times.add_requests(<int> RPC_PULL, monotonic_ns() - begun, 1,
                                    connection.http2 != NULL)
        else:
            begin_stages(&stages, begun)
            self.answered_now = 1
            self.count_answers(connection, &stages)

    # Pulls that wait.

    cdef void wait(self, WaitingPull *waiting, LanePull *known) noexcept nogil:
        """Let the pull wait for an entry after those that the last look saw."""
        cdef int64_t end = watch_queue(
            self.gather.log.lock, (<PullPlan> known.cached.plan).queue, self.watcher
        )
        self.polling.wait(waiting, <void *> (<PullPlan> known.cached.plan).queue)
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
        cdef Frame frame
        cdef Header header
        cdef LanePull *known
        cdef Outcome outcome
        cdef int64_t wait_ns
        if connection.peer_slow:
            self.try_later(lane, waiting)
            return
        next_frame(waiting.frame, waiting.size, &frame)
        self.headers.decode(&frame, &header, NULL)
        read_pull_header(&header, &self.pull)
        known = self.table.find(&self.pull)
        if known == NULL or waiting.progress.flags & MUST_END:
            self.end(lane, connection, waiting)
            return
        self.meter(connection, &header)
        if not waiting.progress.flags & METERED:    # it is validated, or has waited for its quota
            waiting.progress.flags |= METERED
            waiting.deadline_ms = lane.now_ms + max(self.timeout_ms(known), <int64_t> 0)
            wait_ns = self.quota_wait()
            if wait_ns:
                self.postpone(lane, connection, waiting, known, wait_ns)
                return
        outcome = self.look(known, &waiting.progress)
        if outcome != FOUND:
            self.go_on(lane, connection, waiting, known, outcome)
            return
        self.commit(known, &waiting.progress)
        self.polling.take_out(waiting)  # the answer may close the connection
        if not self.answer(lane, connection, known, frame.serialize_type, header.opaque):
            lane.close(connection, ENOMEM)
        self.flush(lane, connection)
        self.count_answer(connection, &waiting.progress)
        free_pull(waiting)

    cdef void dismiss(self, Lane lane, const uint8_t *remark, int64_t length) noexcept nogil:
        cdef Slice text
        cdef WaitingPull *waiting
        text.data, text.length = remark, <int32_t> length
        self.stopping = True
        self.polling.all_soon()
        while self.polling.next() != NULL:
            waiting = self.polling.next()
            self.answer_error(lane, lane.table.find(waiting.connection), waiting, STOPPING, text)

    cdef void release_segments(self) noexcept with gil:
        # A deleted segment keeps its disk space while something maps it.
        self.gather.segments = None
