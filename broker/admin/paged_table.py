"""Answers with a table as a whole, or with a page of it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from congreve.broker.metadata.table_text import TableBody
from congreve.remoting.errors import BodyError
from congreve.remoting.loop.pieces import EncodedUntilChanged, Pieces
from congreve.remoting.messages.bodies import DataVersion
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.table_pages import read_page_request, total_fields


class PagedTable:
    """One table; `changes` returns another value when it has changed, `version` its data version.

    RocketMQ: AdminBrokerProcessor.getAllTopicConfig, getAllSubscriptionGroup.
    """

    def __init__(
        self,
        pieces: Pieces,
        body: TableBody[Any, Any],
        changes: Callable[[], object],
        version: Callable[[], DataVersion | None],
    ) -> None:
        self._pieces = pieces
        self._body = body
        self._version = version
        self._whole = EncodedUntilChanged(pieces, changes, lambda: body)

    async def answer(self, request: RemotingCommand) -> RemotingCommand:
        """The answer: a page if the request is for one. Raises BodyError for a table that does not
        fit into a frame."""
        page = read_page_request(request)
        if page is None:
            return request.reply(ResponseCode.SUCCESS, body=await self._whole.get())
        if len(self._body) <= page.most:
            with suppress(BodyError):
                whole = await self._whole.get()
                fields = total_fields(request.code, len(self._body))
                return request.reply(ResponseCode.SUCCESS, ext_fields=fields, body=whole)
        version = self._version()
        first = page.first if version is None or page.version == version else 0
        body, total = await self._pieces.run(self._body.page_steps(first, page.most))
        return request.reply(
            ResponseCode.SUCCESS, ext_fields=total_fields(request.code, total), body=body
        )
