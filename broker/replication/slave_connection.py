"""One slave's connection at its master (RocketMQ: HAConnection)."""

import socket
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from congreve.broker.errors import BrokerError
from congreve.broker.replication.frames import (
    EMPTY_LOG,
    FRAME_MAX,
    HEADER,
    LOGIN,
    LOGIN_HEAD,
    LOGIN_MAX,
    REPORT,
)
from congreve.broker.replication.state import SlaveState
from congreve.engine.log.commit_log import CommitLog

READ_MAX = 64 << 10
MARKS_MAX = 4096
"""Frames that were sent and not confirmed, of which the time is kept."""
SENT_AT_ONCE = 4 << 20
"""Bytes after which other slaves get a turn."""


class ReplicationError(BrokerError):
    """The other end of the HA port breaks the protocol, or its log does not fit to this one."""


class _Mark(NamedTuple):
    end: int
    sent_at: float


def _is_login(data: bytes) -> bool:
    return len(data) >= REPORT.size and REPORT.unpack_from(data)[0] == LOGIN


class SlaveConnection:
    """Sends one slave the log from where it asks for it, and reads its reports.

    Every report must be between the first offset of the log and what was sent, and none may go
    back: the first one too, so that no stranger can confirm what it does not have (4.9.4 believes
    the first eight bytes of anyone). A slave without a log gets all of it, not only the last file
    (D24). With `check_login`, which raises ReplicationError, a login must come first. The socket
    must not block; one thread uses the object. (RocketMQ: HAConnection.)
    """

    def __init__(
        self,
        peer: socket.socket,
        log: CommitLog,
        frame_bytes: int,
        now: float,
        check_login: Callable[[bytes], None] | None = None,
    ) -> None:
        self.socket = peer
        self.address = "{}:{}".format(*peer.getpeername()[:2])
        self.started = False
        """Whether the slave has reported where to begin."""
        self.acknowledged = 0
        """The slave has all bytes below this physical offset."""
        self.next = 0
        """Physical offset of the next byte to send."""
        self.read_at = self.written_at = now
        self._log = log
        self._frame_bytes = min(frame_bytes, FRAME_MAX)
        self._unsent: list[memoryview] = []
        self._partial = b""
        self._check_login = check_login
        self._logged_in = False
        self._marks: deque[_Mark] = deque()

    @property
    def is_blocked(self) -> bool:
        """Whether part of a frame waits until the socket takes more."""
        return bool(self._unsent)

    def read(self, now: float) -> bool:
        """Read the reports that have arrived; False when the slave has closed the connection.

        Raises ReplicationError for a report that cannot be true, OSError if the socket fails.
        """
        try:
            data = self.socket.recv(READ_MAX)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.read_at = now
        data = self._partial + data
        if not self._logged_in:
            rest = self._log_in(data)
            if rest is None:
                self._partial = data
                return True
            data = rest
        whole = len(data) - len(data) % REPORT.size
        self._partial = data[whole:]
        for (offset,) in REPORT.iter_unpack(data[:whole]):
            self._take_report(offset)
        self.forget_marks()
        return True

    def forget_marks(self) -> None:
        """Forget when confirmed frames were sent."""
        while self._marks and self._marks[0].end <= self.acknowledged:
            self._marks.popleft()

    def _log_in(self, data: bytes) -> bytes | None:
        """The bytes after a login; None until it is whole."""
        if len(data) < LOGIN_HEAD.size and (len(data) < REPORT.size or _is_login(data)):
            return None
        if not _is_login(data):
            if self._check_login is not None:
                raise ReplicationError(
                    f"slave {self.address} has not logged in: set aclEnable and brokerAccessKey"
                    " there, or name its address in haAllowedAddresses"
                )
            self._logged_in = True
            return data
        _, size = LOGIN_HEAD.unpack_from(data)
        if not 0 <= size <= LOGIN_MAX:
            raise ReplicationError(f"a login of {size} bytes: at most {LOGIN_MAX} fit")
        if len(data) < LOGIN_HEAD.size + size:
            return None
        if self._check_login is not None:
            self._check_login(data[LOGIN_HEAD.size : LOGIN_HEAD.size + size])
        self._logged_in = True
        return data[LOGIN_HEAD.size + size :]

    def _take_report(self, offset: int) -> None:
        if not self.started:
            self._begin(offset)
        elif not self.acknowledged <= offset <= self.next:
            raise ReplicationError(
                f"slave {self.address} reports {offset}, but it has had {self.acknowledged} and was"
                f" sent the log up to {self.next}"
            )
        self.acknowledged = offset

    def _begin(self, offset: int) -> None:
        begin, end = self._log.min_offset, self._log.max_offset
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

    def send(self, end: int, now: float) -> bool:
        """Send what the socket takes of the log before `end`; True if there may be more to send.

        Raises OSError if the connection fails.
        """
        sent = 0
        while self._unsent or (self.started and self.next < end):
            if not self._unsent:
                self._add_frame(end, now)
            try:
                count = self.socket.sendmsg(self._unsent)
            except BlockingIOError:
                return False
            self.written_at = now
            sent += count
            self._remove(count)
            if sent >= SENT_AT_ONCE:
                return True
        return False

    def _add_frame(self, end: int, now: float) -> None:
        segment = self._log.segment_at(self.next)
        if segment is None:
            raise ReplicationError(
                f"the log has no segment at {self.next} any more, which slave {self.address} needs"
            )
        at = self.next - segment.base_offset
        # The bytes of a frame are in one segment.
        size = min(self._room(end), segment.size - at)
        header = memoryview(self._header(size))
        self._unsent = [header, memoryview(segment)[at : at + size]]
        self.next += size
        if len(self._marks) < MARKS_MAX:
            self._marks.append(_Mark(self.next, now))

    def _room(self, end: int) -> int:
        """The most bytes that the next frame may have."""
        return min(self._frame_bytes, end - self.next)

    def _header(self, size: int) -> bytes:
        """The header of the next frame."""
        return HEADER.pack(self.next, size)

    def _remove(self, count: int) -> None:
        while self._unsent and count >= len(self._unsent[0]):
            count -= len(self._unsent.pop(0))
        if count:
            self._unsent[0] = self._unsent[0][count:]

    def send_heartbeat(self, now: float) -> None:
        """Send a frame without bytes; a slave that hears nothing leaves its master."""
        if self.started and not self._unsent:
            self._unsent = [memoryview(self._header(0))]
            self.send(self.next, now)

    def state(self, log_end: int, now: float) -> SlaveState:
        """The connection's figures."""
        lag = max(log_end - self.acknowledged, 0)
        marks = self._marks
        oldest = marks[0].sent_at if lag and marks else now
        return SlaveState(
            self.address, self.next, self.acknowledged, lag, int(max(now - oldest, 0) * 1000)
        )

    def close(self) -> None:
        """Close the socket, and let go of the log's segments."""
        self._unsent.clear()
        self.socket.close()
