"""kill -9 of an elected group's master: the next one continues its export, each message once, and
every member serves from the table what it has deleted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from harness.numbered_messages import NumberedMessages, number_of
from harness.replication.elected_processes import WAIT_S, ElectedProcesses

from congreve.client import ConsumeFrom, PushConsumer
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from . import stores

LAG_MS = 1_000
SEGMENT = 16 << 10
CRC_BITS = 0x7FFF_FFFF
"""RocketMQ keeps these of a body's CRC-32."""


async def delete_segments(group: ElectedProcesses) -> None:
    """Return when the logs of all members have lost their first segments."""
    client = RemotingClient()

    logs = [member.store / "commitlog" for member in group.members.values()]
    async with asyncio.timeout(WAIT_S):
        while any(int(min(log.iterdir()).name) <= SEGMENT for log in logs):
            for member in group.members.values():
                request = RemotingCommand(code=RequestCode.DELETE_EXPIRED_COMMITLOG)
                await client.invoke(member.address, request, WAIT_S)
            await asyncio.sleep(LAG_MS / 2000)
    await client.close()


async def consumed(namesrv: str, count: int) -> list[stores.Row]:
    """Rows of all messages from the first one on, as a consumer gets them."""
    found: list[stores.Row] = []
    topics = {stores.TOPIC: "*"}
    async with PushConsumer(
        namesrv, group="c", topics=topics, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        async for each in consumer:
            found.append((each.queue_id, each.queue_offset, each.body, crc32(each.body) & CRC_BITS))
            if len(found) == count:
                break
    return sorted(found)


@pytest.mark.crash
async def test_the_next_master_continues_the_export(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    rounds, chance = max(kill_rounds // 50, 1), random.Random()
    warehouse = tmp_path / "lake"
    settings = {
        **{"lakeTopics": stores.TOPIC, "lakeWarehouse": str(warehouse), "lakeRetention": "true"},
        **{"lakeLagMillis": str(LAG_MS), "defaultTopicQueueNums": "4"},
        **{"mappedFileSizeCommitLog": str(SEGMENT), "lakeReservedTime": "0"},
        # Not before the test asks for it.
        **{"deleteWhen": f"{(time.localtime().tm_hour + 12) % 24:02}"},
    }
    group = ElectedProcesses(tmp_path, 2, lease_s=2, settings=settings)
    messages = NumberedMessages(group.namesrv.address, stores.TOPIC, send_timeout_s=1.0)

    async def is_exported(numbers: list[int]) -> None:
        """Return when the table has these messages."""
        async with asyncio.timeout(WAIT_S):
            # In a thread: the links between the members are on this event loop.
            while not {*numbers} <= {
                number_of(row[2]) for row in await asyncio.to_thread(stores.in_table, warehouse)
            }:
                await asyncio.sleep(LAG_MS / 2000)

    async with group.running():
        for number in group.members:
            group.start(number)
        sending = asyncio.create_task(messages.send())
        try:
            await group.all_in_sync()
            for _ in range(rounds):
                await messages.acknowledges()
                await is_exported(messages.acknowledged[:])
                await asyncio.sleep(chance.uniform(0, LAG_MS / 1000))
                victim = await group.master()
                group.members[victim].kill()
                # On a slow machine the slave may have left the set: then only the victim can go on.
                if len((await group.state()).in_sync) > 1:
                    await messages.acknowledges()
                group.start(victim)
                await group.all_in_sync()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        await is_exported(messages.acknowledged)
        await group.all_in_sync()
        await delete_segments(group)
        count = len(stores.in_table(warehouse))
        assert await asyncio.wait_for(consumed(messages.namesrv, count), WAIT_S) == stores.in_table(
            warehouse
        )
    rows = stores.in_table(warehouse)
    assert rows == stores.in_duckdb(warehouse)
    ends = {queue: offset + 1 for queue, offset, *_ in rows}
    for member in group.members.values():
        stored = stores.in_store(member.store)
        begins = {row[0]: row[1] for row in reversed(stored)}
        assert any(begins.values()), "no message was deleted"
        # The log begins later than the table, and may go on behind it.
        assert [row for row in stored if row[1] < ends.get(row[0], 0)] == [
            row for row in rows if row[1] >= begins.get(row[0], ends[row[0]])
        ]
    campaign("export of an elected group: kill of its master", rounds)
