"""The quotas of sends that Python handlers serve."""

import time
from collections.abc import Awaitable, Callable, Mapping

from congreve.broker.quotas.limits import Use, charged_names
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.broker.quotas.send_quota import BUSY_REMARK
from congreve.broker.send.batch_body import member_properties
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler

_LONG_NAMES = ("topic", "producerGroup", "batch")
_SHORT_NAMES = ("b", "a", "m")
_FIELDS = {
    RequestCode.SEND_MESSAGE: _LONG_NAMES,
    RequestCode.SEND_REPLY_MESSAGE: _LONG_NAMES,
    RequestCode.SEND_MESSAGE_V2: _SHORT_NAMES,
    RequestCode.SEND_BATCH_MESSAGE: _SHORT_NAMES,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SHORT_NAMES,
}


class QuotaGate:
    """Refuses sends with SYSTEM_BUSY while a quota of theirs is used up. (RocketMQ: none.)"""

    def __init__(self, table: QuotaTable, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._table = table
        self._now_ns = now_ns

    def guard(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers; those of sends are behind the gate."""
        return {
            code: self._guarded(handler, _FIELDS[RequestCode(code)]) if code in _FIELDS else handler
            for code, handler in handlers.items()
        }

    def _guarded(self, handler: Handler, names: tuple[str, str, str]) -> Handler:
        def guarded(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            if self._table and self._refuses(request, connection, names):
                return request.reply(ResponseCode.SYSTEM_BUSY, BUSY_REMARK)
            return handler(request, connection)

        return guarded

    def _refuses(
        self, request: RemotingCommand, connection: Connection, names: tuple[str, str, str]
    ) -> bool:
        topic, group, batch = (request.ext_fields.get(name) for name in names)
        account = request.ext_fields.get(ACCESS_KEY) if self._table.has_accounts else None
        is_batch = batch is not None and batch.lower() == "true"
        messages = max(len(member_properties(request.body)), 1) if is_batch else 1
        charged = charged_names(topic, group, account, connection.peer_bytes[:-4])
        size = len(request.body)
        return bool(self._table.take_for(charged, Use.SENDS, messages, size, self._now_ns()))
