"""A coordination service in memory, for members that share a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from congreve.broker.election.coordinator import (
    ElectRequest,
    GroupState,
    Master,
    Seat,
    StateChangedError,
)

TTL_S = 3.0
"""The time of a lease."""


@dataclass
class Service:
    """A linearizable coordination service with one lease; a change may be carried out late."""

    now: Callable[[], float]
    master: Master | None = None
    epoch: int = 0
    in_sync: frozenset[int] = frozenset()
    ends_at: float = 0.0
    revision: int = 0
    request: ElectRequest | None = None
    seats: dict[int, Seat] = field(default_factory=dict)
    noted: int = 0  # the revision of the seats
    since: int = 0

    def read(self) -> GroupState:
        if self.master is not None and self.now() >= self.ends_at:
            self.master = None
        guard = self.revision, self.noted
        return GroupState(
            *(self.master, self.epoch, self.in_sync, guard, self.request, dict(self.seats)),
            since=self.since,
        )

    def elect(self, seen: GroupState, candidate: Master) -> GroupState:
        if self.read() != seen or seen.master is not None:
            raise StateChangedError("another election")
        self.revision += 1
        self.master, self.epoch = candidate, candidate.epoch
        self.request = None
        made = seen.elected(candidate)
        self.in_sync, self.since = made.in_sync, made.since
        self.ends_at = self.now() + TTL_S
        return self.read()

    def change_set(
        self, master: Master, seen: GroupState, members: frozenset[int], since: int
    ) -> GroupState:
        if self.read().master != master or seen.guard[0] != self.revision:
            raise StateChangedError("another term, or another set")
        self.revision += 1
        self.in_sync, self.since = members, since
        return self.read()

    def note(self, seen: GroupState, member: int, seat: Seat) -> GroupState:
        if self.read() != seen:
            raise StateChangedError("another change")
        self.noted += 1
        self.seats[member] = seat
        return self.read()

    def ask(self, request: ElectRequest) -> None:
        """An operator's request, as Operator makes it."""
        if (self.read().master is None) is request.unclean:
            self.revision += 1
            self.request = request

    def keep_alive(self, master: Master) -> bool:
        if self.read().master != master:
            return False
        self.ends_at = self.now() + TTL_S
        return True

    def release(self, member: int) -> None:
        if (master := self.read().master) is not None and master.member == member:
            self.master = None
