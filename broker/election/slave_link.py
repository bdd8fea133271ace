"""A master's end of AutoSwitch connections (RocketMQ: AutoSwitchHAConnection)."""

import socket
from collections.abc import Callable

from congreve.broker.election.fence import Fence
from congreve.broker.election.frames import (
    FrameError,
    MasterHandshake,
    SlaveFrame,
    SlaveHandshake,
    StoreName,
    Transfer,
    from_slave,
)
from congreve.broker.replication.ha_service import HAService
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.broker.replication.slave_loop import SlaveLoop
from congreve.broker.replication.state import SlaveState
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.state.epochs import Epochs
from congreve.engine.store import MessageStore

READ_MAX = 64 << 10
TELL_S = 0.05
"""How late a slave that gets no new bytes learns what is confirmed, in seconds."""


class AutoSwitchConnection(SlaveConnection):
    """Sends one slave the epochs, then the log, with the epoch of each part.

    The first report says where the slave continues, and counts only for a slave that lost its log:
    it gets nothing before it has left the in-sync set. A learner, as RocketMQ 5 calls it, gets the
    log and never enters the set. (RocketMQ: AutoSwitchHAConnection.)
    """

    def __init__(
        self,
        peer: socket.socket,
        log: CommitLog,
        frame_bytes: int,
        now: float,
        login: HaLogin | None = None,
        *,
        fence: Fence,
        epochs: Epochs,
    ) -> None:
        super().__init__(peer, log, frame_bytes, now, login)
        self.member: int | None = None
        """The slave's number, once it has sent its handshake."""
        self._fence = fence
        self._epochs = epochs
        self._received = bytearray()
        self._greeted = False
        self._learns = False
        self._store_name = ""  # of the slave, unless its version is an earlier one
        self._told = 0  # the confirmed offset of the last header

    def read(self, now: float) -> bool:
        """Read frames; False when the slave has closed the connection.

        Raises ReplicationError for a frame or report that cannot be true, OSError if the socket
        fails.
        """
        try:
            data = self.socket.recv(READ_MAX)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.read_at = now
        self._received += data
        if not self.logged_in:
            rest = self.log_in(bytes(self._received))
            if rest is None:
                return True
            self._received = bytearray(rest)
        if self.repairs:
            return True
        try:
            while (found := from_slave(self._received)) is not None:
                frame, size = found
                del self._received[:size]
                self._take(frame)
        except FrameError as error:
            raise ReplicationError(f"slave {self.address}: {error}") from error
        return True

    def unused(self) -> bytes:
        """The bytes behind the login of a connection for repairs."""
        return bytes(self._received)

    def _take(self, frame: SlaveFrame) -> None:
        if isinstance(frame, StoreName):
            if self._store_name or self.member is not None:
                raise ReplicationError(f"slave {self.address} names its store too late or twice")
            self._store_name = frame.store
            return
        if isinstance(frame, SlaveHandshake):
            if self.member is not None:
                raise ReplicationError(f"slave {self.address} sends a second handshake")
            if frame.member == self._fence.term.master.member:
                raise ReplicationError(
                    f"slave {self.address} has the number of this master, {frame.member}: give"
                    " each member a brokerId of its own"
                )
            self.member = frame.member
            self._learns = frame.learner
            if not self._learns:
                self._fence.connected(frame.member, self, self._store_name)
            handshake = MasterHandshake(self.log.max_offset, self._epochs.newest, self._epochs)
            self.put(handshake.encode())
            return
        if self.member is None:
            raise ReplicationError(f"slave {self.address} reports before its handshake")
        count = self._fence.reported if self.started else self._fence.begun
        self.take_report(frame.offset)
        if not self._learns:
            count(self.member, self, frame.offset)

    def send(self, end: int, now: float) -> bool:
        """Send what the socket takes of the log before `end`, as soon as the slave may have it."""
        if not self.started or self.member is None or not self._is_admitted(self.member):
            return super().send(self.next, now)
        if not self._greeted:
            if self.is_blocked and super().send(self.next, now):
                return True
            if self.is_blocked:
                return False
            self._greeted = True  # the slave learns the epoch even if there is nothing to send
            self.put(self.header(0))
        return super().send(end, now)

    def _is_admitted(self, member: int) -> bool:
        return self._learns or self._fence.admits(member)

    def send_heartbeat(self, now: float) -> None:
        """Send a header without bytes."""
        if self._greeted and not self.is_blocked:
            self.put(self.header(0))
            self.send(self.next, now)

    def tell_confirmed(self, now: float) -> None:
        """Send what is confirmed, if the slave does not know it yet."""
        if self._fence.confirmed() > self._told:
            self.send_heartbeat(now)

    def frame_size(self, end: int) -> int:
        """The bytes up to `end`, the end of the epoch, or the end of a frame."""
        epoch = self._epochs.at(self.next)
        if epoch is None:
            raise ReplicationError(f"the log has no epoch at {self.next}")
        return min(self.frame_bytes, self._epochs.end_of(epoch, end) - self.next, end - self.next)

    def header(self, size: int) -> bytes:
        epoch = self._epochs.at(self.next)
        if epoch is None:
            raise ReplicationError(f"the log has no epoch at {self.next}")
        self._told = self._fence.confirmed()
        return Transfer(size, self.next, epoch, self._told).encode()

    def state(self, log_end: int, now: float) -> SlaveState:
        """The connection's figures, with the slave's number."""
        return super().state(log_end, now)._replace(member=self.member)

    def close(self) -> None:
        """Close the socket; the slave is not connected any more."""
        if self.member is not None and not self._learns:
            self._fence.disconnected(self.member, self)
        super().close()


class AutoSwitchService(HAService):
    """Listens for the slaves of an elected master (RocketMQ: AutoSwitchHAService)."""

    tick_s = TELL_S

    def __init__(
        self,
        store: MessageStore,
        settings: ReplicationSettings,
        login: HaLogin | None = None,
        *,
        fence: Fence,
        epochs: Epochs,
        repair: Callable[[socket.socket, bytes, str], None] | None = None,
    ) -> None:
        super().__init__(store, None, settings, login, repair=repair)
        self._fence = fence
        self._epochs = epochs

    def _look(self, slaves: SlaveLoop) -> None:
        super()._look(slaves)
        for slave in list(slaves.slaves):
            assert isinstance(slave, AutoSwitchConnection)
            try:
                slave.tell_confirmed(self._now())
            except OSError as error:
                self._cut(slave, slaves, error)

    def _connection(self, peer: socket.socket) -> SlaveConnection:
        return AutoSwitchConnection(
            peer,
            self._store.log,
            self._settings.transfer_batch_bytes,
            self._now(),
            self._login,
            fence=self._fence,
            epochs=self._epochs,
        )
