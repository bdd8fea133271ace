"""A log of requests that take long, and of where their time went."""

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from time import perf_counter
from typing import Any

from congreve.limited_log import LimitedLog
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler

logger = logging.getLogger(__name__)


class SlowRequests:
    """Logs requests that take `limit_s` or more, at most one line in ten seconds for each code.

    It sees the requests that have handlers. The time of ordinary sends and pulls, which compiled
    code serves, is in the metric congreve_put_seconds. `clock` gives seconds. (RocketMQ:
    NettyRemotingAbstract logs slow callbacks.)
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = perf_counter) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._logs: dict[int, LimitedLog] = {}

    def watch(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers, watched."""
        return {code: self._watched(handler) for code, handler in handlers.items()}

    def _watched(self, handler: Handler) -> Handler:
        def watched(request: RemotingCommand, connection: Connection) -> Any:
            begin = self._clock()
            answer = handler(request, connection)
            busy = self._clock() - begin
            if answer is None or isinstance(answer, RemotingCommand):
                self._note(request, connection, busy, busy)
                return answer
            return self._later(request, connection, answer, begin, busy)

        return watched

    async def _later(
        self,
        request: RemotingCommand,
        connection: Connection,
        answer: Awaitable[Answer],
        begin: float,
        busy: float,
    ) -> Answer:
        timed = _Timed(answer, self._clock)
        try:
            return await timed
        finally:
            self._note(request, connection, self._clock() - begin, busy + timed.busy)

    def _note(
        self, request: RemotingCommand, connection: Connection, whole: float, busy: float
    ) -> None:
        if whole < self._limit_s:
            return
        code = request.code
        known = code in RequestCode.__members__.values()
        self._logs.setdefault(code, LimitedLog(logger, clock=self._clock)).warning(
            "slow request %s from %s:%d took %.0f ms: %.0f ms on the event loop, %.0f ms of waiting"
            " for its turn, the disk or clients",
            RequestCode(code).name if known else code,
            *connection.peer,
            whole * 1000,
            busy * 1000,
            (whole - busy) * 1000,
        )


class _Timed:
    """Awaits, and adds up the time in which the event loop worked for it."""

    def __init__(self, awaited: Awaitable[Answer], clock: Callable[[], float]) -> None:
        self.busy = 0.0
        self._awaited = awaited
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, Answer]:
        steps = self._awaited.__await__()
        raised: BaseException | None = None
        while True:
            begin = self._clock()
            try:
                waits_for = next(steps) if raised is None else steps.throw(raised)
            except StopIteration as end:
                result: Answer = end.value
                return result
            finally:
                self.busy += self._clock() - begin
            raised = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation is for the handler
                raised = error
