"""What an operator may request of a group: another master, or one that lacks messages."""

import asyncio
import time
from collections.abc import Callable

import msgspec

from congreve.broker.election.coordinator import (
    Coordinator,
    ElectRequest,
    GroupState,
    Master,
    StateChangedError,
)
from congreve.broker.errors import BrokerError


class OperatorError(BrokerError):
    """The group is not in the state that a request needs, or has not carried it out."""


class Operator:
    """Asks one group for a master, and waits for the election.

    `by` is the operator, for the audit log; `ttl_s` is the group's haLeaseSeconds. A request that
    is not carried out in `timeout_s` seconds is withdrawn, so that none is carried out later.
    (RocketMQ: ReElectMasterSubCommand.)
    """

    def __init__(
        self,
        coordinator: Coordinator,
        by: str,
        *,
        ttl_s: float,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator = coordinator
        self._by = by
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._now = monotonic

    async def transfer(self, member: int | None = None) -> Master:
        """Let this member of the in-sync set, or any other than the master, become the master.

        Nothing is lost. Raises OperatorError, CoordinatorError.
        """
        state = await self._coordinator.read()
        if state.master is None:
            raise OperatorError("the group has no master that could hand it over")
        others = sorted(state.in_sync - {state.master.member})
        wanted = next(iter(others), None) if member is None else member
        if wanted == state.master.member:
            raise OperatorError(f"member {wanted} is the master already")
        if wanted is None or wanted not in others:
            which = "no other member" if wanted is None else f"no member {wanted}"
            raise OperatorError(
                f"{which} is in the in-sync set {sorted(state.in_sync)}: only its members have all"
                " acknowledged messages"
            )
        return await self._ask(state, ElectRequest(wanted, self._by))

    async def elect_unclean(self, member: int) -> Master:
        """Let this member become the master, although its log may lack messages, which are then
        lost.

        The group must have been without a master for the time of a lease, in which a member of the
        in-sync set would have been elected. Raises OperatorError, CoordinatorError.
        """
        state = await self._without_master()
        return await self._ask(state, ElectRequest(member, self._by, unclean=True))

    async def replace(self, member: int) -> str:
        """Give a member's number to the other store that runs with it; returns that store's id.

        The member leaves the in-sync set, and its last store is a member no more. Raises
        OperatorError, CoordinatorError.
        """
        state = await self._coordinator.read()
        if state.master is None:
            raise OperatorError(
                "the group has no master, which would let the member leave the in-sync set first"
            )
        if state.master.member == member:
            raise OperatorError(f"member {member} is the master: use `transfer` first")
        seat = state.seats.get(member)
        if seat is None or seat.claim is None:
            raise OperatorError(
                f"no other store runs with brokerId {member}: start the one that shall have it"
            )
        wanted = seat.claim.store
        claim = msgspec.structs.replace(seat.claim, by=self._by)
        state = await self._coordinator.note(
            state, member, msgspec.structs.replace(seat, claim=claim)
        )
        until = self._now() + self._timeout_s
        while (left := until - self._now()) > 0:
            if state.seats[member].store == wanted:
                return wanted
            state = await self._coordinator.changed(state, left)
        raise OperatorError(
            f"the master has not given the number {member} to the store {wanted} in"
            f" {self._timeout_s:g} s: its log says why"
        )

    async def _without_master(self) -> GroupState:
        state = await self._coordinator.read()
        since = self._now()
        until = since + 2 * self._ttl_s + 1
        while state.master is not None or self._now() < since + self._ttl_s:
            if self._now() >= until:
                raise OperatorError(
                    "the group has a master, or changes it at the moment"
                    if state.master is None
                    else f"member {state.master.member} is the master: use `transfer`"
                )
            seen = state
            end = until if seen.master is not None else min(since + self._ttl_s, until)
            state = await self._coordinator.changed(seen, max(end - self._now(), 0.0))
            if state.master is not None or seen.master is not None or state.epoch != seen.epoch:
                since = self._now()
        return state

    async def _ask(self, seen: GroupState, request: ElectRequest) -> Master:
        state = await self._coordinator.request_election(seen, request)
        until = self._now() + self._timeout_s
        try:
            while (left := until - self._now()) > 0:
                state = await self._coordinator.changed(state, left)
                if state.master is not None and state.epoch > seen.epoch:
                    return state.master
        finally:
            await self._withdraw(request)
        raise OperatorError(
            f"member {request.member} has not become the master in {self._timeout_s:g} s: the"
            " request is withdrawn. Its log says why"
        )

    async def _withdraw(self, request: ElectRequest) -> None:
        """Remove the request if it is still there: the master may change meanwhile."""
        while True:
            state = await self._coordinator.read()
            if state.request != request:
                return
            try:
                await self._coordinator.request_election(state, None)
            except StateChangedError:
                await asyncio.sleep(0)
