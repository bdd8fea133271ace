"""A member's way to the coordination service: late, cut off, or with answers that are lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from broker.election.simulation import TTL_S, Service

from congreve.broker.election.coordinator import (
    CoordinatorError,
    ElectRequest,
    GroupState,
    LeaseLostError,
    Master,
    OutcomeUnknownError,
    Seat,
)

T = TypeVar("T")

LATENCY_S = 0.002
TIMEOUT_S = TTL_S / 3


@dataclass
class Watched:
    """The service, and the members that wait for its next change."""

    loop: asyncio.AbstractEventLoop
    chance: random.Random
    service: Service = field(init=False)
    cut: set[int] = field(default_factory=set)
    """Members that do not reach it."""
    lost_answers: float = 0.0
    """The share of answers that are lost."""
    changes: int = 0
    """Changes of master or set."""
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.service = Service(self.loop.time)

    def changed(self) -> None:
        """Let those that wait look again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def next_change(self, limit_s: float) -> None:
        """Return at the next change, or when the lease may have ended."""
        left = self.service.ends_at - self.loop.time()
        if self.service.master is not None and left > 0:
            limit_s = min(limit_s, left + 0.001)
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(limit_s):
                await future
        except TimeoutError:
            self._waiting = [each for each in self._waiting if each is not future]


class SimulatedCoordinator:
    """The Coordinator of one life of a member."""

    def __init__(self, watched: Watched, member: int) -> None:
        self._watched = watched
        self._member = member
        self._master: Master | None = None
        self.detached = False
        """Whether the member's process has ended."""

    async def read(self) -> GroupState:
        """The state now."""
        return await self._ask(self._watched.service.read)

    async def elect(self, seen: GroupState, candidate: Master, ttl_s: int) -> GroupState:
        """Make the candidate the master."""
        self._master = candidate
        return await self._change(lambda: self._watched.service.elect(seen, candidate))

    async def keep_alive(self) -> None:
        """Renew the lease."""
        master = self._master
        if master is None or not await self._ask(lambda: self._watched.service.keep_alive(master)):
            raise LeaseLostError("the lease is another's")

    async def change_set(self, seen: GroupState, members: frozenset[int], since: int) -> GroupState:
        """Replace the in-sync set."""
        service, master = self._watched.service, self._master
        assert master is not None
        return await self._change(lambda: service.change_set(master, seen, members, since))

    async def note(self, seen: GroupState, member: int, seat: Seat) -> GroupState:
        """Replace one member's seat."""
        return await self._change(
            lambda: self._watched.service.note(seen, member, seat), counts=False
        )

    async def request_election(self, seen: GroupState, request: ElectRequest | None) -> GroupState:
        """Operators ask the service itself."""
        raise NotImplementedError

    async def resign(self) -> None:
        """End the lease."""
        await self._ask(lambda: self._watched.service.release(self._member))
        self._watched.changed()

    async def changed(self, seen: GroupState, limit_s: float) -> GroupState:
        """The first state that is not `seen`."""
        until = self._watched.loop.time() + limit_s
        while True:
            state = await self.read()
            left = until - self._watched.loop.time()
            if state != seen or left <= 0:
                return state
            await self._watched.next_change(left)

    async def close(self) -> None:
        """Nothing is open."""

    async def _change(self, run: Callable[[], GroupState], *, counts: bool = True) -> GroupState:
        watched = self._watched
        chance = watched.chance.random()
        if chance < watched.lost_answers / 2 and not self.detached:
            # It is carried out so late that the member does not wait for it any more.
            watched.loop.call_later(TIMEOUT_S * (1 + watched.chance.random()), self._late, run)
            await asyncio.sleep(TIMEOUT_S)
            raise OutcomeUnknownError("the service did not answer in time")
        state = await self._ask(run)
        watched.changes += counts
        watched.changed()
        if chance < watched.lost_answers:
            await asyncio.sleep(TIMEOUT_S)
            raise OutcomeUnknownError("the answer is lost")
        return state

    def _late(self, run: Callable[[], GroupState]) -> None:
        try:
            run()
        except CoordinatorError:
            return
        self._watched.changes += 1
        self._watched.changed()

    async def _ask(self, run: Callable[[], T]) -> T:
        watched = self._watched
        await self._reach()
        await asyncio.sleep(LATENCY_S * watched.chance.random())
        await self._reach()
        answer = run()
        await asyncio.sleep(LATENCY_S * watched.chance.random())
        return answer

    async def _reach(self) -> None:
        if self.detached:
            raise CoordinatorError("this process has ended")
        if self._member in self._watched.cut:
            await asyncio.sleep(TIMEOUT_S)
            raise CoordinatorError("the service does not answer")
