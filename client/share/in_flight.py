"""The messages of a share consumer that it has received and not settled (RocketMQ 5:
PopProcessQueue)."""

import asyncio
import time
from collections.abc import Collection, Iterable

from congreve.base.errors import CongreveError
from congreve.client.errors import BrokerError
from congreve.client.logs import Log
from congreve.client.receipt import Receipt
from congreve.client.share.settling import TOGETHER, Settling

log = Log(__name__)

PARTS = 4
"""A kept message is extended when a quarter to half of its time is left."""


class InFlight:
    """At most `limit` receipts; a receipt that is over does not count. Those that are kept are
    extended until `keep_s` seconds after they came.

    (RocketMQ 5: PopProcessQueue, waitAckCounter.)
    """

    def __init__(
        self, settling: Settling, *, limit: int, invisible_s: float, keep_s: float
    ) -> None:
        self._settling = settling
        self._limit = limit
        self._invisible_s = invisible_s
        self._keep_s = keep_s
        self._receipts: set[Receipt] = set()
        self._kept: dict[Receipt, float] = {}
        self._reserved = 0
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._receipts)

    @property
    def receipts(self) -> Collection[Receipt]:
        """Those that count; some may be over."""
        return self._receipts

    async def reserve(self, count: int, deadline: float) -> int:
        """Wait until `deadline` of the monotonic clock for room; returns for how many messages up
        to `count`, 0 when there was none. add() takes it."""
        while not (room := min(count, self._limit - len(self._receipts) - self._reserved)) > 0:
            before = len(self._receipts)
            self._receipts = {receipt for receipt in self._receipts if not receipt.is_over}
            if len(self._receipts) < before:
                continue
            now = time.monotonic()
            if now >= deadline:
                return 0
            first = min((receipt.due for receipt in self._receipts), default=deadline)
            self._freed.clear()
            try:
                async with asyncio.timeout(max(0.0, min(first, deadline) - now)):
                    await self._freed.wait()
            except TimeoutError:
                continue
        self._reserved += room
        return room

    def add(self, reserved: int, receipts: Iterable[Receipt]) -> None:
        """Count these receipts, and no longer what was reserved for them."""
        self._reserved -= reserved
        self._receipts.update(receipts)
        self._freed.set()

    def keep(self, receipts: Iterable[Receipt]) -> None:
        """Extend these messages from now on."""
        until = time.monotonic() + self._keep_s
        for receipt in receipts:
            self._kept.setdefault(receipt, until)

    def release(self, receipts: Iterable[Receipt]) -> None:
        """Extend these messages no longer."""
        for receipt in receipts:
            self._kept.pop(receipt, None)

    def discard(self, receipts: Iterable[Receipt]) -> None:
        """These messages are settled."""
        for receipt in receipts:
            self._receipts.discard(receipt)
            self._kept.pop(receipt, None)
        self._freed.set()

    async def keep_all(self) -> None:
        """Extend the kept messages before they are due, until cancelled."""
        while True:
            await asyncio.sleep(self._invisible_s / PARTS)
            now = time.monotonic()
            soon = now + self._invisible_s / 2
            late = [receipt for receipt, until in self._kept.items() if until <= now]
            if late:
                log.warning("messages are worked on for too long", count=len(late))
                self.release(late)
            due = [receipt for receipt in self._kept if receipt.due <= soon]
            for i in range(0, len(due), TOGETHER):
                await asyncio.gather(*map(self._extend, due[i : i + TOGETHER]))

    async def _extend(self, receipt: Receipt) -> None:
        if receipt not in self._kept:
            return
        try:
            await self._settling.extend(receipt, self._invisible_s)
        except BrokerError as error:
            # Not this consumer's any more: another member gets the message.
            log.warning("message not extended", handle=receipt.handle.encode(), error=error)
            self.release([receipt])
        except CongreveError as error:
            log.warning("message not extended", handle=receipt.handle.encode(), error=error)
