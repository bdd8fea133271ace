"""Error answers in one place: whatever a handler raises on purpose becomes a code and a remark."""

import inspect
import logging
from collections.abc import Awaitable, Mapping
from functools import wraps

from congreve.broker.errors import RefusedError
from congreve.errors import CongreveError
from congreve.remoting.codes import ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler

logger = logging.getLogger(__name__)


def answer_refusals(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The same handlers; RefusedError is answered with its code, our other errors with 1."""
    return {code: _answering(handler) for code, handler in handlers.items()}


def _answering(handler: Handler) -> Handler:
    @wraps(handler)
    def answering(
        request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        try:
            answer = handler(request, connection)
        except CongreveError as error:
            return _refusal(request, error)
        if inspect.isawaitable(answer):
            return _awaited(request, answer)
        return answer

    return answering


async def _awaited(
    request: RemotingCommand, answer: Awaitable[RemotingCommand | None]
) -> RemotingCommand | None:
    try:
        return await answer
    except CongreveError as error:
        return _refusal(request, error)


def _refusal(request: RemotingCommand, error: CongreveError) -> RemotingCommand:
    code = error.code if isinstance(error, RefusedError) else ResponseCode.SYSTEM_ERROR
    logger.info("request %d refused with %d: %s", request.code, code, error)
    return request.reply(code, str(error))
