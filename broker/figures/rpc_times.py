"""How long requests take that have handlers."""

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from congreve.broker.figures.put_times import RPC_BOUNDS_MS
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler


class RpcTime(msgspec.Struct):
    """Requests by their time: in each bucket of RPC_BOUNDS_MS, and above the last bound.

    (RocketMQ 5: RemotingMetricsManager.rpcLatency.)
    """

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(RPC_BOUNDS_MS) + 1))
    sum_ms: float = 0.0


class RpcKind(NamedTuple):
    """What RpcTimes tells apart."""

    code: int  # of the request
    answered: int  # the code of the answer
    waited: bool = False  # for messages (is_long_polling)


class RpcTimes:
    """Counts the answers of the event loop by request and response code.

    Sends that wait for the disk are counted where they wait (PutTimes), one-way requests nowhere.
    `clock` returns seconds of the monotonic clock. (RocketMQ 5: RemotingMetricsManager.)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.times: dict[RpcKind, RpcTime] = {}
        self._clock = clock
        self._waited_s: float | None = None

    @contextmanager
    def waited(self, seconds: float | None) -> Iterator[None]:
        """Requests that are handled meanwhile have waited so long for messages, or not (None)."""
        self._waited_s = seconds
        try:
            yield
        finally:
            self._waited_s = None

    def watch(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers, counted."""
        return {code: self._watched(code, handler) for code, handler in handlers.items()}

    def _watched(self, code: int, handler: Handler) -> Handler:
        def watched(request: RemotingCommand, connection: Connection) -> Any:
            waited = self._waited_s is not None
            begin = self._clock() - (self._waited_s or 0.0)
            try:
                answer = handler(request, connection)
            except BaseException:
                self._note(RpcKind(code, ResponseCode.SYSTEM_ERROR, waited), begin)
                raise
            if answer is not None and not isinstance(answer, RemotingCommand):
                return self._later(code, answer, begin)
            if answer is not None and not request.is_oneway:
                self._note(RpcKind(code, answer.code, waited), begin)
            return answer

        return watched

    async def _later(self, code: int, answer: Awaitable[Answer], begin: float) -> Answer:
        try:
            found = await answer
        except BaseException:
            self._note(RpcKind(code, ResponseCode.SYSTEM_ERROR), begin)
            raise
        if found is not None:
            self._note(RpcKind(code, found.code), begin)
        return found

    def _note(self, kind: RpcKind, begin: float) -> None:
        spent_ms = (self._clock() - begin) * 1000
        time_of = self.times.get(kind)
        if time_of is None:
            time_of = self.times[kind] = RpcTime()
        time_of.counts[bisect_left(RPC_BOUNDS_MS, spent_ms)] += 1
        time_of.sum_ms += spent_ms
