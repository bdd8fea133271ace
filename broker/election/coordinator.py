"""What an election needs from a coordination service."""

from typing import Protocol, Self

import msgspec

from congreve.broker.errors import BrokerError


class CoordinatorError(BrokerError):
    """The coordination service cannot be reached or refused a call; nothing has changed."""


class OutcomeUnknownError(CoordinatorError):
    """The answer to a change is lost: it may have happened. The caller reads the state again."""


class StateChangedError(CoordinatorError):
    """The state was not the one that the caller had read; nothing has changed."""


class LeaseLostError(CoordinatorError):
    """This member's lease has ended or belongs to another member."""


class Master(msgspec.Struct, frozen=True, rename="camel"):
    """The holder of the lease; both addresses are `ip:port`.

    `asks_store` says that slaves name their stores to it, which earlier versions do not expect.
    RocketMQ: the master of a broker name in the controller's ReplicasInfoManager.
    """

    member: int
    epoch: int
    address: str
    ha_address: str
    asks_store: bool = False


class ElectRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An operator asks for this member as master (RocketMQ: ElectMasterRequestHeader).

    With `unclean` it may lack acknowledged messages, which are then lost. `by` is for the audit
    log.
    """

    member: int
    by: str
    unclean: bool = False


class LogEnd(msgspec.Struct, frozen=True):
    """Where the log of a member ends that stopped uncleanly, while it waits for the others.

    `waits_in` is the epoch without a master in which it waits: what it said before is void after
    an election. `epoch` is the newest one of its store.
    """

    waits_in: int
    epoch: int
    end: int


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """Another store that runs with a member's number.

    The master gives it the number if it is empty and the number's own store is not connected, or
    if an operator says so, whose name is `by`.
    """

    store: str
    is_empty: bool
    by: str = ""


class Seat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member's number: the id of the store that has it, and its log's end while it waits.

    RocketMQ: BrokerReplicaInfo.
    """

    store: str
    log_end: LogEnd | None = None
    claim: Claim | None = None


class GroupState(msgspec.Struct, frozen=True):
    """The state of one group in the coordination service (RocketMQ: SyncStateInfo).

    `master` is None while no member holds a live lease. `epoch` is that of the last election, 0
    before the first one; only members of `in_sync` have all acknowledged messages. `guard` belongs
    to the coordinator. `request` is an operator's, until the next election. `seats` are the
    numbers of members that have taken part, not those of earlier versions. `since` is the epoch of
    which every member of the set has been a part, 0 for `epoch`.
    """

    master: Master | None = None
    epoch: int = 0
    in_sync: frozenset[int] = frozenset()
    guard: tuple[int | str, ...] = ()
    request: ElectRequest | None = None
    seats: dict[int, Seat] = {}
    since: int = 0

    @property
    def set_epoch(self) -> int:
        """The oldest epoch that a member of the in-sync set may have as its newest."""
        return self.since or self.epoch

    def elected(self, candidate: Master) -> Self:
        """The state after an election, without its guard.

        The set stays: its members have all that is acknowledged until this master acknowledges
        more, and it changes the set first where they cannot have that. An operator's unclean
        election leaves the candidate alone.
        """
        others = self.in_sync - {candidate.member}
        if self.request is not None and self.request.unclean:
            others = frozenset()
        return type(self)(
            master=candidate,
            epoch=candidate.epoch,
            in_sync=others | {candidate.member},
            seats=self.seats,
            since=self.set_epoch if others else candidate.epoch,
        )


class Coordinator(Protocol):
    """One group's state in a coordination service, for one member.

    Every change is conditional on the state that the member has read. All calls raise
    CoordinatorError; a change raises OutcomeUnknownError if its answer is lost.

    RocketMQ: the controller, and the BrokerOuterAPI calls that a broker makes to it.
    """

    async def read(self) -> GroupState:
        """The state now, after all completed changes."""
        ...

    async def elect(self, seen: GroupState, candidate: Master, ttl_s: int) -> GroupState:
        """Make the candidate the master, as GroupState.elected(), with a lease of `ttl_s` seconds.

        Raises StateChangedError unless the state still is `seen`, without a master.
        """
        ...

    async def keep_alive(self) -> None:
        """Renew this member's lease. Raises LeaseLostError when it has ended."""
        ...

    async def change_set(self, seen: GroupState, members: frozenset[int], since: int) -> GroupState:
        """Replace the in-sync set, all of which has been a part of the epoch `since`.

        Raises StateChangedError unless this member holds its lease.
        """
        ...

    async def note(self, seen: GroupState, member: int, seat: Seat) -> GroupState:
        """Replace one member's seat. Raises StateChangedError unless the state still is `seen`."""
        ...

    async def request_election(self, seen: GroupState, request: ElectRequest | None) -> GroupState:
        """Note an operator's request, or withdraw it: any process may call this.

        Raises StateChangedError unless the state still is `seen`.
        """
        ...

    async def resign(self) -> None:
        """End this member's lease at once, so that another member need not wait for its end."""
        ...

    async def changed(self, seen: GroupState, limit_s: float) -> GroupState:
        """The first state that is not `seen`; after `limit_s` seconds, the current state."""
        ...

    async def close(self) -> None:
        """Free connections; the lease stays until it ends."""
        ...
