"""Limits over all connections together, and which connection is closed beyond them."""

import logging
import resource
import time
from collections.abc import Callable

import msgspec

from congreve.base.limited_log import LimitedLog
from congreve.remoting.lanes.lane import Lane
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.peer_log import PeerLog

logger = logging.getLogger(__name__)

RESERVED_DESCRIPTORS = 1024
"""Descriptors that connections leave to files; at most half of all."""
CONNECTIONS_MAX = 1 << 20
LOOK_S = 0.25


def most_connections() -> int:
    """The number of connections that the limit of open files (RLIMIT_NOFILE) allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(max(soft - min(RESERVED_DESCRIPTORS, soft // 2), 1), CONNECTIONS_MAX)


class SharedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of all connections together."""

    connections: int = 0
    """Open connections at most, further ones are closed at once; 0: most_connections()."""
    connections_of_address: int = 0
    """Open connections from one address at most; 0: no limit."""
    unfinished_bytes: int = 96 * 1024 * 1024
    """Bytes of memory for incomplete frames."""
    unread_bytes: int = 128 * 1024 * 1024
    """Bytes of answers that peers have not read yet, and of requests at work or behind them."""
    first_frame_timeout_s: float = 30.0
    """Seconds from the opening of a connection in which its first frame must be complete."""
    frame_timeout_s: float = 30.0
    """Seconds in which a later frame must be; both have one more for each `frame_bytes_per_s`."""
    frame_bytes_per_s: int = 32 * 1024


class ConnectionGuard:
    """Counts the connections and bytes that the servers of one event loop share, and closes the
    connections that hold most.

    `clock` gives seconds.
    """

    def __init__(
        self,
        limits: SharedLimits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or SharedLimits()
        self.connections_max = self.limits.connections or most_connections()
        self.connections: set[Connection] = set()
        self.open_calls: Callable[[], int] = lambda: 0
        """Calls of gRPC that the event loop has not ended."""
        self._by_address: dict[str, set[Connection]] = {}
        self.silent_cut_count = 0
        self.refused_count = 0
        self.unread_cut_count = 0
        self.unread = 0
        self._kept_since = 0  # bytes that may have been added since `unread` was counted
        self._clock = clock
        self._next_look = 0.0
        self._log = LimitedLog(logger, clock=clock)
        self._silent_log = LimitedLog(logger, clock=clock)
        self.peer_log = PeerLog()
        self._lanes: list[Lane] = []

    def follow(self, lanes: list[Lane]) -> None:
        """Count the incomplete frames of these lanes, which close connections themselves."""
        self._lanes += lanes

    def admits(self) -> bool:
        """Whether one more connection is allowed; counts the connection that it refuses."""
        if len(self.connections) < self.connections_max:
            return True
        self.refused_count += 1
        self._log.warning(
            "%d connections are open, more are closed at once: raise maxConnections and the"
            " limit of open files, or look for a client that opens too many",
            self.connections_max,
        )
        return False

    def admits_from(self, connection: Connection) -> bool:
        """Whether this open connection is not too many for its address; counts one that is."""
        address, limit = connection.peer[0], self.limits.connections_of_address
        others = self._by_address.setdefault(address, set())
        if limit and len(others) >= limit:
            self.refused_count += 1
            self._log.warning(
                "%d connections from %s are open, more are closed: see maxConnectionsPerAddress",
                *(len(others), address),
            )
            return False
        others.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        """The connection has ended."""
        self.connections.discard(connection)
        others = self._by_address.get(connection.peer[0])
        if others is not None:
            others.discard(connection)
            if not others:
                del self._by_address[connection.peer[0]]

    def log_cut(self, connection: Connection, *, late: bool, held: int) -> None:
        """Log that a lane closes a connection with an incomplete frame of `held` bytes."""
        why = "a frame is not whole in time" if late else "unfinished frames take too much memory"
        self._log.warning("%r: %s, %d bytes came from here: closing it", connection, why, held)

    def note_silent(self, connection: Connection) -> None:
        """Count and log a connection that is closed because its first frame is late."""
        self.silent_cut_count += 1
        self._silent_log.warning("%r: no request came in time: closing it", connection)

    def counts(self) -> dict[str, int]:
        """Open connections and held bytes now; refused and closed connections since the start."""
        return {
            "connections": len(self.connections),
            "maxConnections": self.connections_max,
            "refusedConnections": self.refused_count,
            "unfinishedFrameBytes": sum(lane.handle.unfinished_bytes for lane in self._lanes),
            "cutUnfinishedFrames": sum(lane.cut_count for lane in self._lanes),
            "cutSilentConnections": self.silent_cut_count,
            "unreadAnswerBytes": self.unread,
            "cutUnreadAnswers": self.unread_cut_count,
        }

    def enforce_limits(self) -> None:
        """Close connections with too many unread bytes; servers call it often."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        self._bound_unread()

    def note_kept(self, size: int) -> None:
        """Note that so many bytes may stay in memory; count the sum if it may be large."""
        self._kept_since += size
        limit = self.limits.unread_bytes
        if self._kept_since > limit // 16 and self.unread + self._kept_since > limit // 2:
            self._bound_unread()

    def _bound_unread(self) -> None:
        self._kept_since = 0
        self.unread = sum(connection.unread for connection in self.connections)
        if self.unread > self.limits.unread_bytes:
            self._shed_unread()

    def _shed_unread(self) -> None:
        wanted = self.limits.unread_bytes - self.limits.unread_bytes // 8
        for connection in sorted(self.connections, key=lambda connection: -connection.unread):
            if self.unread <= wanted:
                return
            self._log.warning(
                "%r: %d bytes of answers wait for their readers, %d of them for this one: "
                "closing it",
                connection,
                self.unread,
                connection.unread,
            )
            self.unread -= connection.unread
            self.unread_cut_count += 1
            connection.abort()
