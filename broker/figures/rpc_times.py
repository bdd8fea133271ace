"""Requests that have handlers, counted by their times."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from congreve.broker.figures.handler_times import Served
from congreve.broker.figures.put_times import RPC_BOUNDS_MS


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
    by_grpc: bool = False


class RpcTimes:
    """Counts the answers of the event loop by request and response code.

    Sends that wait for the disk are counted where they wait (PutTimes), one-way requests nowhere.
    (RocketMQ 5: RemotingMetricsManager.)
    """

    def __init__(self) -> None:
        self.times: dict[RpcKind, RpcTime] = {}
        self._waited_s: float | None = None

    @contextmanager
    def waited(self, seconds: float | None) -> Iterator[None]:
        """Requests that are handled meanwhile have waited so long for messages, or not (None)."""
        self._waited_s = seconds
        try:
            yield
        finally:
            self._waited_s = None

    def note(self, served: Served) -> None:
        """Count a request that has an answer."""
        if served.code is None or served.request.is_oneway:
            return
        spent_ms = (served.whole_s + (self._waited_s or 0.0)) * 1000
        kind = RpcKind(
            served.request.code,
            served.code,
            waited=self._waited_s is not None,
            by_grpc=served.connection.speaks_http2,
        )
        time_of = self.times.get(kind)
        if time_of is None:
            time_of = self.times[kind] = RpcTime()
        time_of.counts[bisect_left(RPC_BOUNDS_MS, spent_ms)] += 1
        time_of.sum_ms += spent_ms
