"""A producer of numbered messages: what was acknowledged must be stored once, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from congreve.client import Message, Producer
from congreve.client.message import SendStatus
from congreve.errors import CongreveError

from .eventually import eventually

SMALL = 900
"""Bytes that a message has at most, unless a test sets `largest`."""
WAIT_S = 120


class NumberedMessages:
    """Sends messages with the numbers 0, 1, 2, … and keeps those that a broker acknowledged."""

    def __init__(self, namesrv: str, topic: str, *, send_timeout_s: float) -> None:
        self.namesrv = namesrv
        self.acknowledged: list[int] = []
        self.largest = SMALL
        """Bytes that the next messages have at most."""
        self._topic = topic
        self._send_timeout_s = send_timeout_s
        self._sent = 0

    async def send(self) -> None:
        """Send one message after the other, each once, for ever."""
        async with Producer(
            self.namesrv,
            group="p",
            retries=0,
            send_timeout_s=self._send_timeout_s,
            compress_from=1 << 20,
        ) as producer:
            while True:
                number, self._sent = self._sent, self._sent + 1
                body = b"%d," % number + bytes(number * 37 % self.largest)
                try:
                    result = await producer.send(Message(topic=self._topic, body=body))
                except CongreveError:
                    await asyncio.sleep(0.02)
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.append(number)

    async def acknowledges(self, more: int = 20) -> None:
        """Return when that many more messages are acknowledged."""
        wanted = len(self.acknowledged) + more
        await eventually(lambda: len(self.acknowledged) >= wanted, WAIT_S)

    def check(self, queues: Mapping[int, list[int]]) -> None:
        """Compare the numbers in each queue of a store with what was acknowledged."""
        stored = [number for queue in queues.values() for number in queue]
        assert len(set(stored)) == len(stored), "a message is stored twice"
        lost = set(self.acknowledged) - set(stored)
        assert not lost, f"{len(lost)} acknowledged messages are lost: {sorted(lost)[:9]}"
        assert all(queue == sorted(queue) for queue in queues.values()), "the order has changed"


def number_of(body: bytes) -> int:
    """The number of a message."""
    return int(body.partition(b",")[0])
