"""The next step of one member of a group, from the state in the coordination service."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from congreve.broker.election.coordinator import (
    Claim,
    GroupState,
    LogEnd,
    Master,
    Seat,
)
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease

UNCLEAN_EPOCHS = 1_000
"""By how much an unclean election raises the epoch, above any that another store may have."""


class Lead(NamedTuple):
    """Stay the master (RocketMQ: BrokerRole.SYNC_MASTER)."""


class Follow(NamedTuple):
    """Copy the log of this master (RocketMQ: BrokerRole.SLAVE)."""

    master: Master


class Elect(NamedTuple):
    """Ask the coordination service for the lease (RocketMQ: brokerElect)."""

    seen: GroupState
    candidate: Master


class Release(NamedTuple):
    """End this member's lease: it belongs to no term, or an operator wants another master."""


class Note(NamedTuple):
    """Tell the coordination service about this member, and follow no master meanwhile."""

    seen: GroupState
    seat: Seat


class Wait(NamedTuple):
    """Serve nothing; `why` is for the log."""

    why: str


Step = Lead | Follow | Elect | Release | Note | Wait


class Knowledge(NamedTuple):
    """What a member's store says about the group; both epochs survive a crash.

    `newest_epoch` is that of the epoch file, -1 without one. `claimed` is the epoch of the last
    election that this member has asked for, 0 before the first. `store` is the store's id, `end`
    the end of the log, or of its part before the first damage. The last two are those of
    CompleteLog.
    """

    newest_epoch: int
    claimed: int
    has_messages: bool
    store: str = ""
    end: int = 0
    is_whole: bool = False
    admitted_in: int = -1


class ElectionMember:
    """Decides for one member (RocketMQ: ReplicasManager). It does no I/O.

    A member can become master only if it is in the in-sync set and its store has the set's epoch:
    a store that was emptied, or restored from a backup, is not the one that entered the set. And
    its log has to be complete: after an unclean stop it may have lost its end. If no member with a
    complete log is left, all of the set wait for each other, and the longest log is elected.
    """

    def __init__(self, member: int, address: str, ha_address: str, lease: MasterLease) -> None:
        self.member = member
        self.lease = lease
        self.term: InSyncSet | None = None
        """This member's term; None unless it is the master."""
        self._candidate: Callable[[int], Master] = lambda epoch: Master(
            member, epoch, address, ha_address, asks_store=True
        )
        self._has_claimed = False
        self._seen_free: GroupState | None = None  # without a master, and since when
        self._free_since = 0.0

    def next_step(self, state: GroupState, known: Knowledge) -> Step:
        """What to do in this state; a term that is over ends here."""
        if self.term is not None:
            if state.master == self.term.master and self.lease.held:
                return Release() if self._is_to_leave(state) else Lead()
            self.end_term()
        seat = state.seats.get(self.member)
        if seat is None:
            return Note(state, Seat(known.store))
        if seat.store != known.store:
            return self._claim(state, seat, known)
        if state.master is not None:
            if state.master.member == self.member:
                return Release()
            if known.has_messages and known.newest_epoch < 0:
                return Wait(_NOT_OF_THE_GROUP)
            if known.newest_epoch > state.epoch:
                return Wait(_lost_state(state, known))
            return self._seated(state, seat, None) or Follow(state.master)
        if self._is_asked_unclean(state):
            # Unreachable members may have later epochs than the coordination service.
            newest = max(state.epoch, known.newest_epoch, known.claimed)
            return Elect(state, self._candidate(newest + UNCLEAN_EPOCHS))
        if state.epoch and self.member not in state.in_sync:
            return Wait(
                f"no member of the in-sync set {sorted(state.in_sync)} is running; this member,"
                f" {self.member}, lacks acknowledged messages"
            )
        if known.newest_epoch > state.epoch:
            return Wait(_lost_state(state, known))
        if state.epoch:
            obstacle = self._obstacle(state, seat, known)
            if obstacle is not None:
                return obstacle
        if self._lets_another_go_first(state):
            return Wait("an operator wants another member as master")
        return Elect(state, self._candidate(state.epoch + 1))

    def _claim(self, state: GroupState, seat: Seat, known: Knowledge) -> Note | Wait:
        """Ask for the number of this member, which another store has, once in its life."""
        if self._is_asked_unclean(state) and state.master is None:
            return Note(state, Seat(known.store))
        claim = Claim(known.store, is_empty=not known.has_messages)
        is_noted = seat.claim is not None and seat.claim.store == known.store
        if seat.claim is None or not (is_noted or self._has_claimed):
            self._has_claimed = True
            return Note(state, msgspec.structs.replace(seat, claim=claim))
        cure = (
            "it gets the number when the other one is not connected to a master"
            if claim.is_empty
            else "give this member a brokerId of its own, an empty store, or the number by"
            f" `congreve election replace --broker-id {self.member}`"
        )
        return Wait(
            f"brokerId {self.member} belongs to the store {seat.store}, this one is"
            f" {known.store}: {cure}"
        )

    def _seated(self, state: GroupState, seat: Seat, log_end: LogEnd | None) -> Note | None:
        """The change of this member's seat that is due."""
        wanted = msgspec.structs.replace(seat, log_end=log_end)
        return None if seat == wanted else Note(state, wanted)

    def _obstacle(self, state: GroupState, seat: Seat, known: Knowledge) -> Note | Wait | None:
        """What a member of the in-sync set has to do before it can be elected; None: nothing."""
        is_complete = known.is_whole or known.admitted_in >= state.set_epoch
        if is_complete or state.in_sync == {self.member} or known.newest_epoch < 0:
            return None if self._has_epoch(state, known) else Wait(_other_store(state, known))
        mine = LogEnd(state.epoch, known.newest_epoch, known.end)
        if (change := self._seated(state, seat, mine)) is not None:
            return change
        ends = {
            member: seat.log_end
            for member, seat in state.seats.items()
            if seat.log_end is not None and seat.log_end.waits_in == state.epoch
        }
        if missing := state.in_sync - ends.keys():
            return Wait(
                f"this member stopped uncleanly, and may lack acknowledged messages: one of"
                f" {sorted(missing)} becomes the master, or, once all of them wait, too, the"
                " member with the longest log"
            )
        longest = max(
            state.in_sync, key=lambda member: (ends[member].epoch, ends[member].end, -member)
        )
        if longest != self.member:
            return Wait(f"member {longest} has the longest log of the in-sync set")
        return None

    def _is_to_leave(self, state: GroupState) -> bool:
        return state.request is not None and state.request.member != self.member

    def _is_asked_unclean(self, state: GroupState) -> bool:
        request = state.request
        return request is not None and request.unclean and request.member == self.member

    def _lets_another_go_first(self, state: GroupState) -> bool:
        """Whether to wait for the member that an operator wants, at most for the time of a
        lease."""
        if state.request is None or state.request.unclean or not self._is_to_leave(state):
            return False
        if state != self._seen_free:
            self._seen_free, self._free_since = state, self.lease.now()
        return self.lease.now() < self._free_since + self.lease.ttl_s

    def _has_epoch(self, state: GroupState, known: Knowledge) -> bool:
        if known.newest_epoch >= state.set_epoch:
            return True
        # Elected alone, and stopped before the epoch file was written.
        return known.claimed == state.epoch and state.in_sync == {self.member}

    def begin_term(self, term: InSyncSet, sent_at: float) -> None:
        """An election that was sent at `sent_at` has made this member the master."""
        self.term = term
        self.lease.renewed(sent_at)

    def end_term(self) -> None:
        """This member is not the master any more."""
        self.term = None
        self.lease.end()

    def confirmed(self, own_end: int) -> int:
        """The offset up to which this member may acknowledge messages now; -1: none."""
        if self.term is None or not self.lease.held:
            return -1
        return self.term.confirmed(own_end)


_NOT_OF_THE_GROUP = (
    "the store has messages from before the group's first election: start its member first, or"
    " remove the store so that it copies the master's"
)


def _other_store(state: GroupState, known: Knowledge) -> str:
    return (
        f"the store has epoch {known.newest_epoch}, the in-sync set epoch {state.set_epoch}: the"
        " store was emptied or restored, and lacks acknowledged messages"
    )


def _lost_state(state: GroupState, known: Knowledge) -> str:
    return (
        f"the store has epoch {known.newest_epoch}, the coordination service only {state.epoch}:"
        " it has lost its data; docs/election.md says how an operator continues"
    )
