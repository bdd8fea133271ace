"""``congreve cluster roll`` over a group that elects its master, and over slaves."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from harness import servers
from harness.drivers import java_driver
from harness.eventually import eventually
from harness.replication.elected_processes import GROUP, ElectedProcesses
from harness.replication.supervisor import Supervisor
from harness.wire import Wire

from congreve.base.errors import CongreveError
from congreve.client import Message, Producer, PushConsumer, ReceivedMessage
from congreve.client.transport import instance
from tests.console.conftest import congreve

GET_RUNTIME = 28
LEASE_S = 10
JAVA_MS = 20_000
"""How long the Java client sends; the roll takes 25 s on a quick machine."""
JAVA_BATCH = 4


def booted_ms(address: str) -> int:
    with Wire(address) as wire:
        table = json.loads(wire.call(GET_RUNTIME, {}).body)["table"]
    return int(table["bootTimestamp"])


async def run(namesrv: str, *arguments: str) -> list[dict[str, Any]]:
    """The rows of a command, which runs beside the event loop."""
    ended = await asyncio.to_thread(
        lambda: congreve(*arguments, "--output", "json", namesrv=namesrv)
    )
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


@asynccontextmanager
async def killed(*brokers: servers.BrokerServer) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for broker in brokers:
            broker.kill()


class Java:
    """RocketMQ's client sends numbered messages, which a consumer of ours reads in order."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self._namesrv = namesrv
        self._driver = java_driver(folder, "JSON")
        self._read: defaultdict[tuple[str, int], list[int]] = defaultdict(list)

    @asynccontextmanager
    async def sending_and_read(self) -> AsyncIterator[None]:
        """No batch fails, none is lost, and the order of each queue stays."""
        consumer = PushConsumer(
            self._namesrv,
            group="c",
            topics={"counted": "*"},
            listener=self._listen,
            orderly=True,
        )
        sending = asyncio.create_task(asyncio.to_thread(self._send))
        try:
            async with consumer:
                yield
                sent = await sending
                acknowledged = {
                    number
                    for batch in sent["results"]
                    for number in range(batch["first"], batch["first"] + JAVA_BATCH)
                }
                await eventually(lambda: acknowledged <= set(chain(*self._read.values())), 60)
        finally:
            self._driver.close()
        assert sent["failed"] == 0
        for numbers in self._read.values():
            firsts = list(dict.fromkeys(numbers))  # what was not committed comes twice
            assert firsts == sorted(firsts)

    def _send(self) -> dict[str, Any]:
        request = {"topic": "counted", "size": JAVA_BATCH, "ms": JAVA_MS, "pollMs": 1000}
        found: dict[str, Any] = self._driver.call("batchesFor", namesrv=self._namesrv, **request)
        return found

    def _listen(self, message: ReceivedMessage) -> None:
        number = int(message.body.partition(b"|")[0])
        self._read[message.queue.broker_name, message.queue_id].append(number)


@pytest.mark.slow
@pytest.mark.interop
async def test_a_roll_restarts_the_members_of_a_group_without_a_failed_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's master hands over; producers leave the other broker. No producer retries."""
    monkeypatch.setattr(instance, "REFRESH_S", 0.5)
    group = ElectedProcesses(tmp_path, 2, lease_s=LEASE_S)
    address = group.namesrv.address
    other = servers.broker("congreve", tmp_path / "other", address, broker_name="other")
    slave = servers.broker(
        *("congreve", tmp_path / "slave", address),
        broker_name="other",
        settings={"brokerId": "1", "brokerRole": "SLAVE"},
    )
    failures: list[str] = []
    sent: set[str] = set()

    ended = asyncio.Event()
    java = Java(tmp_path / "java", address)

    async def send() -> None:
        async with Producer(address, group="p", retries=0) as producer:
            while not ended.is_set():
                try:
                    result = await producer.send(Message(topic="rolled", body=b"m"))
                    sent.add(result.queue.broker_name)
                except CongreveError as error:
                    failures.append(str(error))
                await asyncio.sleep(0.01)

    brokers = {each.address: each for each in [*group.members.values(), slave, other]}
    async with group.running(), killed(other, slave):
        other.start()
        slave.start()
        for number in group.members:
            group.start(number)
        await group.all_in_sync()
        begun_ms = int(time.time() * 1000)
        for topic in ("rolled", "counted"):
            await run(address, "topic", "create", topic, "-q", "2")
        master = group.members[await group.master()].address
        sending = asyncio.create_task(send())
        async with java.sending_and_read():
            try:
                with Supervisor(brokers, tmp_path, variable="ADDRESS") as supervisor:
                    command = (
                        "--restart",
                        supervisor.command,
                        "--transfer",
                        group.transfer_command,
                    )
                    await run(address, "cluster", "roll", *command, "--route-poll", "4", "--apply")
                    stopped = supervisor.stopped()
            finally:
                ended.set()
                await sending
        assert stopped[1] == master, "the slave of the group first"
        assert sorted(stopped) == sorted(brokers), "each once"
        assert stopped[-2:] == [slave.address, other.address]
        assert failures == []
        assert sent == {GROUP, "other"}
        assert all(booted_ms(each) > begun_ms for each in brokers)
        rows = await run(address, "cluster", "status")
        assert sorted(row["address"] for row in rows) == sorted(brokers)
        assert {row["sends"] for row in rows if row["id"] == 0} == {"open"}
