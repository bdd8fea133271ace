"""Requests of peers, and the handlers that serve them (RocketMQ: processRequestCommand)."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING

from congreve.base.errors import CongreveError
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.peer_log import PeerLog

if TYPE_CHECKING:
    from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

REMARK_MAX = 2048
"""Characters of an exception's text that an answer carries."""

Answer = RemotingCommand | None
Handler = Callable[[RemotingCommand, "Connection"], Answer | Awaitable[Answer]]
"""Serves a request. None: it gets no answer, or one that is sent later by other means."""


class Dispatcher:
    """Finds a request's handler and sends its answer; connections share it.

    A handler's error becomes the answer, and is logged. (RocketMQ: NettyRemotingAbstract.)
    """

    def __init__(self, handlers: Mapping[int, Handler], peer_log: PeerLog) -> None:
        self._handlers = handlers
        self.peer_log = peer_log

    def serve(
        self, request: RemotingCommand, connection: "Connection"
    ) -> Coroutine[object, object, None] | None:
        """Serve one request; returns what is left to run when its handler is asynchronous."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            connection.send(request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return None
        try:
            answer = handler(request, connection)
            if answer is not None and not isinstance(answer, RemotingCommand):
                return self._serve_later(request, answer, connection)
            self._answer(request, answer, connection)
        except CongreveError as error:
            self._refuse(request, error, connection)
        except Exception as error:
            logger.exception("%r: request code %d failed", connection, request.code)
            self._answer_failure(request, error, connection)
        return None

    async def _serve_later(
        self, request: RemotingCommand, answer: Awaitable[Answer], connection: "Connection"
    ) -> None:
        try:
            found = await answer
            if found is not None and not request.is_oneway:
                # Hundreds of handlers may end at a time: their answers wait for the peer.
                await connection.send_when_read(found)
        except CongreveError as error:
            self._refuse(request, error, connection)
        except Exception as error:
            logger.exception("%r: request code %d failed", connection, request.code)
            self._answer_failure(request, error, connection)

    def _answer(self, request: RemotingCommand, answer: Answer, connection: "Connection") -> None:
        if answer is not None and not request.is_oneway:
            connection.send(answer)

    def _refuse(
        self, request: RemotingCommand, error: CongreveError, connection: "Connection"
    ) -> None:
        self.peer_log.refused(connection, request.code, error)
        self._answer_failure(request, error, connection)

    def _answer_failure(
        self, request: RemotingCommand, error: Exception, connection: "Connection"
    ) -> None:
        if not request.is_oneway:
            text = f"{type(error).__name__}: {error}"[:REMARK_MAX]
            remark = text.encode("utf-8", "replace").decode()
            connection.send(request.reply(ResponseCode.SYSTEM_ERROR, remark))
