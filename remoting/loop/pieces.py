"""Long work on an event loop, in short pieces."""

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

from congreve.remoting.loop.loop_time import LoopTime

T = TypeVar("T")

PIECE_S = 0.002
BURST_S = 1.0
"""The loop's seconds that a peer may take at once: a client of thousands of queues and groups."""
SHARE = 0.01
"""Of the loop's time, what each peer gets that has taken these."""
COMMON_SHARE = 0.05
"""Of the loop's time, what all these peers get besides: a proxy has many clients."""


class Pieces:
    """Runs long work of one event loop in pieces of PIECE_S, and gives the loop a turn after each.

    Only one piece runs in a turn, however many requests need long work at the same time. Work is a
    generator: it yields wherever it can be interrupted, and returns its result. With `pause_s` the
    loop may also sleep after each piece, which leaves its core to other threads.
    """

    def __init__(
        self,
        piece_s: float = PIECE_S,
        clock: Callable[[], float] = perf_counter,
        *,
        pause_s: float = 0.0,
    ) -> None:
        self._piece_s = piece_s
        self._pause_s = pause_s
        self._clock = clock
        self._turn = asyncio.Lock()
        self._times: WeakKeyDictionary[object, LoopTime] = WeakKeyDictionary()
        self._common = LoopTime(COMMON_SHARE, COMMON_SHARE, clock)

    async def run(self, work: Generator[object, None, T], peer: object = None) -> T:
        """Run the work; return its result or raise its error.

        After several pieces it returns in a turn of its own. Work for a `peer` that has taken its
        burst also waits for this peer's share of the loop's time, or for some of the common one.
        """
        pieces = 1
        own = None if peer is None else self._time_of(peer)
        while True:
            while own and (wait_s := min(own.wait_s, self._common.wait_s)):
                await asyncio.sleep(wait_s)
            async with self._turn:
                try:
                    self._run_piece(work, own)
                except StopIteration as done:
                    result: T = done.value
                    if pieces > 1:  # it may be large, and its use takes time
                        await asyncio.sleep(0)
                    return result
                pieces += 1
                await asyncio.sleep(self._pause_s)  # the next piece of any work waits for it

    def _time_of(self, peer: object) -> LoopTime:
        found = self._times.get(peer)
        if found is None:
            found = self._times[peer] = LoopTime(BURST_S, SHARE, self._clock)
        return found

    def _run_piece(self, work: Generator[object, None, object], own: LoopTime | None) -> None:
        """Raises StopIteration with the result at the end of the work."""
        began = self._clock()
        try:
            next(work)
            while self._clock() < began + self._piece_s:
                next(work)
        finally:
            if own is not None:
                (self._common if own.wait_s else own).spend(self._clock() - began)


class Encodable(Protocol):
    """An object with an encoded body: a Body, or a table that copies itself in steps."""

    def encode_steps(self) -> Generator[None, None, bytes]:
        """The encoded body, in steps."""


class EncodedUntilChanged:
    """The encoded bytes of a body, encoded again only when `version` returns another value.

    Callers that come while it is being encoded get the same bytes. `body` returns an object that is
    not edited meanwhile, or that copies itself.
    """

    def __init__(
        self, pieces: Pieces, version: Callable[[], object], body: Callable[[], Encodable]
    ) -> None:
        self._pieces = pieces
        self._version = version
        self._body = body
        self._encoding = asyncio.Lock()
        self._encoded_version: object = None
        self._bytes: bytes | None = None

    async def get(self) -> bytes:
        """The encoded body, no older than this call."""
        async with self._encoding:
            version = self._version()
            if self._bytes is None or version != self._encoded_version:
                self._bytes = await self._pieces.run(self._body().encode_steps())
                self._encoded_version = version
            return self._bytes
