"""Group commit in a lane: answers that wait until their messages are on disk and at a slave.

Encoded answers wait in the order of the log: one entry for each chunk of requests, with the
physical offset that it waits for. When everything up to X is where it must be, all entries up to X
are sent together; there is no timer for each message. The next write waits until the connections
that were just answered have sent again: otherwise the first of them would get its own write, and
the others would wait for it. The lane itself writes a short group, at the end of its turn, while
the disk is quick: to be woken by the kernel's thread that ends a write takes as long as the disk.
(RocketMQ: GroupCommitService, GroupTransferService.)
"""

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from congreve.base.byte_buffer cimport double_ring
from congreve.base.clock cimport monotonic_ns
from congreve.broker.figures.put_times cimport begin_stages

cdef enum:
    FIRST_CAPACITY = 256
    SLEEP_MS = 250
    # The longest delay of a write. During it, and for as long again while the disk works, the
    # lane polls: a virtual machine takes tens of microseconds to wake it, twice in each write.
    GATHER_NS = 300_000
    # The most releases in succession that have no delay. A delay that ends by its limit is followed
    # by one of them, the next such delay by two, and so on up to this number.
    HURRIED_RELEASES_MAX = 128
    HERE_MAX = 128 << 10    # bytes that the lane writes itself at most; several writes fly of more
    # So many groups are written by the backend after writes here whose moving mean, over
    # SLOW_MEAN_OF of them, is longer than SLOW_NS: the disk would block the lane for too long.
    WRITES_AFTER_SLOW = 1000
    SLOW_NS = 1_000_000
    SLOW_MEAN_OF = 8

HOLD_KIND = HOLD
"""For a lane: the answer of a handler, which waits until its message is durable."""
NO_SLAVE = COMMIT_NO_SLAVE
"""The number of an entry whose messages are durable, but no slave could be waited for."""
SLAVE_LATE = COMMIT_SLAVE_LATE
"""The number of one whose messages are durable, but no slave has confirmed them in time."""


@cython.final
cdef class LaneCommit:
    """Holds a lane's answers back until their messages are durable and confirmed.

    Answers whose messages are not confirmed after `timeout_s`, or never will be because the disk
    has failed or no slave is there, go to the event loop as mailbox entries of kind `failed_kind`;
    the loop answers with an error. The entry's number is the errno or a CommitFailure.
    """

    def __cinit__(self, ConfirmOffset confirm not None, PutTimes times not None, *,
                  double timeout_s, int32_t failed_kind):
        self.confirm = confirm
        self.times = times
        self.timeout_ms = <int64_t> (timeout_s * 1000)
        self.failed_kind = failed_kind
        self.next_hurried = 1
        self.epoch = 1
        self.capacity = FIRST_CAPACITY
        self.held = <HeldAnswers *> malloc(self.capacity * sizeof(HeldAnswers))
        if self.held == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            free(self.held[(self.first + i) % self.capacity].data)
        free(self.held)

    def __len__(self):
        """The number of waiting entries."""
        return self.count

    cdef void hold(self, Lane lane, LaneConnection *connection, const uint8_t *answers,
                   int64_t size, int64_t upto, const Stages *stages,
                   const Answered *answered) noexcept nogil:
        cdef HeldAnswers *entry
        cdef int64_t now = stages.appended
        cdef bint lacks_slave = not self.confirm.has_slave(upto)
        if self.confirm.backend.failure:
            lane.post(self.failed_kind, connection.id, answers, size, self.confirm.backend.failure)
            return
        if self.is_done(upto, lacks_slave):
            self.answer(lane, connection, answers, size, lacks_slave)
            if self.times.add(stages, answered, now):
                self.times.note_slow(stages, answered, now, connection.address,
                                     connection.address_length, connection.port)
            return
        if self.count == self.capacity and not self.grow():
            lane.post(self.failed_kind, connection.id, answers, size, COMMIT_LATE)
            return
        entry = &self.held[(self.first + self.count) % self.capacity]
        entry.data = <uint8_t *> malloc(size)
        if entry.data == NULL:
            lane.post(self.failed_kind, connection.id, answers, size, COMMIT_LATE)
            return
        memcpy(entry.data, answers, size)
        entry.size = size
        # An answer of a handler may come after those of later messages.
        entry.upto = max(upto, self.last_upto) if self.count else upto
        self.last_upto = entry.upto
        entry.stages = stages[0]
        entry.answered = answered[0]
        entry.connection = connection.id
        entry.deadline_ms = lane.now_ms + self.timeout_ms
        entry.lacks_slave = lacks_slave
        self.count += 1
        if self.confirm.waits_for_slaves:
            self.note_durable()
        if self.awaited and connection.mark == self.epoch:
            connection.mark = 0
            self.awaited -= 1
            if not self.awaited:
                self.awake_until_ns = monotonic_ns() + GATHER_NS
                self.next_hurried = 1

    cdef void hold_one(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                       int64_t size) noexcept nogil:
        cdef HandlerAnswer head
        cdef Answered answered
        cdef Stages stages
        cdef int i
        memcpy(&head, data, sizeof(HandlerAnswer))
        begin_stages(&stages, head.begun_ns)
        stages.appended = monotonic_ns()
        answered.messages, answered.by_grpc = 1, connection.http2 != NULL
        for i in range(<int> RPCS):
            answered.requests[i] = head.requests[i]
        self.hold(lane, connection, data + sizeof(HandlerAnswer),
                  size - <int64_t> sizeof(HandlerAnswer), head.upto, &stages, &answered)

    cdef void write(self, Lane lane) noexcept nogil:
        """Make the messages of all waiting answers durable, here if that takes little time."""
        cdef int64_t begun_ns
        if self.last_upto <= self.requested:
            return
        self.requested = self.last_upto
        if (not self.confirm.waits_for_disk or self.writes_elsewhere
                or self.last_upto - self.confirm.backend.durable > HERE_MAX):
            self.writes_elsewhere -= self.writes_elsewhere > 0
            self.confirm.request(self.last_upto)
            return
        begun_ns = monotonic_ns()
        self.confirm.backend.write_here(self.last_upto)
        self.write_ns += (monotonic_ns() - begun_ns - self.write_ns) / <int> SLOW_MEAN_OF
        if self.write_ns > SLOW_NS:
            self.write_ns = 0
            self.writes_elsewhere = WRITES_AFTER_SLOW
        if self.first_is_done():
            self.answer_done(lane)

    cdef void release(self, Lane lane) noexcept nogil:
        if self.count:
            # It takes completed writes, and sends the next one before the answers.
            self.requested = self.last_upto
            self.confirm.request(self.last_upto)
        self.answer_done(lane)

    cdef void answer_done(self, Lane lane) noexcept nogil:
        cdef HeldAnswers entry
        cdef LaneConnection *connection
        cdef bint awaits = self.hurried == 0 and self.confirm.waits_for_disk
        cdef bint slow
        cdef int64_t now = 0
        cdef int64_t released = 0
        if self.confirm.waits_for_slaves:
            self.note_durable()
        if self.first_is_done():
            self.epoch += 1
            self.awaited = 0
        while self.count:
            entry = self.held[self.first]
            if not self.is_done(entry.upto, entry.lacks_slave):
                break
            self.first = (self.first + 1) % self.capacity
            self.count -= 1
            self.on_disk -= self.on_disk > 0
            released += 1
            if not now:
                now = monotonic_ns()
            slow = self.times.add(&entry.stages, &entry.answered, now)
            connection = lane.table.find(entry.connection)
            if connection != NULL:
                if slow:
                    self.times.note_slow(&entry.stages, &entry.answered, now, connection.address,
                                         connection.address_length, connection.port)
                if awaits and connection.mark != self.epoch:
                    connection.mark = self.epoch
                    self.awaited += 1
                self.answer(lane, connection, entry.data, entry.size, entry.lacks_slave)
            free(entry.data)
        if released and awaits:
            self.awake_until_ns = monotonic_ns() + GATHER_NS
        elif released and self.hurried:
            self.hurried -= 1
        while self.count and self.confirm.backend.failure:
            self.fail_first(lane, self.confirm.backend.failure)

    cdef int sleep_ms(self, Lane lane) noexcept nogil:
        cdef int64_t now
        # A request takes completed writes, whose event may have come before the answers did.
        if self.first_is_done():
            self.answer_done(lane)
        if self.count and not self.awaited:
            self.write(lane)
        if not self.awaited and not self.count:
            return SLEEP_MS
        now = monotonic_ns()
        if now < self.awake_until_ns:
            return 0 if lane.busy_poll.is_allowed(now) else 1
        if self.awaited:
            # The connections that were just answered take too long to send again.
            self.awaited = 0
            self.hurried = self.next_hurried
            self.next_hurried = min(2 * self.next_hurried, HURRIED_RELEASES_MAX)
            if self.count:
                self.write(lane)
        while self.count and self.held[self.first].deadline_ms <= lane.now_ms:
            if self.first_is_done():
                self.answer_done(lane)
            elif self.confirm.on_disk(self.held[self.first].upto):
                self.fail_first(lane, COMMIT_SLAVE_LATE)
            else:
                self.fail_first(lane, COMMIT_LATE)
        return SLEEP_MS

    cdef bint first_is_done(self) noexcept nogil:
        return self.count > 0 and self.is_done(self.held[self.first].upto,
                                               self.held[self.first].lacks_slave)

    cdef bint is_done(self, int64_t upto, bint lacks_slave) noexcept nogil:
        """Whether messages that end at `upto` are where they must be."""
        return upto <= self.confirm.offset() or (lacks_slave and self.confirm.on_disk(upto))

    cdef void answer(self, Lane lane, LaneConnection *connection, const uint8_t *answers,
                     int64_t size, bint lacks_slave) noexcept nogil:
        if lacks_slave:
            lane.post(self.failed_kind, connection.id, answers, size, COMMIT_NO_SLAVE)
        else:
            lane.put(connection, answers, size)

    cdef void note_durable(self) noexcept nogil:
        """Note when messages whose answers wait for a slave are on this broker's disk."""
        cdef HeldAnswers *entry
        while self.on_disk < self.count:
            entry = &self.held[(self.first + self.on_disk) % self.capacity]
            if not self.confirm.on_disk(entry.upto):
                break
            entry.stages.durable = monotonic_ns()
            self.on_disk += 1

    cdef void fail_first(self, Lane lane, int32_t why) noexcept nogil:
        cdef HeldAnswers entry = self.held[self.first]
        cdef LaneConnection *connection = lane.table.find(entry.connection)
        cdef int64_t now = monotonic_ns()
        self.first = (self.first + 1) % self.capacity
        self.count -= 1
        self.on_disk -= self.on_disk > 0
        if connection != NULL and now - entry.stages.arrived >= self.times.slow_ns:
            self.times.note_slow(&entry.stages, &entry.answered, now, connection.address,
                                 connection.address_length, connection.port)
        lane.post(self.failed_kind, entry.connection, entry.data, entry.size, why)
        free(entry.data)

    cdef bint grow(self) noexcept nogil:
        cdef void *grown = double_ring(self.held, sizeof(HeldAnswers), self.first, self.capacity)
        if grown == NULL:
            return False
        self.held, self.first, self.capacity = <HeldAnswers *> grown, 0, 2 * self.capacity
        return True
