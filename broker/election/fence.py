"""Holds back the answers of sends until every required member has the messages."""

import threading
from collections.abc import Callable

from congreve.broker.election.coordinator import GroupState
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.replication.confirm_offset import ConfirmOffset

NO_LIMIT = (1 << 63) - 1


class Fence:
    """One term's in-sync set, for the thread of the HA port and the event loop.

    It sets `confirm`, which the answers of sends wait for, after each change. While no slave is
    required, answers wait for the disk alone, and no thread has to follow the log. It calls `show`
    with the physical offset before which readers see messages: at first `shown`, never less than
    before. (RocketMQ: AutoSwitchHAService.updateConfirmOffsetWhenSlaveAck.)
    """

    def __init__(
        self,
        term: InSyncSet,
        lease: MasterLease,
        log: CommitLog,
        confirm: ConfirmOffset,
        now: Callable[[], float],
        *,
        show: Callable[[int], None],
        shown: int = 0,
    ) -> None:
        self.term: InSyncSet = term
        self._lease = lease
        self._log = log
        self._confirm = confirm
        self._now = now
        self._show = show
        self._shown = shown
        self._lock = threading.Lock()
        self._connections: dict[int, object] = {}
        self._owners: dict[int, str] = {}  # the stores of the numbers
        self._alone = False
        self._settles = False
        self._closed = False

    def open(self) -> None:
        """Let messages be acknowledged: the term begins at the log's end."""
        with self._lock:
            self.term.start_at(self._log.max_offset)
            self._publish()

    def close(self) -> None:
        """Acknowledge nothing more: the lease has ended."""
        with self._lock:
            self._closed = True
            self._publish()

    @property
    def is_settled(self) -> bool:
        """Whether everything in the log is acknowledged, as far as slaves are concerned."""
        with self._lock:
            return self.term.confirmed(self._log.max_offset) >= self._log.max_offset

    # --- slaves, on the thread of the HA port

    def connected(self, member: int, connection: object, store: str = "") -> None:
        """A slave has connected; its older connection no longer counts.

        `store` is the id of its store, empty for an earlier version's, whose number belongs to no
        store. Raises ReplicationError if the number belongs to another store: what that one has is
        confirmed by its own reports alone.
        """
        with self._lock:
            owner = self._owners.get(member)
            if owner is not None and owner != store:
                raise ReplicationError(
                    f"{f'the store {store}' if store else 'a peer without a store'} connects as"
                    f" member {member}, which is the store {owner}"
                )
            self._connections[member] = connection
            self.term.connected(member, self._now())
            self._publish()

    def begun(self, member: int, connection: object, offset: int) -> None:
        """A slave continues from `offset`."""
        with self._lock:
            if self._connections.get(member) is connection:
                self.term.begun(member, offset)

    def reported(self, member: int, connection: object, offset: int) -> None:
        """A slave has the log up to `offset`."""
        with self._lock:
            if self._connections.get(member) is connection:
                self.term.reported(member, offset, self._log.max_offset, self._now())
                self._publish()

    def disconnected(self, member: int, connection: object) -> None:
        """A slave's connection has ended."""
        with self._lock:
            if self._connections.get(member) is connection:
                del self._connections[member]
                self.term.disconnected(member)
                self._publish()

    def note_owners(self, owners: dict[int, str]) -> None:
        """The coordination service has given the numbers to these stores."""
        with self._lock:
            self._owners = owners

    def vacate(self, member: int, store: str, *, connected_too: bool) -> bool:
        """Prepare to give a number to this store; whether nothing depends on its last one now.

        It stays with a slave that is connected, unless `connected_too`.
        """
        with self._lock:
            if member in self._connections and not connected_too:
                return False
            self._owners[member] = store
            self._connections.pop(member, None)
            self.term.vacate(member)
            self._publish()
            return member not in self.term.required

    def admits(self, member: int) -> bool:
        """Whether the slave may get parts of the log."""
        with self._lock:
            return self.term.admits(member)

    def required(self) -> frozenset[int] | None:
        """The slaves that must have what is acknowledged; None: nothing may be acknowledged."""
        with self._lock:
            if self._closed or not self._lease.held:
                return None
            return self.term.required - {self.term.master.member}

    def members(self) -> frozenset[int]:
        """The slaves that are connected or required."""
        with self._lock:
            return self.term.required | self._connections.keys()

    def confirmed(self) -> int:
        """The offset up to which messages are acknowledged, for transfers."""
        with self._lock:
            return max(self.term.confirmed(self._own_end), self._shown)

    def look_at_disk(self) -> None:
        """Show what is on the disk by now, if no slave has to have it."""
        with self._lock:
            if self._alone and self._confirm.waits_for_disk:
                self._show_below(self._own_end)

    # --- changes of the set, on the event loop

    def proposal(self) -> frozenset[int] | None:
        """The change to send now: one whose outcome is open, or a new one, or None."""
        with self._lock:
            if self.term.proposed is not None:
                return self.term.proposed
            if self._settles:
                # Answers that did not see the limit yet have left by now.
                self.term.note_acknowledged(self._log.max_offset)
                self._settles = False
                return None
            was_alone = self._alone
            members = self.term.wanted(self._log.max_offset, self._now())
            self._publish()
            if members is None or (was_alone and not self._alone):
                return None
            self.term.propose(members)
            self._publish()
            return members

    def since(self, members: frozenset[int]) -> int:
        """The epoch of which all of a set have been a part."""
        with self._lock:
            return self.term.since(members)

    def committed(self, state: GroupState) -> None:
        """The proposed change has happened."""
        with self._lock:
            self.term.committed(state)
            self._publish()

    def refused(self) -> None:
        """The proposed change has not happened, and never will."""
        with self._lock:
            self.term.refused()
            self._publish()

    def _publish(self) -> None:
        if self._closed or not self._lease.held or not self.term.is_large_enough:
            if self._alone:
                self._end_alone(0)
            else:
                self._confirm.replace(self.term.acknowledged, 0)
                self._show_below(self.term.acknowledged)
        elif self.term.required == {self.term.master.member}:
            self._alone = True
            self._confirm.replace(NO_LIMIT, 1)
            if self._confirm.waits_for_disk:
                self._show_below(self._own_end)
            else:
                self._show(NO_LIMIT)
        elif self._alone:
            self._settles = True
            self._end_alone(1)
        else:
            confirmed = max(self.term.confirmed(self._own_end), 0)
            self._confirm.replace(confirmed, 1)
            self._show_below(confirmed)

    def _end_alone(self, usable: int) -> None:
        """Confirm and show what is in the log, for what came later waits for others."""
        self._alone = False
        with self._log.lock:
            self.term.note_acknowledged(self._log.max_offset)
            self._confirm.replace(self.term.acknowledged, usable)
            self._shown = max(self._shown, self._own_end)
            self._show(self._shown)

    @property
    def _own_end(self) -> int:
        """Up to where this member has its log: with SYNC_FLUSH on its disk."""
        if self._confirm.waits_for_disk:
            return self._confirm.backend.durable_offset
        return self._log.max_offset

    def _show_below(self, offset: int) -> None:
        if offset > self._shown:
            self._shown = offset
            self._show(offset)
