"""Pops and acknowledgements of a lane: their quotas, the journal, and the way of their answers.

An answer is sent when the journal has what it says, that of an acknowledgement when it is as
durable there as a sent message. One record has the changes of a whole chunk of requests.
"""

cimport cython

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from congreve.base.atomic cimport load_acquire_bits, load_relaxed
from congreve.base.byte_buffer cimport release
from congreve.base.clock cimport monotonic_ns
from congreve.broker.figures.put_times cimport (
    RPC_ACK,
    RPC_BATCH_ACK,
    RPC_CHANGE,
    RPC_POP,
    RPC_WAITED_POP,
    Answered,
    clear_answered,
)
from congreve.broker.pop.lanes.pops cimport EMPTY, FOR_LOOP, SERVED
from congreve.broker.pull.lanes.polling cimport MUST_END, PullProgress, WaitCounts, free_pull
from congreve.broker.quotas.charged cimport charged_to
from congreve.broker.quotas.quota_table cimport PULLS, Charged, has_quotas
from congreve.engine.log.watch cimport watch_queue
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.remoting.wire.frame cimport next_frame

cdef enum:
    FLUSH_BYTES = 256 * 1024    # of answers to pops, after which they are sent
    CHECKED_AT_ONCE = 1024      # pops that waited, in one turn of the lane
    RETRY_MS = 100              # until the next try, when the peer or the loop accepts no more

ACKNOWLEDGED_KIND = ACKNOWLEDGED
"""Answers to acknowledgements; the event loop must write the journal first."""
POPPED_KIND = POPPED
"""The same to pops."""
DUE_SOONER_KIND = DUE_SOONER
"""A popped message is due before the event loop looks."""
POPS_LOST_KIND = POPS_LOST
"""Pops that were answered to clients that were gone: lost_pops() reads them."""


cdef inline int64_t waiting_of(const WaitCounts *counts) noexcept nogil:
    return load_relaxed(&counts.in_lanes) + load_relaxed(&counts.on_loop)


@cython.final
cdef class LanePopServer:
    """Serves the pops and acknowledgements of one lane.

    (RocketMQ: PopMessageProcessor, AckMessageProcessor.)
    """

    def __init__(self, LanePops pops not None, LaneAcks acks not None,
                 PopJournalWriter journal not None, QuotaTable quotas not None, *,
                 uint64_t watcher, int64_t waiting_bytes_max):
        self.pops, self.acks, self.journal, self.quotas = pops, acks, journal, quotas
        self.lost = LostPops()
        self.polling = LanePolling(quotas, waiting_bytes_max)
        self.headers = HeaderDecoder()
        self.watcher = watcher

    cdef void begin_chunk(self) noexcept nogil:
        self.pops.begin_chunk()
        self.acks.begin_chunk()
        self.appended_end = 0

    cdef bint serve_pop(self, Lane lane, LaneConnection *connection, const Frame *frame,
                        const Header *header, Stages *stages) noexcept nogil:
        cdef Outcome outcome
        if not self.pops.read(header):
            return False
        outcome = self.serve_metered(connection, frame, header)
        if outcome == EMPTY and self.pops.time_left() <= 0:
            return self.pops.answer_empty(frame, header)
        if outcome == EMPTY and self.may_wait():
            self.watch(self.pops.known)
            outcome = self.serve_metered(connection, frame, header)
            if outcome == EMPTY:
                return self.wait(lane, connection, frame, header)
        if outcome == SERVED and self.pops.answers.used >= FLUSH_BYTES:
            self.finish(lane, connection, stages)
        return outcome == SERVED

    cdef Outcome serve_metered(self, LaneConnection *connection, const Frame *frame,
                               const Header *header) noexcept nogil:
        """Serve the current pop if its quota has room, and charge it."""
        cdef Charged payers
        cdef bint metered = has_quotas(self.quotas)
        cdef Outcome outcome
        if metered:
            payers = charged_to(
                self.quotas, header, self.pops.pop.topic, self.pops.pop.consumer_group,
                connection.address, connection.address_length,
            )
            if self.quotas.take(&payers, PULLS, 0, 0, monotonic_ns()):
                return FOR_LOOP
        outcome = self.pops.serve(frame, header)
        if outcome != SERVED:
            return outcome
        if metered:
            self.quotas.charge(
                &payers, PULLS, self.pops.count, self.pops.bytes, monotonic_ns()
            )
        self.lost.note(
            connection.id, monotonic_ns() // 1_000_000, self.pops.now_ms,
            self.pops.pop.consumer_group, self.pops.pop.topic, self.pops.taken_places(),
        )
        return SERVED

    # Pops that wait.

    cdef bint may_wait(self) noexcept nogil:
        cdef const WaitCounts *waiting = self.pops.known.waiting
        return (
            not self.stopping
            and waiting_of(waiting) < self.pops.known.waiting_max
            and waiting_of(waiting.total) < self.pops.known.all_waiting_max
        )

    cdef void watch(self, const LanePop *known) noexcept nogil:
        """Ask for notices of the next entries of the queues; then look again."""
        cdef int32_t i
        for i in range(known.count + known.retries):
            # With its bit set an entry after this moment is noticed, too.
            if not load_acquire_bits(
                &(<ConsumeQueue> known.queues[i].queue).watchers
            ) & self.watcher:
                watch_queue(
                    self.journal.log.lock, <ConsumeQueue> known.queues[i].queue, self.watcher
                )

    cdef bint wait(self, Lane lane, LaneConnection *connection, const Frame *frame,
                   const Header *header) noexcept nogil:
        """Let the current pop wait, whose queues are watched; False if the loop has to."""
        cdef LanePop *known = self.pops.known
        cdef PullProgress progress
        cdef WaitingPull *waiting
        cdef int32_t i
        memset(&progress, 0, sizeof(PullProgress))
        progress.begun_ms = lane.now_ms
        waiting = self.polling.add(
            connection, frame, header, &progress, lane.now_ms, self.pops.time_left()
        )
        if waiting == NULL:
            return False
        if not self.polling.wait_for_all(waiting, known.count + known.retries, known.waiting):
            self.polling.take_out(waiting)
            free_pull(waiting)
            return False
        for i in range(known.count + known.retries):
            self.polling.add_watch(waiting, known.queues[i].queue)
        self.wait_again(waiting, known)
        return True

    cdef void wait_again(self, WaitingPull *waiting, LanePop *known) noexcept nogil:
        """Let a pop wait for which the last look found nothing."""
        cdef int32_t i
        known.nothing_at = self.polling.notices
        self.polling.rest(waiting)
        self.polling.check_at(waiting, waiting.deadline_ms)
        for i in range(known.count + known.retries):
            if self.journal.log.hides(<ConsumeQueue> known.queues[i].queue):
                self.polling.wait_hidden(waiting, NULL)
                return

    cdef int turn_ended(self, Lane lane, bint accepting) noexcept nogil:
        cdef int32_t checked = 0
        self.accepting = accepting
        if self.lost.lost.used:
            lane.post(POPS_LOST, -1, self.lost.lost.data, self.lost.lost.used, 0)
            release(&self.lost.lost)
        self.polling.turn(lane.now_ms)
        if self.polling.next() != NULL:
            self.begin_chunk()
            while self.polling.next() != NULL and checked < CHECKED_AT_ONCE and (
                self.woken_count < AT_ONCE and self.pops.answers.used < FLUSH_BYTES
            ):
                self.serve_due(lane, self.polling.next())
                checked += 1
            self.send_woken(lane)
        if self.pops.gather.segments is not None and self.pops.gather.is_behind():
            self.release_segments()
        return self.polling.sleep_ms(lane.now_ms)

    cdef void serve_due(self, Lane lane, WaitingPull *waiting) noexcept nogil:
        """Answer a pop that waited, let it wait again, or give it to the loop."""
        cdef LaneConnection *connection = lane.table.find(waiting.connection)
        cdef int64_t begin = self.pops.answers.used
        cdef bint ends = self.stopping or waiting.deadline_ms <= lane.now_ms
        cdef Outcome outcome = EMPTY
        cdef LanePop *known
        cdef Frame frame
        cdef Header header
        if connection.peer_slow:
            self.try_later(lane, waiting)
            return
        next_frame(waiting.frame, waiting.size, &frame)
        self.headers.decode(&frame, &header, NULL)
        if connection.http2 != NULL and not lane.table.http2.awaits(
            connection.http2, header.opaque
        ):
            self.polling.take_out(waiting)
            free_pull(waiting)
            return
        if (
            not self.accepting
            or waiting.progress.flags & MUST_END
            or not self.pops.read(&header)
        ):
            self.pass_on(lane, waiting)
            return
        known = self.pops.known
        if known.nothing_at != self.polling.notices or ends:
            self.watch(known)
            outcome = self.serve_metered(connection, &frame, &header)
        if outcome == EMPTY and ends:
            if not self.pops.answer_empty(&frame, &header):
                outcome = FOR_LOOP
        elif outcome == EMPTY or (outcome == FOR_LOOP and not ends and not self.may_pass(known)):
            self.wait_again(waiting, known)
            return
        if outcome == FOR_LOOP:
            self.pass_on(lane, waiting)
            return
        self.woken[self.woken_count].connection = waiting.connection
        self.woken[self.woken_count].begun_ms = waiting.progress.begun_ms
        self.woken[self.woken_count].begin = begin
        self.woken[self.woken_count].end = self.pops.answers.used
        self.woken_count += 1
        self.polling.take_out(waiting)
        free_pull(waiting)

    cdef bint may_pass(self, LanePop *known) noexcept nogil:
        """Whether to give one more pop to the loop: not more than messages come again."""
        if not self.pops.coming_again:
            return True
        if known.passed_at != self.polling.notices:
            known.passed_at, known.passed = self.polling.notices, 0
        known.passed += 1
        return known.passed <= self.pops.coming_again

    cdef void pass_on(self, Lane lane, WaitingPull *waiting) noexcept nogil:
        """Give a pop that waited to the loop, which serves it as a new one."""
        cdef bint of_call = lane.table.find(waiting.connection).http2 != NULL
        if lane.to_loop.post(entry_kinds.FRAME, waiting.connection, waiting.frame, waiting.size,
                             of_call << 1, False):
            self.polling.take_out(waiting)
            free_pull(waiting)
        else:
            self.try_later(lane, waiting)

    cdef void try_later(self, Lane lane, WaitingPull *waiting) noexcept nogil:
        self.polling.rest(waiting)
        self.polling.check_at(waiting, lane.now_ms + RETRY_MS)

    cdef void send_woken(self, Lane lane) noexcept nogil:
        """Write the journal, and send the answers of pops that waited."""
        cdef LaneConnection *connection
        cdef WokenPop *pop
        cdef bint written
        cdef int32_t i
        if not self.woken_count:
            return
        written = not self.journal.log.backend.failure and self.journal.append()
        if written:
            self.note_append()
        for i in range(self.woken_count):
            pop = &self.woken[i]
            connection = lane.table.find(pop.connection)
            if not written:
                lane.post(POPPED, pop.connection, self.pops.answers.data + pop.begin,
                          pop.end - pop.begin, 0)
            elif connection == NULL:
                self.lost.closed(pop.connection, monotonic_ns() // 1_000_000)
            else:
                lane.put(connection, self.pops.answers.data + pop.begin, pop.end - pop.begin)
                self.times.add_requests(
                    <int> RPC_WAITED_POP, monotonic_ns() - pop.begun_ms * 1_000_000, 1,
                    connection.http2 != NULL,
                )
        self.woken_count = 0
        self.pops.begin_chunk()
        if self.pops.due_sooner:
            self.pops.due_sooner = False
            lane.post(DUE_SOONER, -1, NULL, 0, 0)

    cdef void dismiss(self, Lane lane) noexcept nogil:
        self.stopping = True
        self.polling.all_soon()

    cdef void release_segments(self) noexcept with gil:
        # A deleted segment keeps its disk space while something maps it.
        self.pops.gather.segments = None

    # Acknowledgements, and the answers of a chunk.

    cdef bint serve_ack(self, const Frame *frame, const Header *header) noexcept nogil:
        return self.acks.serve(frame, header)

    cdef void finish(self, Lane lane, LaneConnection *connection, Stages *stages) noexcept nogil:
        cdef bint written
        if not self.pops.answered and not self.acks.served:
            return
        written = not self.journal.log.backend.failure and self.journal.append()
        if written:
            self.note_append()
        if self.pops.answered:
            self.send_pops(lane, connection, stages, written)
        if self.acks.served:
            self.send_acks(lane, connection, stages, written)
        if self.pops.due_sooner or self.acks.due_sooner:
            self.pops.due_sooner = self.acks.due_sooner = False
            lane.post(DUE_SOONER, -1, NULL, 0, 0)

    cdef void note_append(self) noexcept nogil:
        self.appended_end = self.journal.end_now()
        if self.commit is not None:
            self.commit.confirm.request(self.appended_end)

    cdef void send_pops(self, Lane lane, LaneConnection *connection, const Stages *stages,
                        bint written) noexcept nogil:
        if written:
            lane.put(connection, self.pops.answers.data, self.pops.answers.used)
            self.count(connection, stages, <int> RPC_POP, self.pops.answered)
        else:
            lane.post(POPPED, connection.id, self.pops.answers.data, self.pops.answers.used, 0)
        if connection.fd < 0:
            self.lost.closed(connection.id, monotonic_ns() // 1_000_000)
        self.pops.begin_chunk()

    cdef void send_acks(self, Lane lane, LaneConnection *connection, Stages *stages,
                        bint written) noexcept nogil:
        cdef Answered answered
        if not written:
            lane.post(ACKNOWLEDGED, connection.id, self.acks.answers.data,
                      self.acks.answers.used, 0)
        elif self.acks.answers.used and self.commit is not None:
            clear_answered(&answered)
            answered.requests[<int> RPC_ACK] = self.acks.singles()
            answered.requests[<int> RPC_BATCH_ACK] = self.acks.batches
            answered.requests[<int> RPC_CHANGE] = self.acks.changed
            stages.appended = monotonic_ns()
            self.commit.hold(lane, connection, self.acks.answers.data, self.acks.answers.used,
                             self.appended_end, stages, &answered)
        elif self.acks.answers.used:
            lane.put(connection, self.acks.answers.data, self.acks.answers.used)
            self.count(connection, stages, <int> RPC_ACK, self.acks.singles())
            self.count(connection, stages, <int> RPC_BATCH_ACK, self.acks.batches)
            self.count(connection, stages, <int> RPC_CHANGE, self.acks.changed)
        self.acks.begin_chunk()

    cdef void count(self, LaneConnection *connection, const Stages *stages, int rpc,
                    int32_t requests) noexcept nogil:
        cdef int64_t now = monotonic_ns()
        cdef Answered answered
        if not requests:
            return
        clear_answered(&answered)
        answered.by_grpc = connection.http2 != NULL
        answered.requests[rpc] = requests
        if self.times.add(stages, &answered, now):
            self.times.note_slow(stages, &answered, now, connection.address,
                                 connection.address_length, connection.port)

    cdef void closed(self, LaneConnection *connection) noexcept nogil:
        self.polling.drop_connection(connection)
        self.lost.closed(connection.id, monotonic_ns() // 1_000_000)
