"""How long the requests take that have handlers."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler


class Served(NamedTuple):
    """A request whose handler has ended, and its times in seconds."""

    request: RemotingCommand
    connection: Connection
    code: int | None  # of the answer; None: it has none, or one that is sent by other means
    whole_s: float  # from the arrival of the request to its answer
    busy_s: float  # of it on the event loop, the rest is waiting


class HandlerTimes:
    """Times handlers, and gives each Served to all `recorders`.

    `clock` returns seconds. (RocketMQ 5: RemotingMetricsManager.)
    """

    def __init__(
        self,
        recorders: Sequence[Callable[[Served], None]],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._recorders = recorders
        self._clock = clock

    def watch(self, handlers: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The same handlers, timed if there are recorders."""
        if not self._recorders:
            return handlers
        return {code: self._watched(handler) for code, handler in handlers.items()}

    def _watched(self, handler: Handler) -> Handler:
        def watched(request: RemotingCommand, connection: Connection) -> Any:
            begin = self._clock()
            try:
                answer = handler(request, connection)
            except BaseException:
                spent = self._clock() - begin
                self._record(Served(request, connection, ResponseCode.SYSTEM_ERROR, spent, spent))
                raise
            spent = self._clock() - begin
            if answer is not None and not isinstance(answer, RemotingCommand):
                return self._later(request, connection, answer, begin, spent)
            code = None if answer is None else answer.code
            self._record(Served(request, connection, code, spent, spent))
            return answer

        return watched

    async def _later(
        self,
        request: RemotingCommand,
        connection: Connection,
        awaited: Awaitable[Answer],
        begin: float,
        busy: float,
    ) -> Answer:
        timed = _Timed(awaited, self._clock)
        code: int | None = ResponseCode.SYSTEM_ERROR
        try:
            answer = await timed
            code = None if answer is None else answer.code
        finally:
            whole = self._clock() - begin
            self._record(Served(request, connection, code, whole, busy + timed.busy))
        return answer

    def _record(self, served: Served) -> None:
        for record in self._recorders:
            record(served)


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
