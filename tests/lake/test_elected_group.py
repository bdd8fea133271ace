"""kill -9 of an elected group's master: the next one continues its export, each message once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.elected_processes import WAIT_S, ElectedProcesses
from harness.eventually import eventually
from harness.numbered_messages import NumberedMessages, number_of

from . import stores

LAG_MS = 1_000


@pytest.mark.crash
async def test_the_next_master_continues_the_export(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    rounds, chance = max(kill_rounds // 50, 1), random.Random()
    warehouse = tmp_path / "lake"
    settings = {
        **{"lakeTopics": stores.TOPIC, "lakeWarehouse": str(warehouse), "lakeRetention": "true"},
        **{"lakeLagMillis": str(LAG_MS), "defaultTopicQueueNums": "4"},
    }
    group = ElectedProcesses(tmp_path, 2, lease_s=2, settings=settings)
    messages = NumberedMessages(group.namesrv.address, stores.TOPIC, send_timeout_s=1.0)

    def exported(numbers: list[int]) -> bool:
        return {*numbers} <= {number_of(row[2]) for row in stores.in_table(warehouse)}

    async with group.running():
        for number in group.members:
            group.start(number)
        sending = asyncio.create_task(messages.send())
        try:
            await group.all_in_sync()
            for _ in range(rounds):
                await messages.acknowledges()
                first = messages.acknowledged[:]
                await eventually(lambda first=first: exported(first), WAIT_S)
                await asyncio.sleep(chance.uniform(0, LAG_MS / 1000))
                victim = await group.master()
                group.members[victim].kill()
                await messages.acknowledges()
                group.start(victim)
                await group.all_in_sync()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        await eventually(lambda: exported(messages.acknowledged), WAIT_S)
        await group.all_in_sync()
    rows = stores.in_table(warehouse)
    assert rows == stores.in_duckdb(warehouse)
    ends = {queue: offset + 1 for queue, offset, *_ in rows}
    for member in group.members.values():
        stored = stores.in_store(member.store)
        # The log may go on behind the table.
        assert [row for row in stored if row[1] < ends.get(row[0], 0)] == rows
    campaign("export of an elected group: kill of its master", rounds)
