"""Consumers of a topic that is deleted and made again get all messages of the new one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from congreve.broker.metadata.deleted_topics import DeletedTopics
from congreve.broker.metadata.former_readers import FormerReaders
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.client.consumer.push import PushConsumer
from congreve.client.received import ReceivedMessage
from congreve.client.settings import ConsumeFrom
from congreve.remoting.messages.command import RemotingCommand

from ..tool import Tool, commit, config_of, local_config, running

PULL, QUERY_OFFSET, UPDATE_OFFSET, DELETE_TOPIC = 11, 14, 15, 215
SUSPEND = 2
MOVED = 21
GROUP = "G"


async def pull(tool: Tool, offset: int, *, suspend_ms: int = 0) -> RemotingCommand:
    fields = {
        "consumerGroup": GROUP,
        "topic": "T",
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(SUSPEND if suspend_ms else 0),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*",
        "subVersion": "5",
    }
    return await tool.ask(PULL, fields)


async def query(tool: Tool) -> int:
    fields = {"consumerGroup": GROUP, "topic": "T", "queueId": "0"}
    answer = await tool.ask(QUERY_OFFSET, fields)
    return int(answer.ext_fields["offset"])


async def make_again(tool: Tool, before: int, after: int) -> None:
    """A topic whose reader consumed all of it, and the next one of its name."""
    await tool.create_topic("T", 1)
    await tool.heart_beat(GROUP, "T")
    for _ in range(before):
        await tool.send("T")
    assert (await pull(tool, 0)).code == 0
    await tool.ask(UPDATE_OFFSET, commit(GROUP, "T", before))
    assert await query(tool) == before
    await tool.ask(DELETE_TOPIC, {"topic": "T"})
    await tool.ask(UPDATE_OFFSET, commit(GROUP, "T", before))
    await tool.create_topic("T", 1)
    for _ in range(after):
        await tool.send("T")


@pytest.mark.parametrize("after", [0, 1, 4, 5, 9])
async def test_a_pull_of_the_deleted_topic_moves_to_the_first_message(
    tmp_path: Path, after: int
) -> None:
    config = config_of(tmp_path)
    async with running(config) as (tool, _):
        await make_again(tool, 5, after)
        for _ in range(2):  # the answer may be lost
            answer = await pull(tool, 5)
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (MOVED, "0")
        await tool.ask(UPDATE_OFFSET, commit(GROUP, "T", 5))
        assert await query(tool) == 0, "a commit of the deleted topic counts no more"
        if not after:
            return
        assert (await pull(tool, 0)).ext_fields["nextBeginOffset"] == str(after)
        await tool.ask(UPDATE_OFFSET, commit(GROUP, "T", after))
        assert await query(tool) == after
        assert (await pull(tool, after)).code != MOVED


async def test_a_pull_that_waits_meanwhile_moves_to_the_first_message(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", 1)
        await tool.heart_beat(GROUP, "T")
        await tool.send("T")
        held = asyncio.create_task(pull(tool, 1, suspend_ms=2000))
        while not held.done() and (await pull(tool, 0)).code != 0:
            await asyncio.sleep(0.01)
        await tool.ask(DELETE_TOPIC, {"topic": "T"})
        await tool.create_topic("T", 1)
        for _ in range(3):
            await tool.send("T")
        answer = await held
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (MOVED, "0")


async def test_what_was_parked_for_the_deleted_topic_comes_in_the_next_one(tmp_path: Path) -> None:
    """As 4.9.4, which looks at the name alone: docs/limits.md says so."""
    async with running(config_of(tmp_path)) as (tool, _):
        await tool.create_topic("T", 1)
        assert (await tool.send("T", b"delayed", properties="DELAY\x012")).code == 0
        half = (await tool.send_half("T")).ext_fields
        await tool.ask(DELETE_TOPIC, {"topic": "T"})
        await tool.create_topic("T", 1)
        end = await tool.commit_half(int(half["queueOffset"]), int(half["msgId"][16:], 16))
        assert end.code == 0
        await tool.heart_beat(GROUP, "T")
        bodies = b""
        async with asyncio.timeout(60):
            while not (b"delayed" in bodies and b"half" in bodies):
                bodies = (await pull(tool, 0)).body
                await asyncio.sleep(0.05)
        assert (await pull(tool, 0)).ext_fields["nextBeginOffset"] == "2"


async def test_other_groups_pull_where_they_want(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", 1)
        await tool.send("T")
        await tool.ask(DELETE_TOPIC, {"topic": "T"})
        await tool.create_topic("T", 1)
        for _ in range(4):
            await tool.send("T")
        assert not broker.managers.metadata.deleted_topics.readers("T")
        await tool.heart_beat(GROUP, "T")
        assert (await pull(tool, 3)).code == 0
        beyond = await pull(tool, 9)
        assert (beyond.code, beyond.ext_fields["nextBeginOffset"]) == (MOVED, "0")


async def test_the_readers_of_a_deleted_topic_survive_a_restart(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with running(config) as (tool, _):
        await make_again(tool, 5, 9)
    async with running(config) as (tool, _):
        await tool.heart_beat(GROUP, "T")
        assert (await pull(tool, 5)).code == MOVED
        assert (await pull(tool, 0)).code == 0
        await tool.ask(UPDATE_OFFSET, commit(GROUP, "T", 7))
    async with running(config) as (tool, _):
        await tool.heart_beat(GROUP, "T")
        assert await query(tool) == 7
        assert (await pull(tool, 7)).code == 0


async def test_a_push_consumer_reads_all_of_the_next_topic(tmp_path: Path) -> None:
    got: list[bytes] = []

    async def listen(message: ReceivedMessage) -> None:
        got.append(bytes(message.body))

    async def until(count: int) -> None:
        async with asyncio.timeout(60):
            while len({*got}) < count:
                await asyncio.sleep(0.05)

    config = config_of(tmp_path, answer_route_requests=True)
    async with running(config) as (tool, _):
        await tool.create_topic("T", 2)
        consumer = PushConsumer(
            tool.address,
            group=GROUP,
            topics={"T": "*"},
            listener=listen,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        async with consumer:
            for number in range(20):
                await tool.send("T", b"old %d" % number, number % 2)
            await until(20)
            await tool.ask(DELETE_TOPIC, {"topic": "T"})
            await tool.create_topic("T", 2)
            for number in range(30):
                await tool.send("T", b"new %d" % number, number % 2)
            await until(50)


def test_what_a_group_commits_counts_after_it_began_again(tmp_path: Path) -> None:
    deleted, offsets = DeletedTopics(str(tmp_path)), ConsumerOffsetManager(local_config())
    readers = FormerReaders(deleted, offsets)
    asyncio.run(deleted.begin(["T"], {"T": [GROUP]}))
    place = GROUP, "T", 0
    offsets.commit(*place, 7)
    assert offsets.query(*place) == -1
    assert readers.beginning(place, 7, (0, 9)) == 0
    offsets.commit(*place, 7)
    assert offsets.query(*place) == 0
    assert readers.beginning(place, 0, (0, 9)) is None
    offsets.commit(*place, 7)
    assert offsets.query(*place) == 7
    assert readers.beginning(place, 7, (0, 9)) is None
    offsets.commit("other", "T", 0, 3)
    assert offsets.query("other", "T", 0) == 3
