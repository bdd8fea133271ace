"""A slave's end of AutoSwitch connections (RocketMQ: AutoSwitchHAClient)."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from congreve.broker.election.complete_log import CompleteLog
from congreve.broker.election.epoch_log import EpochLog
from congreve.broker.election.frames import (
    TRANSFER_HEADER,
    FrameError,
    MasterHandshake,
    Report,
    SlaveHandshake,
    StoreName,
    Transfer,
    from_master,
)
from congreve.broker.repair.log_repair import LogRepair
from congreve.broker.replication.ha_connector import CONNECT_S
from congreve.broker.replication.log_follower import LogFollower
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.master_requests import MasterRequests
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave import MasterAddress, Slave
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.state.epochs import Epochs
from congreve.engine.store import MessageStore
from congreve.remoting.transport.client import RemotingClient

HANDSHAKE_MAX = 64 << 10
"""More bytes than a master's handshake may have."""
HEAL_S = 10.0
"""How long nothing may be repaired, in seconds, before the log is cut where its damage begins."""
LOOK_S = 0.05


class EpochFollower(LogFollower):
    """Receives the log and the epoch of each part (RocketMQ: AutoSwitchHAClient).

    The epochs are on disk before the first report that follows them: a member of the in-sync set
    has the epoch in which it entered. `show` gets the offset that the master has confirmed, as soon
    as this log has everything before it.
    """

    header_size = TRANSFER_HEADER

    def __init__(
        self,
        store: MessageStore,
        settings: ReplicationSettings,
        arrived: Callable[[set[ConsumeQueue]], None],
        epochs: EpochLog,
        complete: CompleteLog,
        show: Callable[[int], None],
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(store, settings, arrived, clock)
        self._epochs = epochs
        self._complete = complete
        self._show = show
        self._confirmed = 0
        self._of_master = Epochs()
        self._admitted = False

    def expect(self, of_master: Epochs) -> None:
        """The master's epochs, of its handshake; the logs are the same up to this one's end."""
        self._of_master = of_master
        self._admitted = False
        self._confirmed = 0
        self.reported = -1

    def take_header(self, header: bytes) -> tuple[int, int]:
        try:
            found = from_master(header)
        except FrameError as error:
            raise ReplicationError(f"the master sends a wrong frame: {error}") from error
        if found is None or not isinstance(found[0], Transfer):
            raise ReplicationError("the master sends a second handshake")
        transfer = found[0]
        if transfer.offset < 0:
            return self.receiver.received, 0
        epochs = self._epochs.epochs
        if not self._admitted:
            self._admitted = True
            self.reported = -1  # report again: now it counts
            epochs = self._of_master.cut(self.store.log.max_offset)
        # Also one that begins where this part ends: the next report says that the slave has it.
        end = transfer.offset + transfer.size
        for epoch in (*self._of_master.cut(end + 1).entries, transfer.epoch):
            if epoch.number > epochs.newest:
                epochs = epochs.begun(*epoch)
        self._epochs.save(epochs)
        self._confirmed = transfer.confirmed
        return transfer.offset, transfer.size

    def report_frame(self, offset: int) -> bytes:
        return Report(offset).encode()

    def have(self) -> int:
        """Nothing new before the master's first frame: a report would count too early."""
        self._show(min(self._confirmed, self.store.log.max_offset))
        there = super().have()
        if not self._admitted:
            return min(there, self.reported)
        last = self._of_master.last
        if last is not None and there >= last.start:
            self._complete.admitted(last.number)
        return there


class ElectedSlave(Slave):
    """Follows the elected master, after the handshake that finds where the two logs differ.

    `diverged` gets the offset up to which the logs are the same, if this one is longer: the store
    has to be cut there, which this object cannot do while the store is open. `copy_tables` copies
    the master's offsets, topics and groups first, so that every member of the in-sync set has them.
    `repair` fetches the damage that the start has found before, too: a member of the set has all
    that the master has. `names_store` says whether the master expects the id of this store.
    `show` gets the confirmed offset.
    (RocketMQ: AutoSwitchHAClient.doTruncate.)
    """

    def __init__(
        self,
        store: MessageStore,
        settings: ReplicationSettings,
        find_master: Callable[[], MasterAddress | None],
        client: RemotingClient,
        arrived: Callable[[set[ConsumeQueue]], None],
        login: HaLogin | None,
        *,
        member: int,
        epochs: EpochLog,
        complete: CompleteLog,
        diverged: Callable[[int], None],
        copy_tables: Callable[[], Awaitable[bool]],
        repair: LogRepair,
        names_store: Callable[[], bool],
        show: Callable[[int], None],
    ) -> None:
        self._member = member
        self._repair = repair
        self._healing: MasterAddress | None = None
        self._names_store = names_store
        self._epochs = epochs
        self._complete = complete
        self._diverged = diverged
        self._copy_tables = copy_tables
        self._show = show
        self._peer: socket.socket | None = None
        super().__init__(store, settings, find_master, client, arrived, login)

    def _new_follower(
        self,
        settings: ReplicationSettings,
        arrived: Callable[[set[ConsumeQueue]], None],
    ) -> LogFollower:
        return EpochFollower(
            self._store, settings, arrived, self._epochs, self._complete, self._show
        )

    def leave(self) -> None:
        """Leave the master: another one is elected, or none is known."""
        if self._peer is not None:
            with suppress(OSError):  # it has gone
                self._peer.shutdown(socket.SHUT_RDWR)
        self.master_known()

    async def _follow(self, master: MasterAddress) -> None:
        if not await self._copy_tables():
            raise ReplicationError("the master's offsets, topics and groups are not here yet")
        await self._heal(master)
        self._peer = peer = await self._connector.connect(master.ha)
        with peer:
            if master != self._find_master():
                return
            await self._connector.log_in(peer)
            async with asyncio.timeout(CONNECT_S):
                handshake = await self._shake_hands(peer)
            if self._is_empty:
                await self._begin_where(MasterRequests(self._client, master.broker))
            start = self._start_after(handshake)
            assert isinstance(self._follower, EpochFollower)
            self._follower.expect(handshake.epochs)
            self.following, self.trouble = master, ""
            await self._receive(peer, start)

    @property
    def asked(self) -> MasterAddress | None:
        return self.following or self._healing

    async def _heal(self, master: MasterAddress) -> None:
        """Wait for the repair of what the start has found; raises ReplicationError if it fails.

        What the master has damaged, too, stays as it is: a cut would not bring it back. What is not
        confirmed is cut, for the master sends it again.
        """
        repair, scrub, time = self._repair, self._store.scrub, asyncio.get_running_loop().time
        self._healing = master
        repaired, until = -1, 0.0
        try:
            while (place := await repair.look()) is not None:
                if repaired != (repaired := scrub.damages.repaired):
                    until = time() + HEAL_S
                if repair.refusal or time() >= until:
                    break
                if master != self._find_master():
                    raise ReplicationError("the group has another master")
                await asyncio.sleep(LOOK_S)
        finally:
            self._healing = None
        if place is not None:
            place = scrub.damages.begin_of_run(place)
            self._diverged(place)
            raise ReplicationError(
                f"this log is damaged at {place}, and not repaired: it is cut there"
            )

    async def _shake_hands(self, peer: socket.socket) -> MasterHandshake:
        loop = asyncio.get_running_loop()
        store = StoreName(self._store.identity).encode() if self._names_store() else b""
        await loop.sock_sendall(peer, store + SlaveHandshake(self._member).encode())
        received = b""
        while len(received) < HANDSHAKE_MAX:
            data = await loop.sock_recv(peer, HANDSHAKE_MAX)
            if not data:
                break
            received += data
            try:
                found = from_master(received)
            except FrameError as error:
                raise ReplicationError(f"the master's handshake is wrong: {error}") from error
            if found is not None:
                frame, size = found
                if not isinstance(frame, MasterHandshake) or size != len(received):
                    raise ReplicationError("the master sends its log before a report")
                return frame
        raise ReplicationError("the master has not answered the handshake")

    @property
    def _is_empty(self) -> bool:
        log = self._store.log
        return log.max_offset == log.min_offset and not self._epochs.epochs.entries

    async def _begin_where(self, master: MasterRequests) -> None:
        """Begin an empty log where the master's begins: older segments may have expired there."""
        begin = (await master.span()).begin
        if begin != self._store.log.min_offset:
            await asyncio.to_thread(self._follower.receiver.begin_at, begin)

    def _start_after(self, master: MasterHandshake) -> int:
        """The offset to continue at. Raises ReplicationError if this log does not fit to the
        master's."""
        mine, own_end = self._epochs.epochs, self._store.log.max_offset
        common = mine.common_end(own_end, master.epochs, master.log_end)
        if self._is_empty:
            return own_end
        if common is None:
            raise ReplicationError(
                f"this log, with epochs {list(mine.entries)}, and the master's, with epochs"
                f" {list(master.epochs.entries)}, have no epoch in common: remove this store"
            )
        if common < own_end:
            self._diverged(common)
            raise ReplicationError(
                f"this log differs from the master's from {common} on: it is cut there"
            )
        return own_end
