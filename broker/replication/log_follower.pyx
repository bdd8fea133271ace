"""A slave's connection to its master (RocketMQ: HAService.HAClient)."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from congreve.base.clock cimport monotonic_ns
from congreve.base.cursor cimport load_i32, load_i64, store_i64
from congreve.broker.replication cimport stream
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.replication.log_receiver cimport LogReceiver
from congreve.remoting.lanes cimport sockets

import os

from congreve.broker.ha_frames import FRAME_MAX, HEADER
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.remoting.loop.event_fd import EventFd

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int microseconds)

cdef enum:
    READ_MAX = 256 << 10        # bytes of one read; their records become visible together
    DISK_PAUSE_US = 1000        # while the disk is so far behind that no memory is free for more
    UNREPORTED_MAX = 1 << 20    # bytes after which the slave reports although more have arrived
    HEADER_MAX = 64             # bytes of a header or report

cdef int32_t SIZE_MAX = FRAME_MAX
cdef double LOOK_S = 0.2         # how often a slave that waits for its disk looks whether to stop


cdef class LogFollower:
    """Receives a master's log on the thread that calls follow(), mostly without the GIL.

    A simulation calls begin(), then step() whenever something may have happened, and end(); its
    `clock` returns the time in ns.

    It reports what it has: with SYNC_FLUSH what is on its disk, else what is in its log. It calls
    `arrived` with the watched queues that got entries. It
    disconnects from a master that is silent for haHousekeepingInterval (4.9.4's slave never notices
    that its master has died).

    A subclass may have other headers and reports: header_size, take_header(), report_frame() and
    have(), which are called with the GIL.
    (RocketMQ: HAService.HAClient.)
    """

    header_size = HEADER.size
    """Bytes of a frame before those of the log."""

    cdef readonly LogReceiver receiver
    """Where the log goes."""
    cdef readonly object store
    """The store of the log."""
    cdef public int64_t reported
    """The last offset that was reported, -1 if the next report is due in any case."""
    cdef CommitLog log
    cdef object arrived
    cdef object wake
    cdef bint plain             # RocketMQ 4.9's frames
    cdef bint sync_flush
    cdef bint wakes_flush       # after each chunk
    cdef bint stopping
    cdef int fd
    cdef int wake_fd
    cdef int64_t heartbeat_ns
    cdef int64_t silence_ns
    cdef int64_t heard_ns       # when the master was heard last
    cdef int64_t reported_ns
    cdef object clock           # None: that of the machine
    cdef int64_t left           # bytes of the frame that have not arrived
    cdef int header_capacity
    cdef int header_used
    cdef uint8_t[HEADER_MAX] header
    cdef uint8_t[HEADER_MAX] unsent     # of a report
    cdef int unsent_size

    def __init__(self, store not None, settings not None, arrived not None, clock=None):
        self.clock = clock
        self.receiver, self.store, self.log = LogReceiver(store), store, store.log
        self.arrived = arrived
        self.plain = type(self) is LogFollower
        self.sync_flush = settings.sync_flush
        self.wakes_flush = store.flush_timer.wants_wake
        self.heartbeat_ns = <int64_t> (settings.heartbeat_s * 1e9)
        self.silence_ns = <int64_t> (settings.silence_s * 1e9)
        self.header_capacity = self.header_size
        self.wake = EventFd()
        self.wake_fd = self.wake.descriptor
        self.reported = -1

    def stop(self):
        """End follow() soon; any thread may call it."""
        self.stopping = True
        self.wake.signal()

    def close(self):
        """Free the eventfd, after follow() has ended."""
        self.wake.close()

    def follow(self, master, int64_t start):
        """Report `start`, then take the log until the connection ends or stop().

        With SYNC_FLUSH it waits until the log is on disk: the first report acknowledges it.
        Raises OSError for a lost connection, ReplicationError for a master that is silent or breaks
        the protocol, StoreError and BackendError if this store cannot take what arrives.
        """
        if not self.begin(master, start):
            return
        try:
            with nogil:
                while not self.stopping:
                    self.turn(self.pause_ms())
        finally:
            self.end()

    def begin(self, master not None, int64_t start):
        """The part of follow() before its loop; False after stop()."""
        master.setblocking(False)
        self.fd = master.fileno()
        self.heard_ns = self.now_ns()
        self.header_used = self.unsent_size = 0
        self.left = 0
        if self.sync_flush and not self.is_on_disk():
            return False
        if start > self.receiver.received:
            self.receiver.assume_zeros(start - self.receiver.received)
        self.store.backend.follow(self.wake_fd)
        try:
            self.report(start)
        except BaseException:
            self.end()
            raise
        return True

    def step(self):
        """One turn of follow()'s loop, which waits for nothing. Raises what follow() raises."""
        self.turn(0)

    def end(self):
        """The part of follow() behind its loop."""
        self.store.backend.follow(-1)
        self.receiver.drop_partial()

    cdef bint is_on_disk(self) except -1:
        """Wait until the log is on disk; False after stop().

        A connection that ended by an error may have left a part that no flush was requested for.
        Raises ReplicationError if the disk has failed.
        """
        backend = self.store.backend
        while not backend.wait_durable(self.log.max_offset, LOOK_S):
            if backend.failure_errno:
                reason = os.strerror(backend.failure_errno)
                raise ReplicationError(f"this slave's log is not on its disk: {reason}")
            if self.stopping:
                return False
        return True

    # --- what a subclass may replace

    def take_header(self, bytes header not None):
        """The physical offset and the size of the bytes that follow. Raises ReplicationError."""
        return HEADER.unpack(header)

    def report_frame(self, int64_t offset):
        """A report of what this slave has."""
        cdef uint8_t[stream.REPORT_SIZE] frame
        store_i64(frame, offset)
        return bytes(frame[:stream.REPORT_SIZE])

    def have(self):
        """The physical offset to report."""
        return self.stored_end()

    # --- the loop

    cdef int64_t now_ns(self) except -1 nogil:
        return monotonic_ns() if self.clock is None else self.ask_clock()

    cdef int64_t ask_clock(self) except -1 with gil:
        return self.clock()

    cdef int turn(self, int pause_ms) except -1 nogil:
        cdef uint64_t value
        cdef int64_t there, now
        cdef int ready = stream.readable(self.fd, self.wake_fd, pause_ms)
        if ready & 2:
            sockets.eventfd_read(self.wake_fd, &value)
        if ready & 1:
            self.read_all()
            if self.sync_flush:
                # A single write is quicker here than on another thread; several continue beside it.
                self.log.backend.write_here(self.log.max_offset)
        there = self.stored_end() if self.plain else self.ask_have()
        now = self.now_ns()
        if there > self.reported or now - self.reported_ns >= self.heartbeat_ns:
            self.report(max(there, self.reported))
        if now - self.heard_ns > self.silence_ns:
            self.refuse_silence()
        return 0

    cdef int64_t ask_have(self) except? -1 with gil:
        return self.have()

    cdef int64_t stored_end(self) noexcept nogil:
        """Up to where the log is in memory, or with SYNC_FLUSH on disk."""
        if self.sync_flush:
            return min(self.durable(), self.log.max_offset)
        return self.log.max_offset

    cdef int64_t durable(self) noexcept with gil:
        return self.log.backend.durable_offset  # takes completed writes

    cdef int pause_ms(self) except -1 nogil:
        cdef int64_t until = min(self.reported_ns + self.heartbeat_ns,
                                 self.heard_ns + self.silence_ns)
        return <int> (max(until - self.now_ns(), <int64_t> 0) // 1_000_000 + 1)

    cdef int read_all(self) except -1 nogil:
        """Read what has arrived, but report now and then."""
        cdef int64_t before = self.receiver.received
        while self.receiver.received - before < UNREPORTED_MAX and not self.stopping:
            if not self.read_some():
                return 0
        return 0

    cdef bint read_some(self) except -1 nogil:
        """Read bytes of the log, and the next header behind them; False if no more have arrived."""
        cdef uint8_t *at = NULL
        cdef int64_t wanted = 0
        cdef int64_t got
        if self.left:
            wanted = self.receiver.writable_at(min(self.left, <int64_t> READ_MAX), &at)
            if not wanted:
                usleep(DISK_PAUSE_US)
                return False
        if wanted < self.left:
            got = sockets.recv(self.fd, at, wanted, 0)
        else:
            got = stream.receive_both(self.fd, at, wanted, self.header + self.header_used,
                                      self.header_capacity - self.header_used)
        if got < 0 and errno in (EAGAIN, EINTR):
            return False
        if got <= 0:
            self.lost(errno if got < 0 else 0)
        self.heard_ns = self.now_ns()
        if wanted:
            self.take(min(got, wanted))
        if got > wanted or not wanted:
            self.header_used += <int> (got - wanted)
            if self.header_used == self.header_capacity:
                self.header_used = 0
                self.begin_frame()
        return got >= wanted and self.left > 0

    cdef int take(self, int64_t count) except -1 nogil:
        self.left -= count
        self.receiver.take_bytes(count)
        if self.wakes_flush or self.receiver.has_arrived():
            self.notify()
        return 0

    cdef int notify(self) except -1 with gil:
        if self.wakes_flush:
            self.store.flush_timer.wake()
        found = self.receiver.take_arrived()
        if found:
            self.arrived(found)
        return 0

    cdef int begin_frame(self) except -1 nogil:
        cdef int64_t offset = 0
        cdef int64_t size = 0
        if self.plain:
            offset, size = load_i64(self.header), load_i32(self.header + 8)
        else:
            self.ask_header(&offset, &size)
        if offset != self.receiver.received or not 0 <= size <= SIZE_MAX:
            self.refuse_header(offset, size)
        self.left = size
        return 0

    cdef int ask_header(self, int64_t *offset, int64_t *size) except -1 with gil:
        offset[0], size[0] = self.take_header(bytes(self.header[:self.header_capacity]))
        return 0

    cdef int report(self, int64_t offset) except -1 nogil:
        cdef Py_ssize_t sent
        if not self.unsent_size:
            if self.plain:
                store_i64(self.unsent, offset)
                self.unsent_size = stream.REPORT_SIZE
            else:
                self.ask_report(offset)
            self.reported = max(offset, self.log.min_offset)
            self.reported_ns = self.now_ns()
        sent = sockets.send(self.fd, self.unsent, self.unsent_size, sockets.MSG_NOSIGNAL)
        if sent < 0 and errno not in (EAGAIN, EINTR):
            self.lost(errno)
        if sent > 0:
            self.unsent_size -= <int> sent
            memmove(self.unsent, self.unsent + sent, self.unsent_size)
        return 0

    cdef int ask_report(self, int64_t offset) except -1 with gil:
        cdef bytes frame = self.report_frame(offset)
        cdef int size = <int> len(frame)
        assert size <= HEADER_MAX
        memcpy(self.unsent, <const char *> frame, size)
        self.unsent_size = size
        return 0

    # --- why it leaves the master

    cdef int lost(self, int error) except -1 with gil:
        if error:
            raise OSError(error, os.strerror(error))
        raise ReplicationError("the master has closed the connection")

    cdef int refuse_silence(self) except -1 with gil:
        raise ReplicationError(f"the master was silent for {self.silence_ns / 1e9:g} s")

    cdef int refuse_header(self, int64_t offset, int64_t size) except -1 with gil:
        if offset != self.receiver.received:
            raise ReplicationError(
                f"the master sends its log from {offset}, but this slave needs it from "
                f"{self.receiver.received}"
            )
        raise ReplicationError(f"a frame of {size} bytes: 0 to {FRAME_MAX} are possible")
