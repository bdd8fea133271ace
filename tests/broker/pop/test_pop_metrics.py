"""What metrics show of pops."""

import asyncio

from congreve.base.clock import ManualClock
from congreve.broker.metrics.pop_names import PopNames
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import ConsumeStats
from congreve.remoting.messages.bodies import SubscriptionGroupConfig

from ..tool import Tool, config_of, running
from .popping import Member


async def test_metrics_show_what_is_out_ready_and_came_again(tmp_path):
    async with running(config_of(tmp_path), clock=(clock := ManualClock(10**12))) as (tool, broker):
        names = PopNames(broker.managers.pops, broker.store, lambda: 100)
        assert list(names.families()) == []
        await tool.create_topic("T", queues=1)
        for _ in range(3):
            await tool.send("T")
        group = SubscriptionGroupConfig(group_name="G", retry_max_times=1)
        broker.managers.metadata.groups.update(group)
        member = Member(tool)
        await member.pop(maxMsgNums=1, invisibleTime=1_000)
        nothing = dict.fromkeys(("in_flight", "oldest_seconds", "redelivered", "dead_letters"), 0.0)
        assert shown(names) == nothing | {"in_flight": 1, "ready": 2}
        clock.advance(500)
        assert shown(names) == nothing | {"in_flight": 1, "ready": 2, "oldest_seconds": 0.5}
        row = (await progress(tool))["T"]
        assert (row["inFlight"], row["inFlightAge"]) == (1, 500)
        assert (row["redelivered"], row["deadLetters"]) == (0, 0)
        clock.advance(1_500)
        await eventually(names, nothing | {"ready": 3, "redelivered": 1})
        await member.pop(invisibleTime=1_000)
        clock.advance(2_000)
        await eventually(names, nothing | {"ready": 2, "redelivered": 3, "dead_letters": 1})
        rows = await progress(tool)
        counts = {each: (row["redelivered"], row["deadLetters"]) for each, row in rows.items()}
        assert counts == {"T": (3, 0), "%RETRY%G_T": (0, 1)}
        await tool.ask(215, {"topic": "T"})
        assert not broker.managers.pops.redelivery.again_counts
        assert not broker.managers.pops.redelivery.dead_counts


async def progress(tool: Tool) -> dict[str, dict[str, int]]:
    """The rows of the queues that the group pops, by topic, of which each has one."""
    answer = await tool.ask(208, {"consumerGroup": "G"})
    table = ConsumeStats.decode(answer.body).offset_table
    return {
        queue.topic: fastjson.loads(offsets.encode())
        for queue, offsets in table.items()
        if offsets.in_flight is not None
    }


async def eventually(names: PopNames, expected: dict[str, float]) -> None:
    for _ in range(200):
        if shown(names) == expected:
            break
        await asyncio.sleep(0.05)
    assert shown(names) == expected


def shown(names: PopNames) -> dict[str, float]:
    found = {}
    for family in names.families():
        if family is not None and family.name.startswith("congreve_pop_"):
            ((labels, value),) = family.samples
            assert labels == '{group="G",topic="T"}'
            found[family.name.removeprefix("congreve_pop_").removesuffix("_total")] = value
    return found
