"""The quotas of pulls that the event loop serves."""

import asyncio
import time
from collections.abc import Callable
from itertools import count

from congreve.broker.pull.suspended_pull import SuspendedPull
from congreve.broker.quota_limits import Names, Use, charged_names
from congreve.broker.quotas.held_place import take_place
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.broker.quotas.send_quota import BUSY_REMARK
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY
from congreve.remoting.transport.connection import Connection

POSTPONED_MAX = 10_000
"""Pulls that wait for their quota; the broker refuses further ones."""
POSTPONED_BYTES_MAX = 16 << 20
"""Bytes of their requests, in the same way."""
FLAG_COMMIT_OFFSET, FLAG_SUSPEND = 1, 2


def pull_for_now(
    frame: bytes, sign: Callable[[RemotingCommand], None] | None = None, *, commits: bool = False
) -> bytes:
    """The frame of a pull that has waited, and does not wait again.

    It commits its offset if it `commits`. `sign` replaces its signature, which is of other fields.
    """
    request = RemotingCommand.decode(frame)
    dropped = FLAG_SUSPEND if commits else FLAG_SUSPEND | FLAG_COMMIT_OFFSET
    flags = int(request.ext_fields["sysFlag"]) & ~dropped
    request.ext_fields["sysFlag"] = str(flags)
    if sign is not None:
        sign(request)
    return request.encode()


class PullQuota:
    """Postpones pulls whose quota is used up, and charges the answers of the others.

    A pull that may not wait is refused with FLOW_CONTROL. `serve(connection, frame)` serves a
    postponed pull; `now_ns` is the monotonic clock. (RocketMQ: none; 5.x has ColdDataCgCtrService.)
    """

    def __init__(
        self,
        table: QuotaTable,
        serve: Callable[[Connection, bytes], None],
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.table = table
        self._serve = serve
        self._now_ns = now_ns
        self._numbers = count()
        self._bytes = 0
        self._postponed: dict[int, tuple[asyncio.TimerHandle, Connection, bytes]] = {}

    def __len__(self) -> int:
        return len(self._postponed)

    def limits(self, request: RemotingCommand, connection: Connection) -> bool:
        """Whether the quota of a pull is used up; then it is postponed or refused."""
        if not self.table:
            return False
        names = self._names(request, connection)
        wait_ns = self.table.take_for(names, Use.PULLS, 0, 0, self._now_ns())
        if wait_ns:
            self.limit(connection, request.encode(), wait_ns)
        return wait_ns > 0

    def limit(self, connection: Connection, frame: bytes, wait_ns: int) -> None:
        """Postpone a pull for this time, or refuse it."""
        request = RemotingCommand.decode(frame)
        flags, timeout_ms = (_number(request, key) for key in ("sysFlag", "suspendTimeoutMillis"))
        size = self._bytes + len(frame)
        full = len(self) >= POSTPONED_MAX or size > POSTPONED_BYTES_MAX
        if not flags & FLAG_SUSPEND or timeout_ms <= 0 or full:
            if not request.is_oneway:
                connection.send(request.reply(ResponseCode.FLOW_CONTROL, BUSY_REMARK))
            return
        delay_s = min(wait_ns / 1e9, timeout_ms / 1000)
        number = next(self._numbers)
        timer = asyncio.get_running_loop().call_later(delay_s, self._end, number)
        self._postponed[number] = timer, connection, frame
        self._bytes = size

    def holds(self, held: SuspendedPull, *, counts: bool) -> bool:
        """Take a place for a pull that waits for messages; False when its quota has none.

        With `counts` the pull then counts as limited.
        """
        if self.table:
            names = self._names(RemotingCommand.decode(held.frame), held.connection)
            held.place = take_place(self.table, names, counts=counts)
            return held.place is not None
        return True

    def charge(
        self, request: RemotingCommand, connection: Connection, messages: int, size: int
    ) -> None:
        """Charge an answer of so many messages and bytes."""
        if self.table:
            names = self._names(request, connection)
            self.table.charge_for(names, Use.PULLS, messages, size, self._now_ns())

    def charge_held(self, held: SuspendedPull, messages: int, size: int) -> None:
        """Charge the answer to a pull that has waited."""
        if self.table:
            self.charge(RemotingCommand.decode(held.frame), held.connection, messages, size)

    def read_delay_s(self, held: SuspendedPull) -> float:
        """Seconds until this pull may read from disk; charges the read."""
        if not self.table:
            return 0.0
        names = self._names(RemotingCommand.decode(held.frame), held.connection)
        return self.table.charge_for(names, Use.COLD_READS, 1, 0, self._now_ns()) / 1e9

    def stop(self) -> None:
        """Serve all postponed pulls now: their connections are closed next."""
        for number, (timer, _, _) in list(self._postponed.items()):
            timer.cancel()
            self._end(number)

    def _end(self, number: int) -> None:
        _, connection, frame = self._postponed.pop(number)
        self._bytes -= len(frame)
        if not connection.closed:
            self._serve(connection, frame)

    def _names(self, request: RemotingCommand, connection: Connection) -> Names:
        fields = request.ext_fields
        account = fields.get(ACCESS_KEY) if self.table.has_accounts else None
        return charged_names(
            fields.get("topic"), fields.get("consumerGroup"), account, connection.peer_bytes[:-4]
        )


def _number(request: RemotingCommand, key: str) -> int:
    text = request.ext_fields.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
