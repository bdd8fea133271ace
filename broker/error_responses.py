"""Error responses: a handler's exception becomes the code and remark of the answer."""

import inspect
import logging
from collections.abc import Awaitable, Mapping
from functools import wraps

from congreve.base.errors import CongreveError
from congreve.broker.errors import RefusedError
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)


def answer_errors(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """The same handlers, whose CongreveErrors become answers.

    RefusedError is answered with its own code, other errors with SYSTEM_ERROR.
    """
    return {code: _answering(handler) for code, handler in handlers.items()}


def _answering(handler: Handler) -> Handler:
    @wraps(handler)
    def answering(
        request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        try:
            answer = handler(request, connection)
        except CongreveError as error:
            return _error_response(request, error)
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
        return _error_response(request, error)


def _error_response(request: RemotingCommand, error: CongreveError) -> RemotingCommand:
    code = error.code if isinstance(error, RefusedError) else ResponseCode.SYSTEM_ERROR
    logger.info("request %d refused with %d: %s", request.code, code, error)
    return request.reply(code, str(error))
