"""The quotas of pulls that the event loop answers; LanePulls has those of all others."""

import time
from collections.abc import Callable

from congreve.broker.quota_limits import Names, Use, charged_names
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY
from congreve.remoting.transport.connection import Connection


class PullQuota:
    """Charges pulls; `now_ns` is the monotonic clock.

    (RocketMQ: none; 5.x has ColdDataCgCtrService.)
    """

    def __init__(self, table: QuotaTable, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._table = table
        self._now_ns = now_ns

    def is_used_up(self, request: RemotingCommand, connection: Connection) -> bool:
        """Whether the quota of a pull has no room."""
        if not self._table:
            return False
        names = self._names(request, connection)
        return self._table.take_for(names, Use.PULLS, 0, 0, self._now_ns()) > 0

    def charge(
        self, request: RemotingCommand, connection: Connection, messages: int, size: int
    ) -> None:
        """Charge an answer of so many messages and bytes."""
        if self._table:
            names = self._names(request, connection)
            self._table.charge_for(names, Use.PULLS, messages, size, self._now_ns())

    def read_delay_s(self, frame: bytes, connection: Connection) -> float:
        """Seconds until this pull may read from disk; charges the read."""
        if not self._table:
            return 0.0
        names = self._names(RemotingCommand.decode(frame), connection)
        return self._table.charge_for(names, Use.COLD_READS, 1, 0, self._now_ns()) / 1e9

    def _names(self, request: RemotingCommand, connection: Connection) -> Names:
        fields = request.ext_fields
        account = fields.get(ACCESS_KEY) if self._table.has_accounts else None
        return charged_names(
            fields.get("topic"), fields.get("consumerGroup"), account, connection.peer_bytes[:-4]
        )
