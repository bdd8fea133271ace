"""The quotas of heartbeats, and of requests that store messages and that Python handlers serve."""

import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial

from congreve.base.numbers import java_integer
from congreve.broker.quota_limits import Names, Use, charged_names
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.broker.quotas.send_quota import BUSY_REMARK, REST_S
from congreve.records.batches.batch_body import member_properties
from congreve.records.message.topics import retry_topic
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Answer, Handler

_LONG_NAMES = ("topic", "producerGroup", "batch")
_SHORT_NAMES = ("b", "a", "m")


class Quota(Enum):
    """What a request is charged for."""

    SEND = "a send"
    SEND_V2 = "a send with short names"
    SENT_BACK = "a message sent back"
    END = "the end of a transaction"
    HEARTBEAT = "a heartbeat"


Limited = Callable[[RemotingCommand, Connection], bool]
"""Whether the quota of a request is used up, which is charged otherwise."""


class QuotaGate:
    """Refuses sends, messages sent back and heartbeats with SYSTEM_BUSY beyond their quotas.

    Ends of transactions are charged, and never refused: most get no answer, so that their client
    would not send them again; the broker does not read the connection for a moment. `size_at` is
    the size of the record at a physical offset, 0 without one. (RocketMQ: none.)
    """

    def __init__(
        self,
        table: QuotaTable,
        size_at: Callable[[int], int],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._table = table
        self._size_at = size_at
        self._now_ns = now_ns

    def guard(
        self, handlers: Mapping[int, Handler], quotas: Mapping[int, Quota]
    ) -> dict[int, Handler]:
        """The same handlers; those with a quota are behind the gate."""
        limits: dict[Quota, Limited] = {
            Quota.SEND: partial(self._limits_send, _LONG_NAMES),
            Quota.SEND_V2: partial(self._limits_send, _SHORT_NAMES),
            Quota.SENT_BACK: self._limits_sent_back,
            Quota.END: self._charge_end,
            Quota.HEARTBEAT: self._limits_heartbeat,
        }
        return {
            code: self._guarded(handler, limits[quotas[code]]) if code in quotas else handler
            for code, handler in handlers.items()
        }

    def _guarded(self, handler: Handler, limits: Limited) -> Handler:
        def guarded(request: RemotingCommand, connection: Connection) -> Answer | Awaitable[Answer]:
            if self._table and limits(request, connection):
                return request.reply(ResponseCode.SYSTEM_BUSY, BUSY_REMARK)
            return handler(request, connection)

        return guarded

    def _limits_send(
        self, names_of: tuple[str, ...], request: RemotingCommand, connection: Connection
    ) -> bool:
        topic, group, batch = map(request.ext_fields.get, names_of)
        is_batch = batch is not None and batch.lower() == "true"
        messages = max(len(member_properties(request.body)), 1) if is_batch else 1
        names = self._names(request, connection, topic, group)
        return self._takes_too_much(names, messages, len(request.body))

    def _limits_sent_back(self, request: RemotingCommand, connection: Connection) -> bool:
        group, text = (request.ext_fields.get(name, "") for name in ("group", "offset"))
        offset = java_integer(text, bits=64)  # as the header is read
        names = self._names(request, connection, retry_topic(group), group)
        return self._takes_too_much(names, 1, 0 if offset is None else self._size_at(offset))

    def _charge_end(self, request: RemotingCommand, connection: Connection) -> bool:
        group = request.ext_fields.get("producerGroup")
        names = self._names(request, connection, None, group)
        if self._table.charge_for(names, Use.SENDS, 1, 0, self._now_ns()):
            connection.rest_for(REST_S)
        return False

    def _limits_heartbeat(self, request: RemotingCommand, connection: Connection) -> bool:
        names = self._names(request, connection, None, None)
        return bool(self._table.take_for(names, Use.HEARTBEATS, 1, 0, self._now_ns()))

    def _takes_too_much(self, names: Names, messages: int, size: int) -> bool:
        return bool(self._table.take_for(names, Use.SENDS, messages, size, self._now_ns()))

    def _names(
        self,
        request: RemotingCommand,
        connection: Connection,
        topic: str | None,
        group: str | None,
    ) -> Names:
        account = request.ext_fields.get(ACCESS_KEY) if self._table.has_accounts else None
        return charged_names(topic, group, account, connection.peer_bytes[:-4])
