"""What clients asked and what was answered, with the times of both: a history for porcupine."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

from harness.eventually import eventually

from congreve.base.errors import CongreveError
from congreve.client import Message, Producer, PullConsumer
from congreve.client.message import MessageQueue
from congreve.client.results import SendStatus

QUEUES = 2
SENDERS, READERS = 3, 2
TIMEOUT_S = 1.0
PAUSE_S = 0.01
WAIT_S = 120.0
NO_ANSWER = 0


class Recorder:
    """The clients of one topic. An operation has the fields that main.go names.

    An answer without messages is not recorded: a broker that does not know yet that it is no
    master any more may give one. With `commits` the offsets of a group are recorded, too.
    """

    def __init__(self, namesrv: str, broker_name: str, topic: str, *, commits: bool) -> None:
        self.operations: list[dict[str, object]] = []
        self.appended = 0
        """Appends that were acknowledged."""
        self._namesrv = namesrv
        self._queues = [
            MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
            for queue_id in range(QUEUES)
        ]
        self._commits = commits
        self._values = count()
        self._ends = dict.fromkeys(self._queues, 0)  # what readers know of

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Clients append, read and commit meanwhile; in the end all is read once more."""
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(
                Producer(self._namesrv, group="p", retries=0, send_timeout_s=TIMEOUT_S)
            )
            consumer = await stack.enter_async_context(
                PullConsumer(self._namesrv, group="c", timeout_s=TIMEOUT_S)
            )
            work = [self._append(producer, client) for client in range(SENDERS)]
            work += [self._read(consumer, SENDERS + client) for client in range(READERS)]
            if self._commits:
                work += [
                    self._commit(consumer, SENDERS + READERS + queue.queue_id, queue)
                    for queue in self._queues
                ]
            tasks = [asyncio.create_task(each) for each in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            for queue in self._queues:
                await self._read_all(consumer, queue)

    async def acknowledges(self, more: int = 20) -> None:
        """Return when `more` more appends are acknowledged."""
        wanted = self.appended + more
        await eventually(lambda: self.appended >= wanted, WAIT_S)

    def save(self, path: Path) -> None:
        """Write it, an operation a line."""
        path.write_text("".join(f"{json.dumps(each)}\n" for each in self.operations))

    async def _append(self, producer: Producer, client: int) -> None:
        while True:
            queue, value = random.choice(self._queues), next(self._values)
            operation = self._asks(client, "append", _name(queue), -1, [value])
            body = b"%d|" % value + bytes(value % 700)
            try:
                sent = await producer.send(Message(topic=queue.topic, body=body), queue=queue)
            except CongreveError:
                await asyncio.sleep(PAUSE_S)
                continue
            if sent.status is SendStatus.SEND_OK:
                operation.update(offset=sent.queue_offset, **_now())
                self._ends[queue] = max(self._ends[queue], sent.queue_offset)
                self.appended += 1

    async def _read(self, consumer: PullConsumer, client: int) -> None:
        """Read anywhere, mostly near the end."""
        while True:
            queue = random.choice(self._queues)
            end = self._ends[queue]
            await self._read_at(consumer, client, queue, max(0, end - random.choice((1, 9, end))))
            await asyncio.sleep(PAUSE_S)

    async def _read_at(
        self, consumer: PullConsumer, client: int, queue: MessageQueue, offset: int
    ) -> int:
        """The offset behind what was found, or `offset`."""
        began = time.monotonic_ns()
        try:
            found = await consumer.pull(queue, offset)
        except CongreveError:
            return offset
        if not found.messages:
            return offset
        offsets = [message.queue_offset for message in found.messages]
        assert offsets == list(range(offset, offset + len(offsets))), f"{queue}: {offsets}"
        values = [int(message.body.partition(b"|")[0]) for message in found.messages]
        operation = self._asks(client, "read", _name(queue), offset, values)
        operation.update(call=began, **_now())
        return offset + len(values)

    async def _read_all(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        at, deadline = 0, time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            try:
                if at == await consumer.max_offset(queue) and at > self._ends[queue]:
                    return
            except CongreveError:
                await asyncio.sleep(PAUSE_S)
            at = await self._read_at(consumer, SENDERS, queue, at)
        raise TimeoutError(f"{queue} is read up to {at}, acknowledged up to {self._ends[queue]}")

    async def _commit(self, consumer: PullConsumer, client: int, queue: MessageQueue) -> None:
        """Commit something new, and ask for it."""
        register = f"c@{_name(queue)}"
        for offset in count():
            operation = self._asks(client, "commit", register, offset, [])
            try:
                await consumer.commit(queue, offset)
                operation.update(_now())
                began = time.monotonic_ns()
                found = await consumer.committed(queue)
            except CongreveError:
                await asyncio.sleep(PAUSE_S)
                continue
            operation = self._asks(
                client, "committed", register, -1 if found is None else found, []
            )
            operation.update(call=began, **_now())
            await asyncio.sleep(PAUSE_S)

    def _asks(
        self, client: int, kind: str, queue: str, offset: int, values: list[int]
    ) -> dict[str, object]:
        operation: dict[str, object] = {
            **{"client": client, "kind": kind, "queue": queue, "offset": offset, "values": values},
            **{"call": time.monotonic_ns(), "return": NO_ANSWER},
        }
        self.operations.append(operation)
        return operation


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.queue_id}"


def _now() -> dict[str, int]:
    return {"return": time.monotonic_ns()}
