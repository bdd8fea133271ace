"""A thread that serves connections without the interpreter's lock.

A lane accepts connections, reads their bytes, splits them into frames, and writes answers. Its sink
answers the frames that it can serve. All other frames go to the event loop through a mailbox, and
the loop's answers come back through another one. The loop has the protocol of each connection, the
lane has its bytes: see remoting/lanes/transport.py.

A lane has two seams. Only the lane's thread calls either, never with the interpreter's lock, and
neither may block:

- Transports, ConnectionTable in connections.pyx: open() tells from the first byte which one a
  connection has; receive() and transmit() move its bytes, and return what a socket's recv and send
  do, an error as a negative errno; close() ends it. What they read are bytes of frames, so that
  nothing above knows of the transport. There are the socket itself, a session of TLS
  (remoting/tls/sessions.pyx), and one end of a pair of sockets where the loop decrypts. On any of
  them there may be a session of HTTP/2 (http2.pyx), which makes frames of calls, and messages of
  the frames that answer; it has calls for the loop, too.
- Sinks, LaneSink: what serves the frames. take() takes whole frames from the bytes of one
  connection, in their order, and answers with put() or gives a frame to the loop with pass_frame();
  what it does not take comes again with the bytes after it. A frame that later ones must not
  overtake is `ordered`. turn_ended() runs once in each turn, and says how long the lane may sleep;
  handle_entry() gets what the loop or another lane tells the sink; closed() comes last.
"""

cimport cython
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, ENOMEM, EPROTO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from congreve.base.atomic cimport store_relaxed
from congreve.base.byte_buffer cimport release
from congreve.base.clock cimport monotonic_ns
from congreve.remoting.lanes cimport entry_kinds, sockets
from congreve.remoting.lanes.busy_poll cimport BusyPoll, lost_cores
from congreve.remoting.lanes.connections cimport (
    Listeners,
    Opening,
    has_large_frame,
    has_output,
    may_not_serve,
    wanted_events,
)
from congreve.remoting.lanes.http2 cimport Http2Sessions
from congreve.remoting.lanes.time_slice cimport wish_slice
from congreve.remoting.tls.sessions cimport TlsSessions
from congreve.remoting.wire.frame cimport FRAME_BAD, FRAME_PARTIAL, Frame, FrameStatus, next_frame

cdef enum:
    INPUT_SIZE = 512 * 1024     # of the read buffer of all connections
    TURN_BYTES = 256 * 1024     # read in one turn, after which large frames wait for the next
    LARGE_READ = 128 * 1024     # bytes of a large frame that are read at once
    FRAMES_KEPT = 1024 * 1024   # bytes of the frames of calls whose memory is kept
    LATE_READ = 16 * 1024       # bytes that other connections may read after TURN_BYTES
    SMALL_CHUNK = 2048          # the lane polls after one: its peer probably waits for the answer
    HIGH_WATER = 1024 * 1024    # unsent bytes at which the lane stops reading
    LOW_WATER = 256 * 1024      # and at which it reads again
    EVENTS_MAX = 64
    ACCEPTS_A_TURN = 64
    UNTOLD_MAX = 16             # connections that the loop need not know of yet
    ENTRIES_MAX = 256
    CHECK_MS = 250
    PORT_SIZE = 2               # bytes of the port behind the address of an adopted connection
    SLICE_NS = 100_000          # Linux's least

# Ids in epoll of the descriptors that are not connections.
cdef uint64_t MAILBOX = <uint64_t> 1 << 62
cdef uint64_t SINK = MAILBOX + 1
cdef uint64_t FIRST_LISTENER = MAILBOX + 2     # and all higher numbers


cdef class LaneSink:
    """Takes frames from the bytes of a lane's connections; this class gives all to the loop."""

    def __cinit__(self, *_, **__):
        self.event_fd = -1

    cdef int64_t take(self, Lane lane, LaneConnection *connection, const uint8_t *data,
                      int64_t available) noexcept nogil:
        cdef Frame frame
        cdef FrameStatus status
        cdef int64_t taken = 0
        while True:
            status = next_frame(data + taken, available - taken, &frame)
            if status == FRAME_PARTIAL:
                return taken
            if status == FRAME_BAD:
                return UNFRAMEABLE
            if not lane.pass_frame(connection, frame.data, frame.size, False, True):
                return taken
            taken += frame.size

    cdef int turn_ended(self, Lane lane) noexcept nogil:
        return CHECK_MS

    cdef void readable(self, Lane lane) noexcept nogil:
        pass

    cdef void handle_entry(self, Lane lane, const MailboxEntry *entry) noexcept nogil:
        pass

    cdef void closed(self, LaneConnection *connection) noexcept nogil:
        pass


@cython.final
cdef class Lane:
    """Accepts and serves connections of listening sockets, in the thread that calls run().

    The thread polls without sleeping for `poll_s` seconds after a small chunk, as BusyPoll lets it.
    It closes a connection after `idle_s` without a byte, when the first frame is not complete after
    `first_frame_s`, and when a later one is not after `frame_timeout_s`; either has one more second
    for each `frame_bytes_per_s` bytes of the frame. It keeps at most `unfinished_max` bytes of
    incomplete frames. `entries_max` and `entry_bytes_max` bound the entries that wait for the loop.
    With `tls` connections may be encrypted, with `http2` they may speak HTTP/2.
    """

    def __cinit__(self, listeners, LaneSink sink not None, *, double poll_s=0.0,
                  double idle_s=120.0, double first_frame_s=30.0, double frame_timeout_s=30.0,
                  double frame_bytes_per_s=32768, int64_t unfinished_max=256 << 20,
                  int64_t entries_max=16384, int64_t entry_bytes_max=32 << 20,
                  TlsSessions tls=None, Http2Sessions http2=None):
        self.sink = sink
        self.busy_poll = BusyPoll(poll_s)
        self.unfinished_max = unfinished_max
        self.crowded_bytes = unfinished_max - unfinished_max // 8
        self.to_loop = Mailbox(entries_max, entry_bytes_max)
        self.to_lane = sink.mailbox = Mailbox(entries_max, entry_bytes_max)
        if http2 is not None:
            http2.to_loop = self.to_loop
        self.table = ConnectionTable(
            tls, idle_s, first_frame_s, frame_timeout_s, frame_bytes_per_s, http2
        )
        self.handle = LaneHandle(self.to_loop, self.to_lane, self.table)
        self.epoll = -1
        self.now_ms = monotonic_ns() // 1_000_000
        self.input = <uint8_t *> malloc(INPUT_SIZE)
        if self.input == NULL:
            raise MemoryError()
        self.epoll = sockets.epoll_create1(sockets.EPOLL_CLOEXEC)
        if self.epoll < 0:
            PyErr_SetFromErrno(OSError)
        self.may_listen = True
        self.listeners = Listeners(self.epoll, listeners, FIRST_LISTENER)
        self.listeners.listen(True)
        sockets.epoll_read(self.epoll, self.to_lane.event_fd, MAILBOX)
        if sink.event_fd >= 0:
            sockets.epoll_read(self.epoll, sink.event_fd, SINK)

    def __dealloc__(self):
        free(self.input)
        release(&self.frames)
        if self.epoll >= 0:
            sockets.close_fd(self.epoll)

    def run(self):
        """Serve until the handle's stop(); the body of the lane's thread.

        Since Linux 6.12 a thread with a short time slice gets a core soon after it wakes, also from
        one that computes; another thread could keep it waiting for 3 ms. Its share is the same.
        """
        with nogil:
            wish_slice(SLICE_NS)
            while not self.stopping:
                self.serve()
            # Some may have been accepted meanwhile, and the table may live on.
            self.table.close_all()

    cdef int serve(self) noexcept nogil:
        cdef sockets.epoll_event[EVENTS_MAX] events
        cdef LaneConnection *connection
        cdef uint64_t id
        cdef int wanted_ms = self.sink.turn_ended(self)
        cdef int sleep_ms = self.sleep_ms(wanted_ms)
        cdef int i, place, found = sockets.epoll_wait(self.epoll, events, EVENTS_MAX, sleep_ms)
        cdef int64_t now_ns = monotonic_ns()
        if wanted_ms == 0 and sleep_ms == 0 and found == 0:  # the sink waits for the kernel
            self.busy_poll.polled(now_ns, lost_cores())
        self.now_ms = now_ns // 1_000_000
        self.turn_left = TURN_BYTES
        self.turns += 1
        for i in range(found):
            place = <int> ((self.turns + i) % found)    # each begins a turn now and then
            id = sockets.event_id(&events[place])
            if id == MAILBOX:
                self.read_entries()
            elif id == SINK:
                self.sink.readable(self)
            elif id >= FIRST_LISTENER:
                self.accept_all(<int32_t> (id - FIRST_LISTENER))
            else:
                connection = self.table.find(<int64_t> id)
                if connection != NULL:
                    self.serve_connection(connection, events[place].events)
                    if self.table.unfinished_bytes > self.unfinished_max:
                        self.shed(self.crowded_bytes)
        if self.now_ms >= self.next_check_ms:
            self.check_timeouts()
        return found

    cdef void serve_connection(self, LaneConnection *connection, uint32_t events) noexcept nogil:
        if events & sockets.EPOLLOUT and has_output(connection):
            self.write_out(connection)
        if connection.fd >= 0 and connection.events & sockets.EPOLLIN:
            if not has_large_frame(connection):
                self.read(connection)
            elif self.table.unfinished_bytes > self.crowded_bytes:
                connection.without_room = True
                self.watch(connection)
            elif self.turn_left > 0:
                self.read(connection)
        elif events & (sockets.EPOLLHUP | sockets.EPOLLERR):
            self.close(connection, 0)  # a peer that closes while reading is paused

    cdef int sleep_ms(self, int wanted) noexcept nogil:
        cdef int64_t now_ns = monotonic_ns()
        if self.polls:
            self.polls = False
            self.busy_poll.expect_more(now_ns)
        return 0 if self.busy_poll.is_due(now_ns) else min(wanted, <int> CHECK_MS)

    # Connections.

    cdef void accept_all(self, int32_t listener) noexcept nogil:
        cdef LaneConnection *connection
        cdef int accepted
        for accepted in range(ACCEPTS_A_TURN):
            if accepted and self.untold >= UNTOLD_MAX:
                return  # the next turn first takes those that have ended
            if self.to_loop.waiting() > self.to_loop.count_max // 2:
                self.listeners.listen(False)  # the loop is behind; look() listens again
                return
            connection = self.table.accept(self.listeners.descriptors[listener], self.now_ms)
            if connection == NULL:
                if errno != EAGAIN and errno != EINTR:
                    self.listeners.listen(False)  # no descriptor, or no memory
                return
            self.begin(connection, listener)
            if self.untold > UNTOLD_MAX:
                self.tell_opened(connection)

    cdef void begin(self, LaneConnection *connection, int32_t listener) noexcept nogil:
        connection.events = sockets.EPOLLIN
        connection.listener = listener
        connection.told = False
        self.connections += 1
        self.untold += 1
        sockets.epoll_read(self.epoll, connection.fd, <uint64_t> connection.id)

    cdef void adopt(self, const MailboxEntry *entry) noexcept nogil:
        cdef int32_t length = <int32_t> entry.size - PORT_SIZE
        cdef int32_t port = entry.data[length] << 8 | entry.data[length + 1]
        cdef LaneConnection *connection = self.table.adopt(
            entry.number, entry.data, length, port, self.now_ms
        )
        if connection != NULL:
            self.begin(connection, <int32_t> entry.connection)
            self.tell_opened(connection)

    cdef void tell_opened(self, LaneConnection *connection) noexcept nogil:
        """Let the loop know of the connection: when bytes come, or at the next check.

        Connections that end before cost the loop nothing. It bounds the number of all others.
        """
        if not connection.told:
            connection.told = True
            self.untold -= 1
            self.post(entry_kinds.OPENED, connection.id, connection.address,
                      connection.address_length, connection.listener << 16 | connection.port)

    cdef void close(self, LaneConnection *connection, int error) noexcept nogil:
        if connection.fd < 0:
            return
        self.sink.closed(connection)
        self.table.close(connection, not error)
        self.connections -= 1
        if connection.told:
            self.to_loop.post_of(
                entry_kinds.CLOSED, connection.id, NULL, 0, error, True, &connection.last_late)
        else:
            self.untold -= 1

    cdef void watch(self, LaneConnection *connection) noexcept nogil:
        """Set the events that epoll reports for the connection."""
        cdef uint32_t events = wanted_events(connection)
        if events != connection.events:
            connection.events = events
            sockets.epoll_set(self.epoll, sockets.EPOLL_CTL_MOD, connection.fd, events,
                              <uint64_t> connection.id)

    cdef bint decide(self, LaneConnection *connection) noexcept nogil:
        """Look at the first byte; whether this lane serves the connection."""
        cdef Opening opening = self.table.open(connection, self.now_ms)
        if opening == Opening.HANDED_OVER:
            self.tell_opened(connection)
            return self.hand_over(connection)
        if opening == Opening.REFUSED:
            self.cut(connection, entry_kinds.CUT_PLAIN)
        elif opening == Opening.ENDED:
            self.close(connection, 0)
        return opening == Opening.READY

    cdef bint hand_over(self, LaneConnection *connection) noexcept nogil:
        """Serve one end of a pair in place of an encrypted connection, which the loop decrypts."""
        cdef int[2] pair
        cdef int encrypted = connection.fd
        if sockets.make_pair(pair) < 0:
            self.close(connection, errno)
            return False
        sockets.epoll_set(self.epoll, sockets.EPOLL_CTL_DEL, encrypted, 0, 0)
        sockets.reset_at_exit(encrypted, False)  # what the loop has written reaches the peer
        connection.fd = pair[0]
        sockets.epoll_read(self.epoll, connection.fd, <uint64_t> connection.id)
        self.post(entry_kinds.HANDED_OVER, connection.id, &pair[1], sizeof(int), encrypted)
        return True

    # Reading.

    cdef void read(self, LaneConnection *connection) noexcept nogil:
        cdef int64_t got, before = connection.pending.used, size = INPUT_SIZE
        cdef uint8_t *data
        if connection.undecided and not self.decide(connection):
            return
        if connection.http2 == NULL:
            data = self.table.buffer_for(connection, self.input, &size)
        else:
            data, before = self.input, 0    # whole frames are pending
        if data == connection.pending.data:
            size = min(size, before + LARGE_READ)
        elif self.turn_left <= 0:
            size = before + LATE_READ
        got = self.table.receive(connection, data + before, size - before)
        if got <= 0:
            if got != -EAGAIN and got != -EINTR:
                self.close(connection, <int32_t> -got)
            elif connection.session != NULL:
                self.watch(connection)
            return
        self.turn_left -= got
        self.tell_opened(connection)
        connection.active_ms = self.now_ms
        if connection.unframed:
            connection.unframed = False
            if data[0] == c"P" and not self.table.begin_http2(connection):
                self.close(connection, ENOMEM)
                return
        if connection.http2 != NULL:
            self.take_http2(connection, data, got)
        else:
            if data == connection.pending.data:
                connection.pending.used += got
            self.take(connection, data, before + got)
        self.polls |= got <= SMALL_CHUNK

    cdef void take_http2(self, LaneConnection *connection, const uint8_t *data,
                         int64_t length) noexcept nogil:
        """Give bytes to the session, pass its frames to the sink, and send what it has to send."""
        cdef int error
        self.frames.used = 0
        error = self.table.receive_http2(connection, data, length, self.now_ms, &self.frames)
        if error:
            self.close(connection, error)
            return
        if connection.http2.calls:
            connection.accepted_ms = 0
        if self.frames.used and (may_not_serve(connection) or connection.pending.used):
            if not self.table.keep_frames(connection, &self.frames):
                self.close(connection, ENOMEM)
        elif self.frames.used:
            self.take(connection, self.frames.data, self.frames.used)
        if self.frames.size > FRAMES_KEPT:
            release(&self.frames)
        self.flush_http2(connection)

    cdef void flush_http2(self, LaneConnection *connection) noexcept nogil:
        """Send what the session has to send; close the connection when that was the last."""
        cdef bint peer_slow = connection.peer_slow
        cdef int error
        if connection.fd < 0:
            return
        error = self.table.flush_http2(connection)
        if error or (
            (connection.closing or connection.http2.finished) and not connection.unsent
        ):
            self.close(connection, error)
            return
        self.count_unsent(connection)
        self.watch(connection)
        if peer_slow and not connection.peer_slow:
            self.resume(connection)

    cdef void leave_http2(self) noexcept nogil:
        """Tell all peers with HTTP/2 to begin no further call here."""
        cdef LaneConnection *connection
        cdef int32_t place
        for place in range(self.table.places):
            connection = self.table.at(place)
            if connection.fd >= 0 and connection.http2 != NULL:
                self.table.http2.go_away(connection.http2)
                self.flush_http2(connection)

    cdef void take(self, LaneConnection *connection, const uint8_t *data,
                   int64_t available) noexcept nogil:
        """Pass the bytes to the sink, and keep those that it does not take."""
        cdef int64_t taken = self.sink.take(self, connection, data, available)
        if connection.fd < 0:
            return
        if taken == UNFRAMEABLE:
            self.to_loop.post_of(entry_kinds.UNFRAMEABLE, connection.id, data,
                                 min(available, <int64_t> 8), 0, True, &connection.last_late)
            connection.paused = True
            taken = available
        if taken:
            connection.accepted_ms = 0
        if taken == available:
            self.table.drop_pending(connection)
        else:
            if taken or not connection.pending.used:
                connection.pending_since_ms = self.now_ms
            if not self.table.keep_pending(connection, data + taken, available - taken):
                self.close(connection, ENOMEM)
                return
        self.watch(connection)

    cdef void resume(self, LaneConnection *connection) noexcept nogil:
        """Serve the frames that arrived before a pause, then read again."""
        if may_not_serve(connection):
            return
        if connection.pending.used:
            self.take(connection, connection.pending.data, connection.pending.used)
        elif connection.fd >= 0:
            self.watch(connection)
        if connection.fd >= 0 and connection.http2 != NULL:
            self.flush_http2(connection)    # the peer has room again

    cdef bint pass_frame(self, LaneConnection *connection, const uint8_t *data, int64_t size,
                         bint ordered, bint may_be_late) noexcept nogil:
        """Give a whole frame to the loop; False when it must wait.

        No frame goes to the loop before handled() was called for each `ordered` one there. Entries
        of other connections overtake a large one that `may_be_late`.
        """
        if connection.ordered:
            return False
        if not self.to_loop.post_of(
            entry_kinds.FRAME, connection.id, data, size, ordered | (connection.http2 != NULL) << 1,
            False, &connection.last_late if may_be_late and connection.http2 == NULL else NULL,
        ):
            connection.mailbox_full = True
            return False
        connection.ordered += ordered
        return True

    cdef void post(self, int32_t kind, int64_t connection, const void *data, int64_t size,
                   int32_t number) noexcept nogil:
        self.to_loop.post(kind, connection, <const uint8_t *> data, size, number, True)

    # Writing.

    cdef void put(self, LaneConnection *connection, const uint8_t *data,
                  int64_t length) noexcept nogil:
        """Send bytes now, or when the peer reads."""
        cdef int error = self.table.send(connection, data, length)
        connection.active_ms = self.now_ms
        if error:
            self.close(connection, error)
        elif connection.unsent:
            self.count_unsent(connection)
            self.watch(connection)

    cdef void count_unsent(self, LaneConnection *connection) noexcept nogil:
        """Stop reading from a peer that does not read, and notify the loop."""
        if connection.unsent > HIGH_WATER and not connection.peer_slow:
            connection.peer_slow = True
            self.post(entry_kinds.UNWRITABLE, connection.id, NULL, 0, 0)
        elif connection.unsent < LOW_WATER and connection.peer_slow:
            connection.peer_slow = False
            self.post(entry_kinds.WRITABLE, connection.id, NULL, 0, 0)

    cdef void write_out(self, LaneConnection *connection) noexcept nogil:
        cdef bint peer_slow = connection.peer_slow
        cdef int error = self.table.send_kept(connection)
        connection.active_ms = self.now_ms
        if error or (connection.closing and not connection.unsent):
            self.close(connection, error)
            return
        self.count_unsent(connection)
        self.watch(connection)
        if peer_slow and not connection.peer_slow:
            self.resume(connection)

    # Mailbox entries from the loop.

    cdef void read_entries(self) noexcept nogil:
        cdef MailboxEntry[ENTRIES_MAX] taken
        cdef bint refused
        cdef int64_t i
        cdef int64_t count = self.to_lane.take(taken, ENTRIES_MAX, &refused)
        for i in range(count):
            self.handle_entry(&taken[i])
            free(taken[i].data)

    cdef void handle_entry(self, MailboxEntry *entry) noexcept nogil:
        cdef LaneConnection *connection = self.table.find(entry.connection)
        cdef int32_t place
        if entry.kind == entry_kinds.STOP:
            self.stopping = True
        elif entry.kind == entry_kinds.FENCE:
            self.post(entry_kinds.FENCED, -1, NULL, 0, entry.number)
        elif entry.kind == entry_kinds.STOP_LISTENING:
            self.listeners.listen(False)
            self.may_listen = False
            self.leave_http2()
        elif entry.kind == entry_kinds.ADOPT:
            self.adopt(entry)
        elif entry.kind == entry_kinds.ROOM:
            for place in range(self.table.places):
                connection = self.table.at(place)
                if connection.fd >= 0 and connection.mailbox_full:
                    connection.mailbox_full = False
                    self.resume(connection)
        elif entry.kind >= entry_kinds.TO_SINK:
            self.sink.handle_entry(self, entry)
        elif connection == NULL:
            pass
        elif entry.kind == entry_kinds.WRITE:
            store_relaxed(&connection.received, connection.received + entry.size)
            if self.table.keep(connection, entry):
                self.write_out(connection)
            else:
                self.put(connection, entry.data, entry.size)
        elif entry.kind == entry_kinds.REPLY:
            if connection.http2 != NULL and self.table.http2.reply(
                connection.http2, entry.number, entry.data, entry.size
            ):
                self.close(connection, ENOMEM)
            elif connection.http2 != NULL:
                self.flush_http2(connection)
        elif entry.kind == entry_kinds.ABORT:
            self.close(connection, 0)
        elif entry.kind == entry_kinds.CLOSE:
            connection.closing = True
            if not connection.unsent:
                self.close(connection, 0)
        elif entry.kind == entry_kinds.PAUSE:
            connection.paused = True
            self.watch(connection)
        elif entry.kind == entry_kinds.RESUME:
            connection.paused = False
            self.resume(connection)
        elif entry.kind == entry_kinds.HANDLED:
            connection.ordered = 0
            self.resume(connection)
        elif entry.kind == entry_kinds.NOTIFY_WRITABLE:
            if connection.unsent < LOW_WATER:
                self.post(entry_kinds.WRITABLE, connection.id, NULL, 0, 0)
            else:
                connection.peer_slow = True
                self.watch(connection)

    cdef void check_timeouts(self) noexcept nogil:
        """Close connections that are idle, or whose frame arrives too slowly."""
        cdef LaneConnection *connection
        cdef int32_t place, late
        self.next_check_ms = self.now_ms + CHECK_MS
        if self.table.unfinished_bytes > self.crowded_bytes:
            self.shed(self.crowded_bytes - self.unfinished_max // 8)
        if self.may_listen and self.to_loop.waiting() <= self.to_loop.count_max // 4:
            self.listeners.listen(True)
        for place in range(self.table.places):
            connection = self.table.at(place)
            if connection.fd >= 0 and connection.accepted_ms < self.now_ms:
                self.tell_opened(connection)
            late = self.table.lateness(connection, self.now_ms)
            if late == entry_kinds.CLOSED:
                if connection.http2 != NULL:
                    self.table.http2.go_away(connection.http2)
                    self.table.flush_http2(connection)
                self.close(connection, 0)
            elif late != entry_kinds.OPENED:
                self.cut(connection, late)
            elif connection.without_room:
                connection.without_room = False
                self.watch(connection)

    cdef void cut(self, LaneConnection *connection, int32_t why) noexcept nogil:
        self.tell_opened(connection)
        self.cut_count += why == entry_kinds.CUT_LATE or why == entry_kinds.CUT_LARGE
        self.post(why, connection.id, NULL, 0,
                  <int32_t> (connection.pending.used + connection.held))
        self.close(connection, EPROTO)

    cdef void shed(self, int64_t upto) noexcept nogil:
        """Close the connections with the most pending bytes until at most `upto` bytes are left.

        Large frames wait beyond `crowded_bytes`, and check_timeouts() makes some room: a peer whose
        frames are cut and sent again takes little of the lane's time.
        """
        while self.table.unfinished_bytes > upto:
            self.cut(self.table.largest(), entry_kinds.CUT_LARGE)
