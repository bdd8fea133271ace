"""Producers of numbered messages, sent one after another, each once, through all failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from congreve.base.errors import CongreveError
from congreve.client import Message, Producer
from congreve.client.message import MessageQueue
from congreve.client.results import SendStatus

from .drivers import Driver, Json
from .eventually import eventually

SMALL = 900
"""Bytes that a message has at most, unless a test sets `largest`."""
WAIT_S = 120
LOOK_S = 0.05


class NumberedMessages:
    """Sends messages with the numbers 0, 1, 2, … and keeps those that a broker acknowledged."""

    def __init__(self, namesrv: str, topic: str, *, send_timeout_s: float) -> None:
        self.namesrv = namesrv
        self.acknowledged: list[int] = []
        self.seen: dict[tuple[int, int], set[int]] = {}
        """Numbers of messages, by queue and queue offset."""
        self.largest = SMALL
        """Bytes that the next messages have at most."""
        self.topic = topic
        self._send_timeout_s = send_timeout_s
        self._sent = 0

    async def send(self) -> None:
        """Send one message after another, each once, until it is cancelled."""
        async with Producer(
            self.namesrv,
            group="p",
            retries=0,
            send_timeout_s=self._send_timeout_s,
            compress_from=1 << 20,
        ) as producer:
            while True:
                number, self._sent = self._sent, self._sent + 1
                body = b"%d|" % number + bytes(number * 37 % self.largest)
                try:
                    result = await producer.send(Message(topic=self.topic, body=body))
                except CongreveError:
                    await asyncio.sleep(0.02)
                    continue
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.append(number)
                    self.see(result.queue.queue_id, result.queue_offset, number)

    def see(self, queue_id: int, offset: int, number: int) -> None:
        """Keep that this offset of a queue was given to a message, or shown with it."""
        self.seen.setdefault((queue_id, offset), set()).add(number)

    async def send_by_java(self, java: Driver, *, poll_ms: int = 1_000) -> None:
        """The same with RocketMQ's producer, which asks for its route each `poll_ms`."""
        name = f"numbered-{self.topic}"
        await asyncio.to_thread(
            *(java.call, "attemptsStart"),
            **{"id": name, "namesrv": self.namesrv, "topic": self.topic, "largest": self.largest},
            **{
                "retries": 0,
                "timeoutMs": int(self._send_timeout_s * 1000),
                "pollMs": poll_ms,
                "pauseMs": 2,
            },
        )
        try:
            while True:
                taken = await asyncio.to_thread(java.call, "attemptsTake", id=name)
                self.acknowledged += [one.number for one in reported(taken) if one.broker]
                await asyncio.sleep(LOOK_S)
        finally:
            await asyncio.to_thread(java.call, "attemptsStop", id=name)

    async def acknowledges(self, more: int = 20) -> None:
        """Return when `more` more messages are acknowledged."""
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
    return int(body.partition(b"|")[0])


class Attempt(NamedTuple):
    """One send: its times in ms since the epoch, and the broker that acknowledged it or nothing."""

    began_ms: float
    ended_ms: float
    number: int
    broker: str


def reported(answer: Json) -> list[Attempt]:
    """What a driver's attemptsTake or attemptsStop answered."""
    return [Attempt(*each) for each in answer["attempts"]]


async def attempt_for_ever(
    producer: Producer,
    topic: str,
    into: list[Attempt],
    *,
    pause_s: float,
    queue: MessageQueue | None = None,
) -> None:
    """Send with the Python client; adds each attempt to `into` when it has ended."""
    number = 0
    while True:
        began = time.time()
        broker = ""
        try:
            result = await producer.send(Message(topic=topic, body=bytes(100)), queue=queue)
        except CongreveError:
            pass
        else:
            if result.status is SendStatus.SEND_OK:
                broker = result.queue.broker_name
        into.append(Attempt(began * 1000, time.time() * 1000, number, broker))
        number += 1
        await asyncio.sleep(pause_s)
