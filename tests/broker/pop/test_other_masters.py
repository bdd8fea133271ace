"""What pops have taken, at a slave that becomes the master, and in an elected group."""

import asyncio
import shutil

import pytest
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd
from harness.replication.pairs import broker_config, running_pair

from congreve.broker.broker import Broker
from congreve.remoting.transport.client import RemotingClient

from ..tool import Tool, config_of, running
from .popping import OK, Member, Popped


def named(found: list[Popped]) -> list[bytes]:
    return sorted(message.body for message in found)


async def part(tool: Tool, name: str) -> Member:
    """A member that has popped six messages, and acknowledged those of an even number."""
    await tool.create_topic("T", queues=1)
    for number in range(6):
        assert (await tool.send("T", b"%d" % number)).code == OK
    member = Member(tool, broker_name=name)
    for message in await member.pop(invisibleTime=3_000):
        if int(message.body) % 2 == 0:
            assert await member.ack(message) == OK
    return member


@pytest.mark.parametrize("lacks", [(), ("subscriptionGroup.json", "consumerOffset.json")])
async def test_a_slave_that_becomes_the_master_has_what_is_out(tmp_path, lacks):
    client = RemotingClient()
    async with running_pair(tmp_path, master={"brokerRole": "SYNC_MASTER"}) as (
        names,
        first,
        slave,
    ):
        await eventually(lambda: first.replication.state().slaves)
        await part(Tool(first.address, client), "pair")
        await eventually(lambda: slave.store.log.max_offset == first.store.log.max_offset)
        await eventually(lambda: "G" in slave.managers.metadata.groups.table)
        refused = await Member(Tool(slave.address, client)).ask()
        assert refused.code == 16
        await slave.stop()
        folder = tmp_path / "promoted"
        shutil.copytree(tmp_path / "slave", folder)
        for name in lacks:  # the group is new, and its master died before the slave had copied it
            (folder / "config" / name).unlink()
        async with Broker(broker_config(folder, names)) as promoted:
            assert promoted.managers.pops.in_flight.out == 3
            member = Member(Tool(promoted.address, client), broker_name="pair")
            assert named(await member.pop_all(3, pollTime=10_000)) == [b"1", b"3", b"5"]
            assert await member.pop(pollTime=300) == []
    await client.close()


@pytest.mark.parametrize("order", ["false", "true"])
async def test_pops_end_at_the_confirmed_offset(tmp_path, order):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member, store = Member(tool), broker.store

        async def pop(**changed: object) -> list[bytes]:
            return named(await member.pop(order=order, **changed))

        assert await pop() == []  # later ones are served by lanes, if they have no order
        for number in range(4):
            await tool.send("T", b"%d" % number)
            if number == 1:
                store.show_below(store.log.max_offset)
        assert await pop() == [b"0", b"1"]
        if order == "true":
            return  # the next batch waits for the acknowledgements of this one
        assert await pop(pollTime=300) == []
        waiting = asyncio.create_task(pop(pollTime=20_000))
        await eventually(lambda: len(broker.managers.pops.waiting) == 1)
        store.show_below(store.log.max_offset)
        assert await waiting == [b"2", b"3"]


async def test_what_comes_again_waits_for_its_confirmation(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.create_topic("T", queues=1)
        member, store = Member(tool), broker.store
        await tool.send("T", b"x")
        store.show_below(store.log.max_offset)
        assert named(await member.pop(invisibleTime=100)) == [b"x"]
        copies = store.queues.get("%RETRY%G_T", 0)
        await eventually(lambda: copies.max == 1)
        assert await member.pop(pollTime=300) == []
        waiting = asyncio.create_task(member.pop(pollTime=20_000))
        await eventually(lambda: len(broker.managers.pops.waiting) == 1)
        store.show_below(store.log.max_offset)
        assert named(await waiting) == [b"x"]


@pytest.mark.slow
async def test_an_elected_master_has_what_is_out(tmp_path, etcd: Etcd):
    client = RemotingClient()
    async with ElectedGroup(tmp_path, etcd) as group:
        await group.start(1)
        assert await group.master() == 1
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        name = group.broker(1).config.broker_name
        await part(Tool(group.broker(1).address, client), name)
        await group.stop(1)
        assert await group.master() == 2
        member = Member(Tool(group.broker(2).address, client), broker_name=name)
        assert named(await member.pop_all(3, pollTime=15_000)) == [b"1", b"3", b"5"]
        assert await member.pop(pollTime=300) == []
    await client.close()
