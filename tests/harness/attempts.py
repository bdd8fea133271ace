"""Sends of one message after the other through all failures, and what became of each."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from congreve.client import Message, Producer
from congreve.client.message import MessageQueue, SendStatus
from congreve.errors import CongreveError

from .drivers import Json


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
