"""``congreve cluster roll`` over a group that elects its master, and over slaves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import servers
from harness.replication.elected_processes import GROUP, ElectedProcesses
from harness.replication.supervisor import Supervisor
from harness.wire import Wire

from congreve.base.errors import CongreveError
from congreve.client import Message, Producer
from congreve.client.transport import instance
from tests.console.conftest import congreve

GET_RUNTIME = 28


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


@pytest.mark.slow
async def test_a_roll_restarts_the_members_of_a_group_without_a_failed_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers go to the other broker meanwhile."""
    monkeypatch.setattr(instance, "REFRESH_S", 0.5)
    group = ElectedProcesses(tmp_path, 2, lease_s=3)
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
        await run(address, "topic", "create", "rolled", "-q", "2")
        sending = asyncio.create_task(send())
        try:
            with Supervisor(brokers, tmp_path, variable="ADDRESS") as supervisor:
                command = ("--restart", supervisor.command, "--route-poll", "4", "--apply")
                await run(address, "cluster", "roll", *command)
                stopped = supervisor.stopped()
        finally:
            ended.set()
            await sending
        assert sorted(stopped) == sorted(brokers), "each once"
        assert stopped[-2:] == [slave.address, other.address]
        assert failures == []
        assert sent == {GROUP, "other"}
        assert all(booted_ms(each) > begun_ms for each in brokers)
        rows = await run(address, "cluster", "status")
        assert sorted(row["address"] for row in rows) == sorted(brokers)
        assert {row["sends"] for row in rows if row["id"] == 0} == {"open"}
