"""Numbered messages of one producer on a topic of its own, and what an ordered consumer saw."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from harness.drivers import Driver
from harness.numbered_messages import Attempt, reported

from congreve.base.errors import CongreveError
from congreve.client import Message, Producer
from congreve.client.results import SendStatus

TAKE_S = 0.5
REASONS_MAX = 10


class Stream:
    """One producer that sends one message after the other, each once, without retries."""

    def __init__(self, topic: str, namesrv: str, *, pause_s: float, timeout_s: float) -> None:
        self.topic = topic
        self.acknowledged: set[int] = set()
        self.failed = 0
        self.reasons: list[str] = []
        self._namesrv = namesrv
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._longest_s = 0.0
        self._ended = asyncio.Event()
        self._brokers: set[str] = set()
        self._read: defaultdict[tuple[str, int], list[int]] = defaultdict(list)

    def end(self) -> None:
        """Send no more."""
        self._ended.set()

    def read(self, broker: str, queue_id: int, number: int) -> None:
        """Note what a consumer got."""
        self._read[broker, queue_id].append(number)

    def lost(self) -> set[int]:
        """The acknowledged messages that the consumer has not got."""
        return self.acknowledged.difference(*self._read.values())

    def figures(self) -> dict[str, Any]:
        """What became of the messages."""
        firsts = [list(dict.fromkeys(numbers)) for numbers in self._read.values()]
        return {
            "topic": self.topic,
            "acknowledged": len(self.acknowledged),
            "failed": self.failed,
            "reasons": self.reasons,
            "lost": len(self.lost()),
            "queuesOutOfOrder": sum(numbers != sorted(numbers) for numbers in firsts),
            "duplicates": sum(map(len, self._read.values())) - sum(map(len, firsts)),
            "brokers": len(self._brokers),
            "longestSendSeconds": round(self._longest_s, 2),
        }

    async def send_by_python(self) -> None:
        """Until end(), with our producer."""
        number = 0
        async with Producer(
            self._namesrv, group=self.topic, retries=0, send_timeout_s=self._timeout_s
        ) as producer:
            while not self._ended.is_set():
                began, broker = time.time(), ""
                try:
                    body = b"%d|" % number
                    result = await producer.send(Message(topic=self.topic, body=body))
                except CongreveError as error:
                    self._because(f"{type(error).__name__}: {error}")
                else:
                    if result.status is SendStatus.SEND_OK:
                        broker = result.queue.broker_name
                    else:
                        self._because(result.status.name)
                self._note([Attempt(began * 1e3, time.time() * 1e3, number, broker)])
                number += 1
                await asyncio.sleep(self._pause_s)

    async def send_by_java(self, java: Driver, poll_s: float) -> None:
        """Until end(), with RocketMQ's producer, which asks for its routes each `poll_s`."""
        await asyncio.to_thread(
            lambda: java.call(
                "attemptsStart",
                id=self.topic,
                namesrv=self._namesrv,
                topic=self.topic,
                retries=0,
                timeoutMs=int(self._timeout_s * 1e3),
                pollMs=int(poll_s * 1e3),
                pauseMs=int(self._pause_s * 1e3),
            )
        )
        taking = "attemptsTake"
        while taking:
            taken = await asyncio.to_thread(java.call, taking, id=self.topic)
            if taken["why"]:
                self._because(taken["why"])
            self._note(reported(taken))
            if self._ended.is_set():
                taking = "" if taking == "attemptsStop" else "attemptsStop"
            else:
                await asyncio.sleep(TAKE_S)

    def _because(self, reason: str) -> None:
        if reason not in self.reasons and len(self.reasons) < REASONS_MAX:
            self.reasons.append(reason)

    def _note(self, attempts: Iterable[Attempt]) -> None:
        for each in attempts:
            self._longest_s = max(self._longest_s, (each.ended_ms - each.began_ms) / 1e3)
            if each.broker:
                self.acknowledged.add(each.number)
                self._brokers.add(each.broker)
            else:
                self.failed += 1
