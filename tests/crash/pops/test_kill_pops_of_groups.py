"""kill -9 of members of an elected group in the middle of pops.

What was acknowledged never comes again, also from the next master, and all else does. A pop is
answered before slaves have it, so that what was just taken may come again from there at once.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.elected_processes import GROUP, WAIT_S, ElectedProcesses
from harness.wire import Wire

from .popping_members import (
    QUEUES,
    TOPIC,
    Ledger,
    Member,
    make_group,
    send,
    settle_rest,
)

MANY = 1000  # of --kill-rounds
LEASE_S = 2
POLLING_INFO = 200_055
NO_PERMISSION = 16
"""The answer of a slave."""
SETTINGS = {
    "mappedFileSizeConsumeQueue": str(20 * 2000),
    "flushConsumerOffsetInterval": "100",
    "defaultTopicQueueNums": str(QUEUES),
    "haMaxTimeSlaveNotCatchup": "1000",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "2000",
}


async def master_of(group: ElectedProcesses) -> int:
    """The master, once it serves pops."""
    found: list[int] = []

    async def serves() -> bool:
        found[:] = [await group.master()]
        fields = {"consumerGroup": "popping", "topic": TOPIC, "queueId": "0"}
        try:
            with Wire(group.members[found[0]].address, 5.0) as wire:
                answer = await asyncio.to_thread(wire.call, POLLING_INFO, fields)
        except OSError:
            return False
        return answer.code != NO_PERMISSION

    await eventually(serves, WAIT_S)
    return found[0]


async def one_round(group: ElectedProcesses, ledgers: list[Ledger], seed: int) -> None:
    chance = random.Random(seed)
    await group.all_in_sync()
    master = await master_of(group)
    address = group.members[master].address
    with Wire(address) as wire:
        if not seed:
            for ledger in ledgers:
                await asyncio.to_thread(make_group, wire, ledger)
        await asyncio.to_thread(send, wire, ledgers)
    ended = threading.Event()
    members = [
        asyncio.to_thread(Member(address, ledger, 10 * seed + number, broker=GROUP).run, ended)
        for number, ledger in enumerate(2 * ledgers)
    ]
    popping = asyncio.gather(*members)
    await asyncio.sleep(chance.uniform(0.1, 0.8))
    victim = chance.choice([*group.members, master])
    await asyncio.to_thread(group.members[victim].kill)
    if victim != master:
        await asyncio.sleep(chance.uniform(0.1, 0.8))
        ended.set()
    await popping
    if victim == master:
        assert await master_of(group) != master
    group.start(victim)


@pytest.mark.crash
async def test_acknowledged_messages_stay_away_from_the_next_master(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    rounds = kill_rounds // 10 if kill_rounds >= MANY else 3
    group = ElectedProcesses(tmp_path, 2, lease_s=LEASE_S, settings=SETTINGS)
    ledgers = [Ledger("popping", ordered=False), Ledger("in-order", ordered=True)]
    async with group.running():
        for number in group.members:
            group.start(number)
        for number in range(rounds):
            await one_round(group, ledgers, number)
        await group.all_in_sync()
        address = group.members[await master_of(group)].address
        for ledger in ledgers:
            await asyncio.to_thread(settle_rest, address, ledger, GROUP)
    for ledger in ledgers:
        assert ledger.again == [], ledger.group
        assert not ledger.missing, ledger.group
        assert ledger.acknowledged
    campaign("V pops with acknowledgements, kills, elected group", rounds)
