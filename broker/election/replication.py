"""Replication of a broker whose role an election decides."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from congreve.base.limited_log import LimitedLog
from congreve.broker.config import BrokerConfig
from congreve.broker.election.complete_log import CleanStop, CompleteLog
from congreve.broker.election.coordinator import Master
from congreve.broker.election.epoch_log import EpochLog
from congreve.broker.election.fence import Fence
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.master_link import ElectedSlave
from congreve.broker.election.slave_link import AutoSwitchService
from congreve.broker.hand_over.new_master import HandedOn
from congreve.broker.managers import Managers
from congreve.broker.metadata.offsets import OFFSET_MAX
from congreve.broker.replication.ha_service import HAService
from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.replication import Replication
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave import MasterAddress, Slave
from congreve.broker.replication.state import ElectionState, ReplicationState
from congreve.engine.errors import StoreError
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.transport.client import RemotingClient

LOOK_S = 0.005
"""How often a master that is alone looks what is on its disk (SYNC_FLUSH), in seconds."""
NOTE_S = 0.2
"""How often a member writes what its group has confirmed, in seconds, while that changes."""

logger = logging.getLogger(__name__)


class Role(NamedTuple):
    """The role in which a member's broker starts.

    `term` is that of a master, whose log reached to `end` when it was elected, None for a slave.
    `diverged` gets the offset at which a slave's store has to be cut. `handed_on` is what
    ElectionState has of the last transfer away from this member, while clients need that.
    """

    member: int
    lease: MasterLease
    epochs: EpochLog
    complete: CompleteLog
    diverged: Callable[[int], None]
    term: InSyncSet | None = None
    end: int = 0
    handed_on: Callable[[], tuple[int, int] | None] = lambda: None


class ElectionReplication(Replication):
    """Replication in AutoSwitch frames (RocketMQ: AutoSwitchHAService).

    `security` is what Replication takes: the signature, TLS and the login of this broker.
    """

    only_shown = True
    service_type: Callable[..., HAService] = AutoSwitchService
    """Makes the HA port of a master."""
    slave_type: Callable[..., Slave] = ElectedSlave
    """Makes the slave."""

    def __init__(
        self,
        role: Role,
        config: BrokerConfig,
        managers: Managers,
        arrived: Callable[[ConsumeQueue], None],
        *security: Any,
    ) -> None:
        super().__init__(config, managers, arrived, *security)
        self._role = role
        self._elected: Master | None = None
        self.fence: Fence | None = None
        """Holds back a master's answers; None for a slave."""
        self._confirmed_file = ConfirmedFile(config.store.own_dir)
        self._shown = self._noted = 0  # the confirmed offset, and what its file has
        self._noting = Periodic(NOTE_S, self._note_confirmed)
        self._looking: Periodic | None = None
        self.adopt: Callable[[socket.socket, tuple[str, int]], None] | None = None
        """Serves a client's connection that the last master hands on. Raises ConnectionError."""
        self._handed_on = HandedOn(self._adopt, self.repair.accept)
        self._writing = threading.Lock()
        self._log = LimitedLog(logger)

    def take_role(self) -> None:
        """Write a new master's epoch, before anything may append.

        What a crash took from the log's end, it takes from the epochs. Raises StoreError.
        """
        super().take_role()
        log, epochs = self._store.log, self._role.epochs
        known = epochs.epochs.cut(log.max_offset + 1)
        complete = self._role.complete
        found = CleanStop(self._store.identity, log.max_offset, known.newest)
        recovery = self._store.recovery
        is_damaged = recovery is not None and recovery.damaged > 0
        complete.opened(found, found_clean=self._store.found_clean and not is_damaged)
        term = self._role.term
        if term is None:
            epochs.save(known)
            return
        if log.max_offset < self._role.end:
            raise StoreError(
                f"the log ends at {log.max_offset}, but reached to {self._role.end} when this"
                " member was elected: its end was lost when the store was closed"
            )
        complete.admitted(term.master.epoch)
        # The first master wrote what was in its log before.
        start = log.max_offset if known.entries else log.min_offset
        number = term.master.epoch
        epochs.save(known.without_expired(log.min_offset).begun(number, start))
        self.fence = Fence(
            term,
            self._role.lease,
            log,
            self.confirm,
            self._role.lease.now,
            show=self._store.show_below,
            shown=self._shown,
        )
        self.fence.open()
        self._looking = Periodic(LOOK_S, self.fence.look_at_disk)
        self._store.backend.request(log.max_offset)  # it may be behind, and waits for no message
        term.lacks_since = self.copies.lacks_since

    def _set_shown(self) -> None:
        """Begin with the offset that the group had confirmed, as far as this member knows.

        Without one, readers see what was in the store before its first election. An unclean
        election may have cut off what was confirmed.
        """
        log_end, noted = self._store.log.max_offset, self._confirmed_file.find()
        if noted is None:
            noted = 0 if self._role.epochs.epochs.entries else log_end
            self._confirmed_file.replace(noted)
        elif noted > log_end:
            self._confirmed_file.replace(log_end)
        self._shown = self._noted = min(noted, log_end)
        self._store.show_below(self._shown)
        self._managers.metadata.offsets.limit(self._highest_offset)

    def _highest_offset(self, topic: str, queue_id: int) -> int:
        """What a consumer may commit: behind what is shown, an offset may get another message."""
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or not queue.max:
            return OFFSET_MAX  # all of the queue may have expired
        return self._store.log.end_of(queue)

    def _show_below(self, offset: int) -> None:
        """Let a slave's readers see what its master's frames confirm."""
        if offset > self._shown:
            self._shown = offset
            self._store.show_below(offset)

    async def start(self) -> None:
        """Listen for slaves, or follow the master. Raises BrokerError for a port in use."""
        await super().start()
        self._noting.start()
        if self._looking is not None and self._config.store.sync_flush:
            self._looking.start()

    async def stop(self) -> None:
        """Stop both roles; idempotent."""
        self._noting.stop()
        if self._looking is not None:
            self._looking.stop()
        self._handed_on.stop()
        await super().stop()
        await self._note_confirmed()

    async def _note_confirmed(self) -> None:
        """Write what every later master will have, for the next start and readers of the files."""
        confirmed = self._shown if self.fence is None else self.fence.confirmed()
        if confirmed > self._noted:
            try:
                await asyncio.to_thread(self._write_confirmed, confirmed)
            except StoreError as error:
                self._log.warning("readers of this store's files see no new messages: %s", error)

    def _write_confirmed(self, confirmed: int) -> None:
        with self._writing:  # the thread of a cancelled call continues
            if confirmed > self._noted:
                self._confirmed_file.replace(confirmed)
                self._noted = confirmed

    def state(self) -> ReplicationState:
        """What replication does now, with this member's epochs."""
        role, fence = self._role, self.fence
        in_sync = () if fence is None else tuple(sorted(fence.term.state.in_sync))
        lease_ms = 0 if fence is None else int(role.lease.left_s * 1000)
        epochs = tuple((each.number, each.start) for each in role.epochs.epochs.entries)
        election = ElectionState(role.member, epochs, in_sync, lease_ms)
        if (found := role.handed_on()) is not None:
            election = election._replace(handed_on=found[0], quiet_ms=found[1])
        return super().state()._replace(election=election)

    def _adopt(self, peer: socket.socket, client: tuple[str, int]) -> None:
        if self.adopt is None:
            raise ConnectionError("this broker serves no clients")
        self.adopt(peer, client)

    def follow(self, master: Master | None) -> None:
        """Follow this master, or none."""
        if master != self._elected:
            self._elected = master
            if isinstance(self._slave, ElectedSlave):
                self._slave.leave()

    def note_master(self, ha: str, broker: str) -> None:
        """The coordination service names the master, not the name servers."""

    @property
    def _member(self) -> int:
        return self._role.member

    def _is_copy(self) -> bool:
        """The elected master's tables are those of the group; a log that differs is cut."""
        return True

    def _required_members(self) -> frozenset[int] | None:
        return None if self.fence is None else self.fence.required()

    def _copying_members(self) -> frozenset[int]:
        return frozenset() if self.fence is None else self.fence.members()

    def _find_master(self) -> MasterAddress | None:
        master = self._elected
        return None if master is None else MasterAddress(master.ha_address, master.address)

    def _new_service(self, settings: ReplicationSettings) -> HAService:
        assert self.fence is not None, "a master takes its role before it listens"
        epochs = self._role.epochs.epochs
        return self.service_type(
            *(self._store, settings, self._login),
            fence=self.fence,
            epochs=epochs,
            repair=self._handed_on.accept,
        )

    def _new_slave(
        self,
        settings: ReplicationSettings,
        client: RemotingClient,
        arrived: Callable[[set[ConsumeQueue]], None],
        login: HaLogin | None,
    ) -> Slave:
        return self.slave_type(
            self._store,
            settings,
            self._find_master,
            client,
            arrived,
            login,
            member=self._role.member,
            epochs=self._role.epochs,
            complete=self._role.complete,
            diverged=self._role.diverged,
            copy_tables=self.copy_tables,
            repair=self.repair,
            names_store=lambda: self._elected is not None and self._elected.asks_store,
            show=self._show_below,
        )
