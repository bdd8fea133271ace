"""How long requests take that have handlers."""

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from congreve.broker.metrics.put_times import RPC_BOUNDS_MS
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


class RpcTimes:
    """Counts the answers of handlers by request and response code; the event loop uses it.

    Answers that wait for the disk or for messages are counted where they wait (PutTimes), one-way
    requests nowhere. `clock` returns seconds. (RocketMQ 5: RemotingMetricsManager.)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.times: dict[tuple[int, int], RpcTime] = {}
        self._clock = clock

    def watch(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers, counted."""
        return {code: self._watched(code, handler) for code, handler in handlers.items()}

    def _watched(self, code: int, handler: Handler) -> Handler:
        def watched(request: RemotingCommand, connection: Connection) -> Any:
            begin = self._clock()
            try:
                answer = handler(request, connection)
            except BaseException:
                self._note(code, ResponseCode.SYSTEM_ERROR, begin)
                raise
            if answer is not None and not isinstance(answer, RemotingCommand):
                return self._later(code, answer, begin)
            if answer is not None and not request.is_oneway:
                self._note(code, answer.code, begin)
            return answer

        return watched

    async def _later(self, code: int, answer: Awaitable[Answer], begin: float) -> Answer:
        try:
            found = await answer
        except BaseException:
            self._note(code, ResponseCode.SYSTEM_ERROR, begin)
            raise
        if found is not None:
            self._note(code, found.code, begin)
        return found

    def _note(self, code: int, answered: int, begin: float) -> None:
        spent_ms = (self._clock() - begin) * 1000
        time_of = self.times.get((code, answered))
        if time_of is None:
            time_of = self.times[code, answered] = RpcTime()
        time_of.counts[bisect_left(RPC_BOUNDS_MS, spent_ms)] += 1
        time_of.sum_ms += spent_ms
