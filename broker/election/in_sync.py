"""The members that have all acknowledged messages, as one master decides it."""

from collections.abc import Callable
from dataclasses import dataclass

from congreve.broker.election.coordinator import GroupState, Master

JOIN_BYTES = 1 << 20
"""How far behind the log's end a slave may be when messages begin to wait for it."""


@dataclass(slots=True)
class _Member:
    """A slave's log as its master sees it; offsets are physical, times in seconds."""

    connected: bool = True
    offset: int = -1
    lost: bool = False
    caught_up_at: float = float("-inf")
    mark: int = 0  # the log's end at the last report, and its time
    mark_at: float = float("-inf")


class InSyncSet:
    """The in-sync set of one master's term (RocketMQ: AutoSwitchHAService's syncStateSet).

    A message is acknowledged once every member of `required` has it. That is the committed set,
    the proposed one too while its outcome is open, for the change may have happened, and slaves
    that are about to enter. So a slave leaves the set before messages are acknowledged without it,
    and has them all when it enters. It does no I/O.
    """

    def __init__(
        self, state: GroupState, start: int = 0, *, max_lag_s: float, min_in_sync: int = 1
    ) -> None:
        """`state` is the one of the election; `start` is where the term begins in the log.

        A member that has not caught up for `max_lag_s` seconds leaves the set. With fewer than
        `min_in_sync` members nothing is acknowledged; so none leaves for being away then, because
        it keeps all that is acknowledged.
        """
        assert state.master is not None, "a term begins with an election"
        self.master: Master = state.master
        self.state = state
        """The state of the last completed change."""
        self.proposed: frozenset[int] | None = None
        """The set that a change without a known outcome would commit."""
        self._start = start
        self._max_lag_s = max_lag_s
        self._min_in_sync = min_in_sync
        self._slaves: dict[int, _Member] = {}
        self._joining: set[int] = set()
        self._away: set[int] = set()  # members that would leave a larger set
        self.acknowledged = 0
        """Messages up to this offset may have been acknowledged."""
        self.lacks_since: Callable[[int], float | None] = lambda member: None
        """Since when a member lacks a change of topics or groups; None: it has all that are
        acknowledged, and none waits for it."""

    @property
    def required(self) -> frozenset[int]:
        """The members that must have a message before it is acknowledged."""
        return self._committed_or_proposed | self._joining

    @property
    def _committed_or_proposed(self) -> frozenset[int]:
        return self.state.in_sync | (self.proposed or frozenset())

    @property
    def is_large_enough(self) -> bool:
        """Whether the set has enough members for acknowledgements."""
        return len(self.state.in_sync - self._away) >= self._min_in_sync

    def start_at(self, offset: int) -> None:
        """The term begins at this physical offset: slaves enter once they have all before it."""
        self._start = offset

    def note_acknowledged(self, offset: int) -> None:
        """Messages up to here may have been acknowledged, though confirmed() was not called."""
        self.acknowledged = max(self.acknowledged, offset)

    def confirmed(self, own_end: int) -> int:
        """The offset up to which messages are acknowledged; `own_end` is this member's own.

        It is -1 while the set has too few members. (RocketMQ: computeConfirmOffset.)
        """
        if not self.is_large_enough:
            return -1
        others = (self._offset(member) for member in self.required - {self.master.member})
        confirmed = min((own_end, *others))
        self.acknowledged = max(self.acknowledged, confirmed)
        return confirmed

    def _offset(self, member: int) -> int:
        slave = self._slaves.get(member)
        return -1 if slave is None else slave.offset

    def connected(self, member: int, now: float) -> None:
        """A slave has connected; its earlier reports no longer count."""
        self._joining.discard(member)
        self._slaves[member] = _Member(caught_up_at=now)

    def begun(self, member: int, offset: int) -> None:
        """A slave continues from `offset`; it counts from its next report on.

        By then it has learned the epoch of this term.
        """
        is_member = member in self._committed_or_proposed
        self._slaves[member].lost = is_member and offset < self.acknowledged

    def admits(self, member: int) -> bool:
        """Whether a slave may get parts of the log: not one that lost what it once reported.

        Its store would seem to be complete; it leaves the set first.
        """
        slave = self._slaves.get(member)
        return not (slave is not None and slave.lost and member in self.required)

    def disconnected(self, member: int) -> None:
        """A slave's connection has ended; what it has reported stays true."""
        self._joining.discard(member)
        if member in self._slaves:
            self._slaves[member].connected = False
            self._forget_others()

    def vacate(self, member: int) -> None:
        """The member's number gets another store: it leaves the set, whatever it has."""
        if member in self._committed_or_proposed:
            slave = self._slaves.setdefault(member, _Member())
            slave.connected, slave.lost = False, True
        self._joining.discard(member)

    def _forget_others(self) -> None:
        """Forget slaves that are away and not in the set: any number may have connected once."""
        self._slaves = {
            member: slave
            for member, slave in self._slaves.items()
            if slave.connected or member in self._committed_or_proposed
        }

    def reported(self, member: int, offset: int, own_end: int, now: float) -> None:
        """A connected slave has the log up to `offset`, which is at most `own_end`."""
        slave = self._slaves[member]
        slave.offset = max(slave.offset, offset)
        if offset >= own_end:
            slave.caught_up_at = now
            self._away.discard(member)
        elif offset >= slave.mark:
            slave.caught_up_at = max(slave.caught_up_at, slave.mark_at)
        slave.mark, slave.mark_at = own_end, now

    def wanted(self, own_end: int, now: float) -> frozenset[int] | None:
        """The set to propose now; None while it is right, or while an outcome is open."""
        if self.proposed is not None:
            return None
        members = self.state.in_sync
        lost = {
            member
            for member in members - {self.master.member}
            if self._is_lost(member, own_end, now)
        }
        self._away = set()
        if len(members) - len(lost) < self._min_in_sync:
            self._away = lost
            lost = {member for member in lost if self._has_lost(member)}
        if lost:  # alone: a slave that enters must have what is acknowledged without these
            return members - lost
        if self.state.set_epoch != self.since(members):
            return members
        needed = max(self.confirmed(own_end), self.acknowledged, self._start)
        ready = set()
        for member in self._joining_now(own_end, now) - members:
            if self._slaves[member].offset >= needed and self.lacks_since(member) is None:
                ready.add(member)
        return members | ready if ready else None

    def _joining_now(self, own_end: int, now: float) -> set[int]:
        """The slaves that are so near that messages may wait for them before they enter."""
        for member, slave in self._slaves.items():
            if slave.connected and slave.offset >= max(own_end - JOIN_BYTES, 0):
                self._joining.add(member)
        self._joining = {
            member
            for member in self._joining
            if member not in self.state.in_sync and not self._is_lost(member, own_end, now)
        }
        return self._joining

    def since(self, members: frozenset[int]) -> int:
        """This epoch, if all of a set have all from before it; else that of the set before."""
        others = members - {self.master.member}
        has_all = all(self._offset(member) >= self._start for member in others)
        return self.master.epoch if has_all else self.state.set_epoch

    def _has_lost(self, member: int) -> bool:
        slave = self._slaves.get(member)
        return slave is not None and slave.lost

    def _is_lost(self, member: int, own_end: int, now: float) -> bool:
        """Whether a slave lost its log, or something waits for one that is away or far behind."""
        slave = self._slaves.get(member)
        since = self.lacks_since(member)
        if self._has_lost(member):
            return True
        if slave is None or not slave.connected:
            return self._offset(member) < own_end or since is not None
        if since is not None and now - since > self._max_lag_s:
            return True
        if slave.offset >= own_end:
            slave.caught_up_at = now
        return now - slave.caught_up_at > self._max_lag_s

    def propose(self, members: frozenset[int]) -> None:
        """A change to this set is about to be sent.

        Raises ValueError while another one is open.
        """
        if self.proposed not in (None, members):
            raise ValueError("the outcome of another change is open")
        self.proposed = members

    def committed(self, state: GroupState) -> None:
        """The change that was proposed has happened."""
        self.state = state
        self.proposed = None
        for member, slave in self._slaves.items():
            slave.lost = slave.lost and member in state.in_sync
        self._forget_others()

    def refused(self) -> None:
        """The change that was proposed has not happened, and never will."""
        self.proposed = None
