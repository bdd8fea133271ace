"""Half of a pair and half of a group run an earlier version, in both orders of an upgrade.

`CONGREVE_EARLIER` names the Python of an environment with that version; without it the tests are
skipped. `test_earlier_stores.py` opens what such a version has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness import servers
from harness.numbered_messages import NumberedMessages, number_of
from harness.replication.elected_processes import ElectedProcesses
from harness.replication.replicas import SETTINGS, await_equal_logs
from harness.servers import BrokerServer
from harness.stores.small_store import small_store

from congreve.client import ConsumeFrom, PushConsumer
from congreve.engine.store import MessageStore
from congreve.lake.table import open_catalog
from congreve.records.message.message import Record
from congreve.store_reader import open_store

from .test_earlier_stores import extract

EARLIER = os.environ.get("CONGREVE_EARLIER", "")
TOPIC = "Upgraded"
QUEUES = 4
PLACE = ("queueId", "queueOffset")

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(
        not EARLIER, reason="CONGREVE_EARLIER names no Python of an earlier version"
    ),
]


def runs_earlier(server: BrokerServer) -> BrokerServer:
    """Let the server's next start be of the earlier version."""
    server.command = [EARLIER, *server.command[1:]]
    return server


def runs_present(server: BrokerServer, present: str) -> None:
    server.command = [present, *server.command[1:]]


def queues_of(store: Path) -> dict[int, list[int]]:
    """The numbers of the messages in each queue, in their order."""
    with open_store(store) as reader:
        return {
            queue.queue_id: [
                number_of(body)
                for (body,) in reader.numpy(TOPIC, ["body"], queues=[queue.queue_id])
            ]
            for queue in reader.queues(TOPIC)
        }


@contextlib.asynccontextmanager
async def sending(messages: NumberedMessages) -> AsyncIterator[None]:
    task = asyncio.create_task(messages.send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def consume(namesrv: str, seen: set[int], wanted: set[int]) -> None:
    """Let the consumer group read until it has seen these messages."""
    async with PushConsumer(
        namesrv, group="g", topics={TOPIC: "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        messages = aiter(consumer)
        while not seen >= wanted:
            seen.add(number_of((await asyncio.wait_for(anext(messages), 60)).body))


@pytest.mark.parametrize("first", ["slave", "master"])
async def test_a_pair_goes_on_while_half_of_it_is_upgraded(first: str, tmp_path: Path) -> None:
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    await asyncio.to_thread(namesrv.start)
    settings = {**SETTINGS, "defaultTopicQueueNums": str(QUEUES), "flushDiskType": "SYNC_FLUSH"}
    settings |= {"maxHashSlotNum": "1000", "maxIndexNum": "4000"}
    roles = {
        "master": {"brokerRole": "SYNC_MASTER", "slaveTimeout": "30000"},
        "slave": {"brokerRole": "SLAVE", "brokerId": "1"},
    }
    pair = {
        role: servers.broker(
            *("congreve", tmp_path / role, namesrv.address),
            broker_name="pair",
            watchdog_millis=0,
            settings={**settings, **its},
        )
        for role, its in roles.items()
    }
    present = pair["master"].command[0]
    messages = NumberedMessages(namesrv.address, TOPIC, send_timeout_s=30)
    try:
        for server in pair.values():
            await asyncio.to_thread(runs_earlier(server).start)
        async with sending(messages):
            await messages.acknowledges(60)
        seen: set[int] = set()
        await consume(namesrv.address, seen, set(messages.acknowledged[:30]))
        for role in (first, "master" if first == "slave" else "slave"):
            await asyncio.to_thread(pair[role].stop)
            runs_present(pair[role], present)
            await asyncio.to_thread(pair[role].start)
            async with sending(messages):
                await messages.acknowledges(60)
        await consume(namesrv.address, seen, set(messages.acknowledged))
        await asyncio.to_thread(await_equal_logs, pair["master"], pair["slave"])
        for server in pair.values():
            await asyncio.to_thread(server.stop)
            messages.check(queues_of(server.store))
    finally:
        for server in (*pair.values(), namesrv):
            server.kill()


@pytest.mark.parametrize("first", ["slave", "master"])
async def test_a_group_goes_on_while_half_of_it_is_upgraded(first: str, tmp_path: Path) -> None:
    processes = ElectedProcesses(
        *(tmp_path, 2),
        lease_s=2,
        settings={"defaultTopicQueueNums": str(QUEUES), "haSendHeartbeatInterval": "200"},
    )
    present = processes.members[1].command[0]
    messages = NumberedMessages(processes.namesrv.address, TOPIC, send_timeout_s=30)
    async with processes.running():
        for number, member in processes.members.items():
            runs_earlier(member)
            processes.start(number)
            await processes.master()
        await processes.all_in_sync()
        async with sending(messages):
            await messages.acknowledges(60)
        master = await processes.master()
        order = [3 - master, master] if first == "slave" else [master, 3 - master]
        for number in order:
            await asyncio.to_thread(processes.members[number].stop)
            runs_present(processes.members[number], present)
            processes.start(number)
            await processes.all_in_sync()
            async with sending(messages):
                await messages.acknowledges(60)
        await consume(processes.namesrv.address, set(), set(messages.acknowledged))
        for member in processes.members.values():
            await asyncio.to_thread(member.stop)
            messages.check(queues_of(member.store))


def test_a_table_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    store, warehouse = extract("stopped", tmp_path), tmp_path / "warehouse"
    catalog = open_catalog(str(warehouse))
    export = ["-m", "congreve", "lake", "export", "--store", str(store), "-t", "Kept"]
    for python, added in ((EARLIER, 0), (sys.executable, 0), (sys.executable, 5)):
        with MessageStore(small_store(store, mapped_file_size_commit_log=1 << 18)) as writer:
            for _ in range(added):
                writer.put(Record(topic="Kept", body=b"added"))
        subprocess.run([python, *export, "--warehouse", str(warehouse)], check=True, cwd=tmp_path)
        rows = catalog.load_table("rocketmq.Kept").scan().to_arrow()
        places = set(zip(*(rows[name].to_pylist() for name in PLACE), strict=True))
        assert len(places) == rows.num_rows == 21 + added
