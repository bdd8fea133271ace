"""One slave as its master sees it (RocketMQ: HAConnection)."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from congreve.base.cursor cimport load_i64, store_i32, store_i64
from congreve.broker.replication cimport stream
from congreve.engine.log.commit_log cimport CommitLog
from congreve.remoting.lanes cimport sockets

import os

from congreve.broker.errors import BrokerError
from congreve.broker.ha_frames import (
    ASK, CHALLENGE, EMPTY_LOG, FRAME_MAX, HEADER, LOGIN, LOGIN_HEAD, LOGIN_MAX, REPAIR, REPORT,
)
from congreve.broker.replication.state import SlaveState

cdef enum:
    MARKS_MAX = 4096            # frames that were sent and not confirmed, of which the time is kept
    SENT_AT_ONCE = 4 << 20      # bytes after which other slaves get a turn


class ReplicationError(BrokerError):
    """The other end of the HA port breaks the protocol, or its log does not match this one."""


def is_login(bytes data):
    """Whether the bytes begin with a login instead of a report."""
    return len(data) >= REPORT.size and REPORT.unpack_from(data)[0] == LOGIN


cdef class SlaveConnection:
    """Sends one slave the log from where it asks for it, and reads its reports.

    Every report must be between the first offset of the log and what was sent, and none may go
    back: the first one too, so that no unknown peer can confirm bytes that it does not have (4.9.4
    accepts the first eight bytes of any peer). A slave without a log gets all of it, not only the
    last file (D24). With `login`, an HaLogin, a login must come first. The
    socket must not block; one thread uses the object.

    read() and send() do everything; SlaveLoop does what is ordinary without the GIL. A subclass may
    replace them, frame_size() and header(), for other frames. (RocketMQ: HAConnection.)
    """

    def __cinit__(self, *_, **__):
        self.marks = <Mark *> malloc(MARKS_MAX * sizeof(Mark))
        if self.marks == NULL:
            raise MemoryError()

    def __init__(self, peer not None, CommitLog log not None, frame_bytes, double now,
                 login=None):
        self.socket, self.fd = peer, peer.fileno()
        self.address = "{}:{}".format(*peer.getpeername()[:2])
        self.read_at = self.written_at = now
        self.log = log
        self.frame_bytes = min(frame_bytes, FRAME_MAX)
        self.login = login
        self.plain = type(self) is SlaveConnection

    def __dealloc__(self):
        free(self.marks)

    @property
    def is_blocked(self):
        """Whether part of a frame waits until the socket takes more."""
        return self.head_left > 0 or self.body_left > 0

    # --- reports

    def read(self, double now):
        """Read the reports that have arrived; False when the slave has closed the connection.

        Raises ReplicationError for a report that cannot be true, OSError if the socket fails.
        """
        cdef Outcome outcome = self.receive(now)
        if outcome == FAILED:
            raise OSError(self.error, os.strerror(self.error))
        self.take_input()
        return outcome != CLOSED

    cdef Outcome receive(self, double now) noexcept nogil:
        cdef Py_ssize_t got
        if self.error:
            return FAILED
        got = sockets.recv(self.fd, self.input + self.used, INPUT_SIZE - self.used, 0)
        if got < 0 and errno in (EAGAIN, EINTR):
            return DONE
        if got < 0:
            self.error = errno
            return FAILED
        if got == 0:
            return CLOSED
        self.read_at = now
        self.used += got
        return DONE if self.started and self.take_reports() else ASKS

    cdef bint take_reports(self) noexcept nogil:
        """Take whole reports; False if one cannot be true."""
        cdef int64_t offset, at = 0
        cdef bint sound = True
        while self.used - at >= stream.REPORT_SIZE:
            offset = load_i64(self.input + at)
            sound = self.acknowledged <= offset <= self.next
            if not sound:
                break
            self.acknowledged = offset
            at += stream.REPORT_SIZE
        self.used -= at
        memmove(self.input, self.input + at, self.used)
        self.forget_marks()
        return sound

    cdef int take_input(self) except -1:
        """Take a login and the first report, and refuse a report that cannot be true."""
        cdef bytes rest
        if not self.logged_in:
            rest = self.log_in(self.input[:self.used])
            if rest is None:
                return 0
            self.used = len(rest)
            memcpy(self.input, <const char *> rest, self.used)
        if self.repairs:
            return 0
        if not self.started and self.used >= stream.REPORT_SIZE:
            self.take_report(load_i64(self.input))
            self.used -= stream.REPORT_SIZE
            memmove(self.input, self.input + stream.REPORT_SIZE, self.used)
        if self.started and not self.take_reports():
            self.take_report(load_i64(self.input))
        return 0

    def log_in(self, bytes data not None):
        """The bytes after a login; None until it is whole. Raises ReplicationError."""
        if data.startswith(REPAIR):
            self.repairs = True
            data = data[len(REPAIR):]
        if self.asked:
            data = data[len(ASK):]
        if len(data) < LOGIN_HEAD.size and (len(data) < REPORT.size or is_login(data)):
            return None
        if not is_login(data):
            if self.login is not None:
                raise ReplicationError(
                    f"slave {self.address} has not logged in: set aclEnable and brokerAccessKey"
                    " there, or name its address in haAllowedAddresses"
                )
            self.logged_in = True
            return data
        _, size = LOGIN_HEAD.unpack_from(data)
        if not 0 <= size <= LOGIN_MAX:
            raise ReplicationError(f"a login of {size} bytes: at most {LOGIN_MAX} fit")
        if not size and not self.asked:
            self.asked = True
            return self.answer_ask(data[len(ASK):])
        end = LOGIN_HEAD.size + size
        if len(data) < end:
            return None
        if self.login is not None:
            self.login.check(data[LOGIN_HEAD.size:end], self.challenge)
        self.logged_in = True
        return data[end:]

    cdef bytes answer_ask(self, bytes rest):
        """Send a challenge; the bytes after the login, None until it is there."""
        if self.login is None:
            self.socket.send(LOGIN_HEAD.pack(CHALLENGE, 0))
            self.logged_in = True
            return rest
        self.challenge = self.login.challenge()
        # Nothing was sent before: the socket has room.
        self.socket.send(self.challenge.frame())
        return self.log_in(ASK + rest) if rest else None

    def unused(self):
        """The bytes behind the login of a connection for repairs."""
        return bytes(self.input[:self.used])

    def take_report(self, int64_t offset):
        """Take one report. Raises ReplicationError."""
        if not self.started:
            self.begin(offset)
        elif not self.acknowledged <= offset <= self.next:
            raise ReplicationError(
                f"slave {self.address} reports {offset}, but it has had {self.acknowledged} and was"
                f" sent the log up to {self.next}"
            )
        self.acknowledged = offset
        self.forget_marks()

    cdef int begin(self, int64_t offset) except -1:
        cdef int64_t begin = self.log.min_offset
        cdef int64_t end = self.log.max_offset
        if offset > end:
            raise ReplicationError(
                f"slave {self.address} has a log up to {offset}, ahead of this master's, which ends"
                f" at {end}: it is not a copy of this log; remove the slave's store, or make it"
                " the master"
            )
        if offset != EMPTY_LOG and offset < begin:
            raise ReplicationError(
                f"slave {self.address} has a log up to {offset}, but this master's begins at"
                f" {begin}: the part between has expired; remove the slave's store"
            )
        self.next = offset or begin
        self.started = True
        return 0

    cdef void forget_marks(self) noexcept nogil:
        """Drop the send times of confirmed frames."""
        while self.mark_count and self.marks[self.first_mark].end <= self.acknowledged:
            self.first_mark = (self.first_mark + 1) % MARKS_MAX
            self.mark_count -= 1

    # --- frames

    def send(self, int64_t end, double now):
        """Send what the socket takes of the log before `end`; True if there may be more to send.

        Raises OSError if the connection fails, ReplicationError if the log has expired.
        """
        cdef Outcome outcome = ASKS
        self.sent = 0
        while outcome == ASKS:
            outcome = self.send_log(end, now)
            if outcome == ASKS:
                self.add_frame(end, now)
        if outcome == FAILED:
            raise OSError(self.error, os.strerror(self.error))
        return outcome == MORE

    cdef Outcome send_log(self, int64_t end, double now) noexcept nogil:
        """Send frames; ASKS when the next one needs add_frame()."""
        cdef Py_ssize_t count
        cdef int64_t used
        if self.error:
            return FAILED
        while True:
            if not self.head_left and not self.body_left:
                if not self.started or self.next >= end:
                    return DONE
                if not self.plain or not self.has_segment():
                    return ASKS
                store_i64(self.head_buffer, self.next)
                self.begin_frame(min(self.frame_bytes, end - self.next), now)
                store_i32(self.head_buffer + 8, <int32_t> self.body_left)
                self.put_head(stream.HEADER_SIZE)
            count = stream.send_both(self.fd, self.head, self.head_left, self.body, self.body_left)
            if count < 0 and errno in (EAGAIN, EINTR):
                return DONE
            if count < 0:
                self.error = errno
                return FAILED
            self.written_at = now
            used = min(<int64_t> count, self.head_left)
            self.head += used
            self.head_left -= used
            self.body += count - used
            self.body_left -= count - used
            self.sent += count
            if self.sent >= SENT_AT_ONCE:
                return MORE

    cdef int add_frame(self, int64_t end, double now) except -1:
        """Find the segment of the next frame; begin it unless send_log() does."""
        self.segment = self.log.segment_at(self.next)
        if self.segment is None:
            raise ReplicationError(
                f"the log has no segment at {self.next} any more, which slave {self.address} needs"
            )
        if not self.plain:
            size = min(
                self.frame_size(end), self.segment.base_offset + self.segment.size - self.next
            )
            self.put(self.header(size))
            self.begin_frame(size, now)
        return 0

    cdef bint has_segment(self) noexcept nogil:
        return self.segment is not None and (
            0 <= self.next - self.segment.base_offset < self.segment.size
        )

    cdef void begin_frame(self, int64_t size, double now) noexcept nogil:
        """The next bytes of the log follow; those of a frame are in one segment."""
        cdef int64_t at = self.next - self.segment.base_offset
        cdef Mark *mark
        self.body, self.body_left = self.segment.data + at, min(size, self.segment.size - at)
        self.next += self.body_left
        if self.mark_count < MARKS_MAX:
            mark = &self.marks[(self.first_mark + self.mark_count) % MARKS_MAX]
            mark.end, mark.sent_at = self.next, now
            self.mark_count += 1

    cdef void put_head(self, int64_t size) noexcept nogil:
        self.head, self.head_left = self.head_buffer, size

    def put(self, bytes head not None):
        """Send these bytes next; nothing else may wait."""
        self.head_bytes = head
        self.head, self.head_left = <const uint8_t *> <const char *> head, len(head)

    def frame_size(self, int64_t end):
        """The most bytes that the next frame may have."""
        return min(self.frame_bytes, end - self.next)

    def header(self, size):
        """The header of the next frame."""
        return HEADER.pack(self.next, size)

    def send_heartbeat(self, double now):
        """Send a frame without bytes; a slave that receives nothing disconnects from its master."""
        if self.started and not self.is_blocked:
            self.put(self.header(0))
            self.send(self.next, now)

    def state(self, int64_t log_end, double now):
        """The connection's figures."""
        cdef int64_t lag = max(log_end - self.acknowledged, <int64_t> 0)
        cdef double oldest = now
        if lag and self.mark_count:
            oldest = self.marks[self.first_mark].sent_at
        return SlaveState(
            self.address, self.next, self.acknowledged, lag,
            <int64_t> (max(now - oldest, 0.0) * 1000),
        )

    def close(self):
        """Close the socket, and release the log's segments."""
        self.head_left = self.body_left = 0
        self.segment = None
        self.socket.close()
