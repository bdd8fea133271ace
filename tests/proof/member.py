"""One member while it takes a step: the real classes, made of a state and saved into the next."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

from congreve.broker.election.complete_log import CleanStop, CompleteLog
from congreve.broker.election.coordinator import GroupState, LogEnd, Master, Seat
from congreve.broker.election.fence import NO_LIMIT, Fence
from congreve.broker.election.in_sync import InSyncSet, _Member
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.member import ElectionMember, Knowledge
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.state.epochs import Epoch, Epochs
from congreve.io_backends.backend import Backend

from .state import LONG_AGO, MARGIN, MAX_LAG, TTL, Member, Service, Slave, Term

BACKEND = Backend()


def now() -> float:
    """The clock of all members: times are relative to it."""
    return 0.0


@cache
def master_of(number: int, epoch: int) -> Master:
    """The holder of the lease in this epoch; number 0 is free."""
    return Master(number, epoch, f"a{number}", f"h{number}", asks_store=True)


@cache
def read(service: Service) -> GroupState:
    """What a member reads from the service."""
    seats = {
        number: Seat(str(number), LogEnd(*log_end) if log_end else None)
        for number, log_end in enumerate(service.log_ends, 1)
    }
    return GroupState(
        master_of(service.master, service.epoch) if service.master else None,
        service.epoch,
        frozenset(service.in_sync),
        seats=seats,
        since=service.since,
    )


@cache
def epochs_of(entries: tuple[tuple[int, int], ...]) -> Epochs:
    """The epochs of a log."""
    return Epochs(tuple(Epoch(*entry) for entry in entries))


class Mark:
    """The mark of a clean stop on a member's disk."""

    def __init__(self, left: CleanStop | None) -> None:
        self.left = left

    def take(self) -> CleanStop | None:
        """The mark, which is gone then."""
        left, self.left = self.left, None
        return left

    def save(self, mark: CleanStop) -> None:
        """Leave a mark."""
        self.left = mark


class Log:
    """Of the commit log, what Fence looks at."""

    lock = nullcontext()

    def __init__(self, messages: list[int]) -> None:
        self._messages = messages

    @property
    def max_offset(self) -> int:
        """Its end: a message is one byte."""
        return len(self._messages)


class Life:
    """A member as it runs: ElectionMember, InSyncSet, Fence, CompleteLog and the rest."""

    def __init__(self, number: int, saved: Member, min_in_sync: int) -> None:
        self.number = number
        self._min_in_sync = min_in_sync
        self.log = list(saved.log)
        self.epochs = epochs_of(saved.epochs)
        self.claimed, self.clean = saved.claimed, saved.clean
        mark = CleanStop(str(number), *saved.mark) if saved.mark else None
        self.mark = Mark(mark)
        self.complete = CompleteLog(self.mark)
        self.complete.is_whole, self.complete.admitted_in = saved.is_whole, saved.admitted_in
        self.up, self.follows, self.connected = saved.up, saved.follows, saved.connected
        self.lease = MasterLease(TTL, MARGIN, now)
        if saved.lease:
            self.lease.deadline = saved.lease
        self.member = ElectionMember(number, f"a{number}", f"h{number}", self.lease)
        self.fence: Fence | None = None
        if saved.term:
            self._resume(saved.term)

    # --- the store

    @property
    def end(self) -> int:
        """The log's end."""
        return len(self.log)

    @property
    def _ending(self) -> CleanStop:
        return CleanStop(str(self.number), self.end, self.epochs.newest)

    def known(self) -> Knowledge:
        """What this member's store says."""
        return Knowledge(
            *(self.epochs.newest, self.claimed, bool(self.log), str(self.number), self.end),
            is_whole=self.complete.is_whole,
            admitted_in=self.complete.admitted_in,
        )

    def open(self) -> None:
        """Open the store: what a crash took from the log's end, it takes from the epochs."""
        self.epochs = self.epochs.cut(self.end + 1)
        self.complete.opened(self._ending, found_clean=self.clean)
        self.clean = False

    def close(self) -> None:
        """Close the store, which has everything on its disk then."""
        self.clean = True
        self.complete.closed(self._ending, left_clean=True)

    def cut(self, end: int) -> None:
        """End the log here, as ElectedBroker does with a log that differs from the master's."""
        self.close()
        del self.log[end:]
        self.epochs = self.epochs.cut(end)
        self.open()

    # --- a term

    def begin_term(self, state: GroupState, sent_at: float, shown: int) -> None:
        """The election has made this member the master: its store opens in this role.

        Readers have seen what is before `shown`.
        """
        assert state.master is not None
        term = InSyncSet(state, max_lag_s=MAX_LAG, min_in_sync=self._min_in_sync)
        self.member.begin_term(term, sent_at)
        self.close()
        self.open()
        self.complete.admitted(state.master.epoch)
        start = self.end if self.epochs.entries else 0
        self.epochs = self.epochs.begun(state.master.epoch, start)
        self.follows = self.connected = 0
        self._make_fence(term, shown)
        assert self.fence is not None
        self.fence.open()

    def end_term(self) -> None:
        """Not the master any more: the store closes, and opens in a slave's role."""
        assert self.fence is not None
        self.fence.close()
        self.fence = None
        self.member.end_term()
        self.close()
        self.open()

    def _make_fence(self, term: InSyncSet, shown: int) -> None:
        self.confirm = ConfirmOffset(BACKEND, waits_for_disk=False, waits_for_slaves=True)
        self.fence = Fence(
            *(term, self.lease, Log(self.log), self.confirm, now),
            show=lambda offset: None,
            shown=shown,
        )

    @property
    def confirmed(self) -> int:
        """Up to where messages are acknowledged, as ConfirmOffset says now."""
        return min(self.confirm.current(), self.end)

    def _resume(self, saved: Term) -> None:
        state = GroupState(
            master_of(self.number, saved.epoch),
            saved.epoch,
            frozenset(saved.in_sync),
            guard=(int(saved.fresh),),
            since=saved.since,
        )
        term = InSyncSet(state, saved.start, max_lag_s=MAX_LAG, min_in_sync=self._min_in_sync)
        term.proposed = frozenset(saved.proposed) or None
        term.acknowledged = saved.acknowledged
        term._slaves = {number: _Member(*slave) for number, slave in saved.slaves}
        term._joining, term._away = set(saved.joining), set(saved.away)
        self.member.term = term
        self._make_fence(term, saved.shown)
        fence = self.fence
        assert fence is not None
        fence._connections = {number: number for number in saved.connections}
        fence._alone, fence._settles = saved.alone, saved.settles
        self.confirm.replace(NO_LIMIT if saved.alone else saved.confirmed, int(saved.usable))

    def _saved_term(self) -> Term | tuple[()]:
        fence = self.fence
        if fence is None:
            return ()
        term, confirm = fence.term, self.confirm
        slaves = ((number, _saved(slave)) for number, slave in sorted(term._slaves.items()))
        confirmed = confirm.confirmed_offset
        return Term(
            term.master.epoch,
            tuple(sorted(term.state.in_sync)),
            term.state.since,
            term.state.guard == (1,),
            tuple(sorted(term.proposed or ())),
            term._start,
            tuple(slaves),
            tuple(sorted(term._joining)),
            tuple(sorted(term._away)),
            term.acknowledged,
            tuple(sorted(fence._connections)),
            fence._shown,
            fence._alone,
            fence._settles,
            0 if confirmed == NO_LIMIT else confirmed,
            confirm.may_wait(confirmed),
        )

    def saved(self) -> Member:
        """This member in the next state."""
        deadline, mark = self.lease.deadline, self.mark.left
        return Member(
            tuple(self.log),
            self.epochs.entries,
            self.claimed,
            () if mark is None else (mark.end, mark.epoch),
            self.clean,
            self.up,
            self.complete.is_whole,
            self.complete.admitted_in,
            int(deadline) if self.lease.held else 0,
            self.follows,
            self.connected,
            self._saved_term(),
        )


def _saved(slave: _Member) -> Slave:
    """What counts of a slave: its last report, unless it was caught up since, or long ago."""
    caught_up_at, mark, mark_at = LONG_AGO, 0, LONG_AGO
    if slave.connected:
        caught_up_at = int(max(slave.caught_up_at, LONG_AGO))
        if slave.mark_at > caught_up_at:
            mark, mark_at = slave.mark, int(slave.mark_at)
    return Slave(slave.connected, slave.offset, slave.lost, caught_up_at, mark, mark_at)
