"""Requests in a lane: the fast path without the event loop.

A lane serves ordinary sends, pulls, pops and acknowledgements, delayed messages, half messages and
ends of transactions.
All other frames go to the event loop, which serves them like those of its own connections.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from congreve.base.atomic cimport load_acquire_bits
from congreve.base.clock cimport monotonic_ns
from congreve.base.slices cimport Slice
from congreve.broker.commit.lane_commit cimport HOLD, LaneCommit
from congreve.broker.pull.lanes.pulls cimport SERVE_AGAIN
from congreve.broker.quotas.send_quota cimport REST_MS
from congreve.broker.requests.arrivals cimport ARRIVALS_MAX, Arrivals
from congreve.broker.requests.stops cimport (
    STOP_ACK,
    STOP_POP,
    STOP_PYTHON,
    STOP_DONE,
    STOP_NOTIFY,
    STOP_ANSWER_BUFFER,
    STOP_PARK_QUEUE,
    STOP_PULL,
    STOP_QUEUE,
    STOP_QUEUE_ROOM,
    STOP_UNFRAMEABLE,
)
from congreve.broker.serving.fastpath cimport UNKNOWN_CODE
from congreve.engine.log.watch cimport loop_watcher, remove_watchers
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.replication.confirm_offset cimport ConfirmOffset
from congreve.records.layout cimport SYS_TRANSACTION_MASK
from congreve.remoting.lanes cimport entry_kinds, sockets
from congreve.remoting.lanes.lane cimport UNFRAMEABLE
from congreve.remoting.lanes.mailbox cimport MailboxEntry, new_eventfd
from congreve.remoting.lanes.resting cimport RestingConnections
from congreve.remoting.wire.fast_headers cimport END_TRANSACTION, is_send

from congreve.base.errors import CongreveError

cdef enum:
    ARRIVED = entry_kinds.OF_SINK           # mailbox entries from this sink
    APPENDED = entry_kinds.OF_SINK + 1
    NOT_DURABLE = entry_kinds.OF_SINK + 2  # with the reason as its number (LaneCommit)
    PULL_ENDED = entry_kinds.OF_SINK + 3
    PULL_UNREADABLE = entry_kinds.OF_SINK + 4
    ARRIVED_IN_LANE = entry_kinds.TO_SINK   # entries for this sink: with the address of a queue
    DISMISS = entry_kinds.TO_SINK + 1       # and with the remark for all waiting pulls
    END_PULLS = entry_kinds.TO_SINK + 2
    SHOWN = entry_kinds.TO_SINK + 3
    RECHECK_POPS = entry_kinds.TO_SINK + 6

ARRIVED_KIND = ARRIVED
"""Queues that the loop watches, or with parked messages, got entries: queues_of() has them."""
APPENDED_KIND = APPENDED
"""Messages were appended; the flush thread must check now whether to flush."""
PULL_ENDED_KIND = PULL_ENDED
"""A pull that the loop answers now, with any result; see LanePulls for the number."""
PULL_UNREADABLE_KIND = PULL_UNREADABLE
"""A pull whose messages must be read from disk, or its queue repaired, behind its progress."""


def queues_of(bytes data not None):
    """The queues of an entry of ARRIVED_KIND."""
    cdef void *queue
    cdef Py_ssize_t at
    found = []
    for at in range(0, len(data), sizeof(void *)):
        memcpy(&queue, PyBytes_AS_STRING(data) + at, sizeof(void *))
        found.append(<ConsumeQueue> queue)
    return found


@cython.final
cdef class LaneServer(LaneSink):
    """Serves the frames of a lane in its thread: sends, pulls, and what the event loop decided.

    No other thread uses `path`. With `posts_appends` it posts an entry of APPENDED_KIND after each
    chunk with messages. Where answers wait, for `confirm` and `timeout_s` at most, the lane without
    a `leader` listens to the backend for all others.
    (RocketMQ: SendMessageProcessor.)
    """

    def __init__(self, FastPath path not None, LanePulls pulls not None,
                 LanePopServer pops not None, store, *, bint posts_appends,
                 ConfirmOffset confirm not None, double timeout_s, LaneServer leader=None):
        self.path, self.sends = path, path.sends
        self.pulls, self.pops = pulls, pops
        pulls.times = pops.times = path.put_times
        self.store = store
        self.index = store.index
        if path.answers_wait:
            self.listens_to_backend = leader is None
            if leader is None:
                self.event_fd = self.path.log.backend.event_fd
            else:
                self.event_fd = new_eventfd()
                leader.follower_fds[leader.follower_count] = self.event_fd
                leader.follower_count += 1
            self.commit = LaneCommit(
                confirm, self.path.put_times, failed_kind=NOT_DURABLE, timeout_s=timeout_s,
            )
            pops.commit = self.commit
        self.posts_appends = posts_appends
        self.resting = RestingConnections(REST_MS)
        self.accepting = True

    def follow(self, list lanes):
        """Set all lanes, this one included; the lane notifies them of entries in watched queues."""
        cdef LaneServer each
        self.references = lanes
        self.lane_count = <int> len(lanes)
        for number, each in enumerate(lanes):
            self.lanes[<int> number] = <void *> each

    def notify(self, ConsumeQueue queue not None):
        """Check the pulls and pops here that wait for the queue; any thread may call it."""
        self.arrived(<void *> queue)

    def show_more(self):
        """Check what waits until readers see more of the log; any thread may call it."""
        if self.mailbox is not None:
            self.mailbox.post(SHOWN, -1, NULL, 0, 0, True)

    def dismiss(self, bytes remark not None):
        """Answer all that waits, pulls with SERVICE_NOT_AVAILABLE, and let nothing else wait."""
        if self.mailbox is not None:
            self.mailbox.post(DISMISS, -1, remark, len(remark), 0, True)

    def end_pulls(self):
        """Let the loop answer all waiting pulls and pops now: their senders may not any more."""
        if self.mailbox is not None:
            self.mailbox.post(END_PULLS, -1, NULL, 0, 0, True)

    def recheck_pops(self):
        """Look again for all waiting pops: an offset or a check has changed."""
        if self.mailbox is not None:
            self.mailbox.post(RECHECK_POPS, -1, NULL, 0, 0, True)

    def set_store_host(self, bytes host):
        """Set the broker's address in records and message ids, before the first connection."""
        self.path.set_store_host(host)

    cdef int64_t take(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                      int64_t available) noexcept nogil:
        cdef Stop stop
        if self.by_handlers >> connection.listener & 1:
            return LaneSink.take(self, lane, connection, data, available)
        self.sends.born_host.length = connection.address_length
        memcpy(self.sends.born_host.address, connection.address, connection.address_length)
        self.sends.born_host.port = connection.port
        self.sends.accepting = self.accepting
        self.path.begin_chunk()
        self.path.of_calls = connection.http2 != NULL
        self.pops.begin_chunk()
        self.path.stages.arrived = min(lane.now_ms * 1_000_000, self.path.stages.begun)
        while True:
            stop = self.path.run(data, available)
            if stop == STOP_DONE or stop == STOP_UNFRAMEABLE:
                break
            if stop == STOP_PULL and self.serve_pull(lane, connection):
                self.path.at += self.path.frame.size
                if connection.peer_slow or connection.fd < 0:
                    break
            elif (stop == STOP_ACK and self.serve_ack(connection)) or (
                stop == STOP_POP and self.serve_pop(lane, connection)
            ):
                self.path.at += self.path.frame.size
                if connection.peer_slow or connection.fd < 0:
                    break
            elif (
                stop == STOP_PYTHON or stop == STOP_PULL or stop == STOP_ACK or stop == STOP_POP
                or not self.resume(stop)
            ):
                if not self.pass_on(lane, connection):
                    break
                self.path.at += self.path.frame.size
                if connection.ordered:
                    break
            elif stop == STOP_NOTIFY:
                self.notify_arrivals(lane)
                self.path.at += self.path.frame.size
        self.finish(lane, connection)
        if self.sends.quota.limited:
            self.resting.add(lane, connection)
        return UNFRAMEABLE if stop == STOP_UNFRAMEABLE else self.path.at

    cdef bint serve_pull(self, Lane lane, LaneConnection *connection) noexcept nogil:
        return not connection.ordered and self.pulls.serve(
            lane, connection, &self.path.frame, &self.path.header
        )

    cdef bint serve_ack(self, LaneConnection *connection) noexcept nogil:
        return self.accepting and not connection.ordered and self.pops.serve_ack(
            &self.path.frame, &self.path.header
        )

    cdef bint serve_pop(self, Lane lane, LaneConnection *connection) noexcept nogil:
        return self.accepting and not connection.ordered and self.pops.serve_pop(
            lane, connection, &self.path.frame, &self.path.header, &self.path.stages
        )

    cdef int turn_ended(self, Lane lane) noexcept nogil:
        cdef int sleep_ms = min(self.pulls.turn_ended(lane), self.resting.turn(lane))
        self.pops.appended_end = 0
        sleep_ms = min(sleep_ms, self.pops.turn_ended(lane, self.accepting))
        if self.pops.appended_end and self.posts_appends:
            lane.post(APPENDED, -1, NULL, 0, 0)
        return sleep_ms if self.commit is None else min(sleep_ms, self.commit.sleep_ms(lane))

    cdef void closed(self, LaneConnection *connection) noexcept nogil:
        self.pulls.polling.drop_connection(connection)
        self.pops.closed(connection)

    cdef void handle_entry(self, Lane lane, const MailboxEntry *entry) noexcept nogil:
        cdef LaneConnection *connection
        cdef void *queue
        if entry.kind == ARRIVED_IN_LANE:
            memcpy(&queue, entry.data, sizeof(void *))
            self.arrived_here(queue)
        elif entry.kind == SHOWN:
            self.pulls.polling.shown()
            self.pops.polling.shown()
        elif entry.kind == END_PULLS:
            self.pulls.polling.end_all()
            self.pops.polling.end_all()
        elif entry.kind == RECHECK_POPS:
            self.pops.polling.all_soon()
        elif entry.kind == HOLD:
            connection = lane.table.find(entry.connection)
            if connection != NULL:
                self.commit.hold_one(lane, connection, entry.data, entry.size)
        elif entry.kind == SERVE_AGAIN:
            connection = lane.table.find(entry.connection)
            if connection != NULL:
                self.pulls.serve_again(lane, connection, entry.data, entry.size)
        else:
            self.pulls.dismiss(lane, entry.data, entry.size)
            self.pops.dismiss(lane)

    cdef void readable(self, Lane lane) noexcept nogil:
        cdef uint64_t value
        cdef int i
        sockets.eventfd_read(self.event_fd, &value)
        self.commit.release(lane)
        for i in range(self.follower_count):
            sockets.eventfd_write(self.follower_fds[i], 1)

    def __dealloc__(self):
        if self.event_fd >= 0 and not self.listens_to_backend:
            sockets.close_fd(self.event_fd)

    @property
    def waiting(self):
        """Answers that wait for the disk, by chunks of requests."""
        return 0 if self.commit is None else len(self.commit)

    cdef bint resume(self, Stop stop) noexcept nogil:
        """Do the step that the current frame needs; False if the loop must serve the frame."""
        cdef int64_t before
        cdef bint done = stop == STOP_NOTIFY
        if not done:
            before = monotonic_ns()
            done = self.resume_with_gil(stop)
            self.path.stages.files += monotonic_ns() - before
        return done

    cdef bint resume_with_gil(self, Stop stop) noexcept with gil:
        try:
            if stop == STOP_QUEUE and self.path.header.code == END_TRANSACTION:
                return False
            elif stop == STOP_QUEUE:
                return self.open_queue()
            elif stop == STOP_PARK_QUEUE:
                self.path.delays.open_queue()
            elif stop == STOP_QUEUE_ROOM:
                return self.make_room()
            elif stop == STOP_ANSWER_BUFFER:
                self.sends.make_room()
            else:
                with self.path.log.lock:
                    self.path.log.next_segment()
        except (CongreveError, KeyError, MemoryError):
            return False  # the loop fails in the same way, and its answer has the reason
        return True

    cdef bint open_queue(self) except -1:
        """Open the queue of the current send; False if the loop must wait for its file."""
        cdef bytes name = self.path.send_header.topic.data[:self.path.send_header.topic.length]
        topic = name.decode()
        if topic not in self.path.topics:
            raise KeyError(topic)
        if self.store.first_files.is_missing(topic, self.sends.queue_id):
            return False
        queue = self.store.queues.get(topic, self.sends.queue_id)
        self.path.topics.set_queue(topic, queue)
        return True

    cdef bint make_room(self) except -1:
        """Make room in the full queue, unless its topic was deleted meanwhile.

        False if the loop must wait for its first file.
        """
        cdef void *queue = self.sends.full_queue
        cdef Slice topic = self.sends.full_topic
        if (
            self.path.topics.holds(queue, topic.data, topic.length, self.sends.full_queue_id)
            or queue == <void *> self.path.transactions.half_queue
            or queue == <void *> self.path.transactions.op_queue
            or queue == self.path.delays.queue
        ):
            full = <ConsumeQueue> queue
            if self.store.first_files.is_missing(full.topic, full.queue_id):
                return False
            with self.path.log.lock:
                (<ConsumeQueue> queue).make_room()
        return True

    cdef bint pass_on(self, Lane lane, LaneConnection *connection) noexcept nogil:
        """Give the current frame to the loop; later sends wait for it if their order matters."""
        cdef int32_t code = self.path.header.code
        self.sends.cancel_charge(&self.path.frame, &self.path.header, &self.path.send_header)
        if code == END_TRANSACTION or (
            code != UNKNOWN_CODE and is_send(code)
            and self.path.send_header.sys_flag & SYS_TRANSACTION_MASK
        ):
            self.find_queues()
        return lane.pass_frame(
            connection, self.path.frame.data, self.path.frame.size,
            code == UNKNOWN_CODE or code == END_TRANSACTION or is_send(code), False,
        )

    cdef void find_queues(self) noexcept nogil:
        """Look up the queues of transactions, which the loop creates with their first entries."""
        if self.path.transactions.half_queue is None or self.path.transactions.op_queue is None:
            with gil:
                self.path.transactions.find_queues()

    cdef void finish(self, Lane lane, LaneConnection *connection) noexcept nogil:
        cdef int64_t now
        self.sends.answered.by_grpc = connection.http2 != NULL
        if self.sends.answers.used and self.sends.appended_end and self.commit is not None:
            self.path.stages.appended = monotonic_ns()
            self.commit.hold(lane, connection, self.sends.answers.data, self.sends.answers.used,
                             self.sends.appended_end, &self.path.stages, &self.sends.answered)
        elif self.sends.answers.used:
            lane.put(connection, self.sends.answers.data, self.sends.answers.used)
            now = monotonic_ns()
            if self.path.put_times.add(&self.path.stages, &self.sends.answered, now):
                self.path.put_times.note_slow(
                    &self.path.stages, &self.sends.answered, now, connection.address,
                    connection.address_length, connection.port,
                )
        self.pops.finish(lane, connection, &self.path.stages)
        self.pulls.flush(lane, connection)
        self.pulls.count_answers(connection, &self.path.stages)
        if self.sends.appended_end or self.pops.appended_end:
            if self.index is not None:
                self.index.wake()
            if self.posts_appends:
                lane.post(APPENDED, -1, NULL, 0, 0)
        self.notify_arrivals(lane)

    cdef void notify_arrivals(self, Lane lane) noexcept nogil:
        """Notify the lanes and the loop, which watch queues with new entries."""
        cdef Arrivals *arrivals = &self.sends.arrivals
        cdef void *for_loop[ARRIVALS_MAX]
        cdef int count = 0
        cdef int i
        cdef void *queue
        cdef uint64_t watchers
        for i in range(arrivals.count):
            queue = arrivals.queues[i].queue
            watchers = load_acquire_bits(&(<ConsumeQueue> queue).watchers)
            if arrivals.queues[i].parked or watchers & loop_watcher():
                for_loop[count] = queue
                count += 1
            if watchers:
                self.notify_lanes(queue, remove_watchers(<ConsumeQueue> queue, ~<uint64_t> 0))
        arrivals.count = 0
        if count:
            lane.post(ARRIVED, -1, for_loop, count * <int64_t> sizeof(void *), 0)

    cdef void notify_lanes(self, void *queue, uint64_t watchers) noexcept nogil:
        cdef int i
        for i in range(self.lane_count):
            if watchers & <uint64_t> 1 << i:
                if self.lanes[i] == <void *> self:
                    self.arrived_here(queue)
                else:
                    (<LaneServer> self.lanes[i]).arrived(queue)

    cdef void arrived_here(self, void *queue) noexcept nogil:
        self.pulls.polling.arrived(queue)
        self.pops.polling.arrived(queue)

    cdef void arrived(self, void *queue) noexcept nogil:
        self.mailbox.post(ARRIVED_IN_LANE, -1, <const uint8_t *> &queue, sizeof(void *), 0, True)
