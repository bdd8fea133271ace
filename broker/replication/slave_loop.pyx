"""The loop of a master's thread: the log to its slaves, their reports back, without the GIL."""

cimport cython
from cpython.exc cimport PyErr_SetFromErrno
from libc.stdint cimport int64_t, uint64_t

from congreve.base.atomic cimport load_acquire, store_release
from congreve.base.clock cimport monotonic_ns
from congreve.broker.replication.slave_connection cimport (
    ASKS, DONE, MORE, Outcome, SlaveConnection,
)
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.replication.confirm_offset cimport ConfirmOffset
from congreve.remoting.lanes cimport sockets

cdef enum:
    PLACES = 128                # for slaves, and for connections that may be a slave's
    EVENTS_MAX = 16
    PAUSE_MAX_MS = 1000
    LOOK_AGAIN_MS = 10          # for a subclass of SlaveConnection that holds frames back
    REST_NS = 1_000_000         # between two rounds of frames, if no send waits for a slave

CONNECTIONS_MAX = PLACES
"""Most connections of a loop."""


@cython.final
cdef class SlaveLoop:
    """Serves slaves until something is left to do in Python.

    serve() returns the connections whose read() and send() have to be called: new ones, ended ones,
    and all whose frames are not RocketMQ 4.9's. `wake` is an eventfd, which ask() and appends
    signal. With `sync_flush` slaves get what is on this master's disk. `confirm` gets the offset
    that any slave has confirmed; None: Python does that. If no send waits for a slave, the loop
    rests for a ms after each round of frames: the next ones are larger, and appends signal nothing
    meanwhile.
    (RocketMQ: HAConnection.ReadSocketService and WriteSocketService.)
    """

    cdef CommitLog log
    cdef ConfirmOffset confirm
    cdef readonly list slaves
    """The connections."""
    cdef void *at[PLACES]   # the same
    cdef int count
    cdef int wake
    cdef int epoll
    cdef bint sync_flush
    cdef bint has_more          # a slave was interrupted so that others get a turn
    cdef bint asks              # a connection does
    cdef int64_t asked          # by ask()
    cdef int64_t fed            # the end up to which all slaves were fed
    cdef bint rests             # after each round of frames
    cdef int64_t rests_until    # ns
    cdef int blocked            # connections that take no more bytes now

    def __cinit__(self, CommitLog log not None, ConfirmOffset confirm, *, int wake,
                  bint sync_flush):
        self.log, self.confirm, self.wake, self.sync_flush = log, confirm, wake, sync_flush
        self.rests = confirm is not None and not confirm.waits_for_slaves
        self.slaves = []
        self.epoll = sockets.epoll_create1(sockets.EPOLL_CLOEXEC)
        if self.epoll < 0:
            PyErr_SetFromErrno(OSError)
        sockets.epoll_read(self.epoll, wake, wake)

    def __dealloc__(self):
        if self.epoll >= 0:
            sockets.close_fd(self.epoll)

    def add(self, SlaveConnection slave not None):
        """Serve this connection, too; at most CONNECTIONS_MAX."""
        assert self.count < PLACES
        self.slaves.append(slave)
        self.take_slaves()
        sockets.epoll_read(self.epoll, slave.fd, slave.fd)

    def remove(self, SlaveConnection slave not None):
        """Stop serving it; call this before its socket is closed."""
        self.slaves.remove(slave)
        self.take_slaves()
        sockets.epoll_set(self.epoll, sockets.EPOLL_CTL_DEL, slave.fd, 0, 0)

    cdef take_slaves(self):
        cdef SlaveConnection slave
        self.count = 0
        for slave in self.slaves:
            self.at[self.count] = <void *> slave
            self.count += 1
        self.log.backend.follow(self.wake if self.count else -1)
        if not self.count:
            with nogil:  # who holds the append lock may need the GIL
                self.log.signal_append(-1)  # `wake` may be closed now, and its number used again

    def ask(self):
        """Let serve() return soon; any thread may call it."""
        store_release(&self.asked, 1)
        sockets.eventfd_write(self.wake, 1)

    def serve(self, double until):
        """Serve until ask(), the time `until`, or a connection needs Python; returns those."""
        cdef SlaveConnection slave
        with nogil:
            while not self.turn(until):
                pass
        found = []
        for slave in self.slaves:
            if slave.asks:
                slave.asks = False
                found.append(slave)
        return found

    cdef bint turn(self, double until) noexcept nogil:
        """Wait for an event, and handle it; True if Python has something to do."""
        cdef sockets.epoll_event[EVENTS_MAX] events
        cdef uint64_t value
        cdef int i, id, found
        cdef int64_t now_ns
        cdef double now
        self.blocked = 0
        for i in range(self.count):
            self.blocked += self.watch(i)
        found = sockets.epoll_wait(self.epoll, events, EVENTS_MAX, self.pause_ms(until))
        now_ns = monotonic_ns()
        now = now_ns / 1e9
        self.asks = False
        for i in range(found):
            id = <int> sockets.event_id(&events[i])
            if id == self.wake:
                sockets.eventfd_read(self.wake, &value)
            else:
                self.read(id, now)
        self.confirm_all()
        if now_ns >= self.rests_until or self.blocked or self.has_more:
            self.feed(now)
        if load_acquire(&self.asked):
            store_release(&self.asked, 0)
            return True
        return self.asks or now >= until

    cdef int pause_ms(self, double until) noexcept nogil:
        """How long nothing has to be done: 0 if the log has grown, unless the loop rests."""
        cdef double left
        cdef int64_t rest = self.rests_until - monotonic_ns()
        if self.has_more:
            return 0
        if rest > 0:
            return <int> ((rest + 999_999) // 1_000_000)
        if self.end() > self.fed:
            return 0
        if self.count and not self.sync_flush:
            # Ask for a signal, then look for what was appended meanwhile.
            self.log.signal_append(self.wake)
            if self.log.max_offset > self.fed:
                return 0
        left = (until - monotonic_ns() / 1e9) * 1000 + 1
        return <int> max(0.0, min(left, <double> self.pause_max_ms()))

    cdef int pause_max_ms(self) noexcept nogil:
        cdef int i
        for i in range(self.count):
            if (
                not (<SlaveConnection> self.at[i]).plain
                and (<SlaveConnection> self.at[i]).started
                and (<SlaveConnection> self.at[i]).next < self.fed
                and not (<SlaveConnection> self.at[i]).head_left
                and not (<SlaveConnection> self.at[i]).body_left
            ):
                return LOOK_AGAIN_MS
        return PAUSE_MAX_MS

    cdef void read(self, int fd, double now) noexcept nogil:
        cdef int i
        for i in range(self.count):
            if (<SlaveConnection> self.at[i]).fd == fd and (<SlaveConnection> self.at[i]).plain:
                self.note(i, (<SlaveConnection> self.at[i]).receive(now))

    cdef void feed(self, double now) noexcept nogil:
        """Send all slaves what is new."""
        cdef Outcome outcome
        cdef int64_t end = self.end()
        cdef int i
        self.has_more = False
        for i in range(self.count):
            if not (<SlaveConnection> self.at[i]).plain:
                outcome = ASKS
            else:
                (<SlaveConnection> self.at[i]).sent = 0
                outcome = (<SlaveConnection> self.at[i]).send_log(end, now)
            self.note(i, outcome)
            self.has_more |= outcome == MORE
        if self.rests and end > self.fed:
            self.rests_until = monotonic_ns() + REST_NS
        self.fed = end

    cdef inline void note(self, int i, Outcome outcome) noexcept nogil:
        if outcome < DONE:
            (<SlaveConnection> self.at[i]).asks = self.asks = True

    cdef bint watch(self, int i) noexcept nogil:
        """Let epoll report a blocked connection that takes more bytes; True if it is one."""
        cdef bint blocked = (
            (<SlaveConnection> self.at[i]).head_left > 0
            or (<SlaveConnection> self.at[i]).body_left > 0
        )
        if blocked != (<SlaveConnection> self.at[i]).watched:
            (<SlaveConnection> self.at[i]).watched = blocked
            sockets.epoll_set(
                self.epoll, sockets.EPOLL_CTL_MOD, (<SlaveConnection> self.at[i]).fd,
                sockets.EPOLLIN | (sockets.EPOLLOUT if blocked else 0),
                (<SlaveConnection> self.at[i]).fd,
            )
        return blocked

    def confirm_reports(self):
        """Release the sends that waited for bytes that slaves have now."""
        self.confirm_all()

    cdef void confirm_all(self) noexcept nogil:
        cdef int64_t acknowledged = 0
        cdef int following = 0
        cdef int i
        if self.confirm is None:
            return
        for i in range(self.count):
            if (<SlaveConnection> self.at[i]).started:
                following += 1
                acknowledged = max(acknowledged, (<SlaveConnection> self.at[i]).acknowledged)
        self.confirm.take(acknowledged, following)

    cdef int64_t end(self) noexcept nogil:
        """Slaves may have the log up to here."""
        return self.durable() if self.sync_flush else self.log.max_offset

    cdef int64_t durable(self) noexcept with gil:
        return self.log.backend.durable_offset  # takes completed writes
