"""Brokers that only register, as frames of ours or of RocketMQ's, over a connection each."""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from harness.wire import Wire

from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.admin_headers import RegisterBrokerRequestHeader
from congreve.remoting.messages.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.register_body import write_registration
from congreve.remoting.transport.client import RemotingClient

TOPICS_OF_PART = 340
"""As many as a broker of ours sends in one registration, with names of this length."""
RETRY_S = 1.0
PERIOD_S = 30.0
"""Brokers of RocketMQ notice a name server that has started at their next registration."""
TIMEOUT_S = 60.0
QUERY_S = 0.005
_PLACE, _NAME = b"broker-00000", "broker-{:05}"


def topic(broker: int | None, number: int) -> str:
    """The name of a topic, of one broker or of all."""
    owner = "of-all-brokers" if broker is None else _NAME.format(broker)
    return f"{owner}-topic-{number:06}"


class Bodies:
    """Registrations of one broker, from which those of all others are made by its name."""

    def __init__(self, topics: int, *, own: bool, in_parts: bool) -> None:
        size = TOPICS_OF_PART if in_parts else topics
        self._parts = []
        for first in range(0, topics, size):
            numbers = range(first, min(first + size, topics))
            names = [topic(0 if own else None, number) for number in numbers]
            self._parts.append(_body({name: TopicConfig(name, 4, 4) for name in names}, first))
        self.unchanged = _body({}, (len(self._parts) - 1) * size)

    def of(self, broker: int) -> Iterator[bytes]:
        """The registrations of a broker, the last one with its version."""
        for part in self._parts:
            yield part.replace(_PLACE, _NAME.format(broker).encode())


def _body(table: dict[str, TopicConfig], version: int) -> bytes:
    wrapper = TopicConfigSerializeWrapper(table, DataVersion(counter=1, timestamp=version))
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    return write_registration(body, compressed=False)


class Brokers:
    """`count` brokers at one name server; `java`: they send all topics each time."""

    def __init__(self, count: int, bodies: Bodies, name_server: str, *, java: bool) -> None:
        self.count = count
        self._bodies = bodies
        self._name_server = name_server
        self._java = java
        self._clients = [RemotingClient(timeout_s=TIMEOUT_S) for _ in range(count)]

    async def register(self) -> None:
        """Register all brokers: ours at the same time, RocketMQ's within their period; each again
        until it has succeeded."""
        await asyncio.gather(*(self._until_registered(number) for number in range(self.count)))

    async def repeat(self) -> None:
        """The registrations of one period without changes."""
        if self._java:
            await self.register()
            return
        await asyncio.gather(
            *(self._ask(n, self._bodies.unchanged, unchanged=True) for n in range(self.count))
        )

    async def die(self, numbers: range) -> None:
        """Close the connections of these brokers."""
        for number in numbers:
            await self._clients[number].close()

    async def close(self) -> None:
        """Close all connections."""
        await self.die(range(self.count))

    async def _until_registered(self, number: int) -> None:
        if self._java:
            await asyncio.sleep(random.uniform(0, PERIOD_S))
        while True:
            try:
                for body in self._bodies.of(number):
                    await self._ask(number, body, unchanged=False)
                return
            except RemotingError:
                await asyncio.sleep(random.uniform(0, 2 * RETRY_S))

    async def _ask(self, number: int, body: bytes, *, unchanged: bool) -> None:
        name = _NAME.format(number)
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_addr=f"10.0.{number >> 8}.{number & 255}:10911",
            cluster_name="cluster",
            ha_server_addr=f"10.0.{number >> 8}.{number & 255}:10912",
            broker_id=0,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            unchanged=None if self._java else unchanged,
        )
        request = RemotingCommand(
            code=RequestCode.REGISTER_BROKER, ext_fields=header.fields(), body=body
        )
        answer = await self._clients[number].invoke(self._name_server, request)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(answer.remark or "")


class Answered(NamedTuple):
    """A query for a route: when it was due, and in milliseconds how long it took from then, and
    what it would have taken with a core for each thread: without the time for which this process
    and the threads of the name server were ready to run and did not."""

    at_s: float
    waited: float
    with_cores: float


def query(address: str, pid: int, topics: list[str], seconds: float) -> list[Answered]:
    """Ask for routes on a timetable of QUERY_S.

    A query that is late because the one before it took long counts from its place in the timetable.
    A lost connection is made again.
    """
    answers: list[Answered] = []
    begun = due = time.perf_counter()
    while due - begun < seconds:
        with suppress(OSError, EOFError), Wire(address) as wire:
            while due - begun < seconds:
                time.sleep(max(0.0, due - time.perf_counter()))
                asked, delayed = time.perf_counter(), _delayed(pid)
                wire.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": random.choice(topics)})
                answered = time.perf_counter()
                took = (answered - asked) * 1e3 - (_delayed(pid) - delayed)
                answers.append(Answered(due - begun, (answered - due) * 1e3, max(0.0, took)))
                due += QUERY_S
        time.sleep(QUERY_S)
        due = max(due, time.perf_counter())
    return answers


def _delayed(pid: int) -> float:
    """Milliseconds for which the threads of a process, and this one, have waited for a core
    (proc(5), schedstat)."""
    found = 0
    for path in (Path("/proc/self/schedstat"), *Path(f"/proc/{pid}/task").glob("*/schedstat")):
        with suppress(OSError):
            found += int(path.read_text().split()[1])
    return found / 1e6
