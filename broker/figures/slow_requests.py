"""A log of requests that take long, and of where their time went."""

import logging
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from time import perf_counter

from congreve.base.limited_log import LimitedLog
from congreve.broker.figures.handler_times import Served
from congreve.broker.figures.put_times import PutTimes
from congreve.broker.figures.slow_chunk import SlowChunk
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

NS_OF_MS, NS_OF_S = 1_000_000, 1_000_000_000


class SlowRequests:
    """Logs requests that take `limit_s` or more, at most one line in ten seconds for each code.

    note() sees the requests that have handlers, note_read() pulls that waited for the disk;
    note_chunks() logs what the threads of compiled code have noted. `clock` gives seconds.
    (RocketMQ: NettyRemotingAbstract logs slow callbacks.)
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = perf_counter) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._logs: dict[int | str, LimitedLog] = {}
        self._threads: list[PutTimes] = []

    def note(self, served: Served) -> None:
        """Log a request that had a handler, if it was slow."""
        if served.whole_s < self._limit_s:
            return
        code = served.request.code
        known = code in RequestCode.__members__.values()
        self._log(code).warning(
            "slow request %s from %s:%d%s took %.0f ms: %.0f ms on the event loop, %.0f ms of"
            " waiting for its turn, the disk or clients",
            RequestCode(code).name if known else code,
            *served.connection.peer,
            " by gRPC" if served.connection.speaks_http2 else "",
            served.whole_s * 1000,
            served.busy_s * 1000,
            (served.whole_s - served.busy_s) * 1000,
        )

    def watch_threads(self, threads: Iterable[PutTimes]) -> None:
        """Let these threads note slow requests, for note_chunks()."""
        self._threads = list(threads)
        for each in self._threads:
            each.slow_ns = int(self._limit_s * NS_OF_S)

    def note_chunks(self) -> None:
        """Log the slow chunks of requests that threads have noted since the last call."""
        for each in self._threads:
            for chunk in each.take_slow():
                self._note_chunk(chunk)

    def note_read(self, connection: Connection, begun_ms: int) -> None:
        """Log a pull whose messages are in memory now, if it was slow."""
        spent_ms = time.monotonic_ns() / NS_OF_MS - begun_ms
        if spent_ms < self._limit_s * 1000:
            return
        self._log(RequestCode.PULL_MESSAGE).warning(
            "slow request %s from %s:%d took %.0f ms to read old messages from disk",
            RequestCode.PULL_MESSAGE.name,
            *connection.peer,
            spent_ms,
        )

    def _note_chunk(self, chunk: SlowChunk) -> None:
        names = ", ".join(chunk.requests)
        self._log(names).warning(
            "slow request %s from %s:%d%s took %.0f ms: %.0f ms behind other connections, %.0f ms"
            " of work, %.0f ms for new files, %.0f ms until it was on disk, %.0f ms until a slave"
            " had it; %d requests with %d messages came together, %d more chunks were slow",
            names,
            ip_address(chunk.address),
            chunk.port,
            " by gRPC" if chunk.by_grpc else "",
            chunk.whole_ns / NS_OF_MS,
            chunk.queued_ns / NS_OF_MS,
            chunk.worked_ns / NS_OF_MS,
            chunk.files_ns / NS_OF_MS,
            chunk.disk_ns / NS_OF_MS,
            chunk.slave_ns / NS_OF_MS,
            sum(chunk.requests.values()),
            chunk.messages,
            chunk.missed,
        )

    def _log(self, kind: int | str) -> LimitedLog:
        return self._logs.setdefault(kind, LimitedLog(logger, clock=self._clock))
