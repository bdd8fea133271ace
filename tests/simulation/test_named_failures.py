"""Failures that users of other systems met, each as a script."""

from __future__ import annotations

import asyncio

from .member import Member
from .world import Outcome, Plot, Shape, World, simulate

SETTLED_S = 8.0
LIMIT_S = 30.0


def play(plot: Plot, shape: Shape, seed: int = 1) -> Outcome:
    """The plot, with clients beside it."""
    return simulate(seed, 0.7, plot=plot, shape=shape)


async def master_of(world: World) -> Member:
    """The master, as soon as it leads alone and all members are in its set."""
    async with asyncio.timeout(LIMIT_S):
        while not all(world.is_in_sync(each) for each in world.members.values()):
            await asyncio.sleep(0.05)
    (master,) = [each for each in world.members.values() if each.is_master]
    return master


def others(world: World, member: Member) -> list[Member]:
    """All but this one."""
    return [each for each in world.members.values() if each is not member]


async def acknowledges(world: World) -> float:
    """Wait until the next message is acknowledged; the seconds that it took."""
    before, begun = len(world.acknowledged), world.loop.time()
    async with asyncio.timeout(LIMIT_S):
        while len(world.acknowledged) == before:
            await asyncio.sleep(0.05)
    return world.loop.time() - begun


def test_a_member_that_lost_its_logs_end_is_not_elected() -> None:
    async def plot(world: World) -> None:
        master = await master_of(world)
        await acknowledges(world)
        first, *_ = others(world, master)
        first.crash(loses_bytes=400)
        await asyncio.sleep(0.01)
        master.crash()
        first.start(world.check_master)
        await asyncio.sleep(SETTLED_S)
        master.start(world.check_master)

    assert play(plot, Shape(2)).acknowledged > 50


def test_7689_offsets_behind_the_confirmed_one_are_not_given_twice() -> None:
    async def plot(world: World) -> None:
        for _ in range(3):
            master = await master_of(world)
            numbers = [each.number for each in others(world, master)]
            cut = {(master.number, each) for each in numbers}
            world.network.cut |= cut
            await asyncio.sleep(0.7)  # its log grows beyond what is confirmed
            master.crash()
            world.network.cut -= cut
            await asyncio.sleep(SETTLED_S)
            master.start(world.check_master)
            await acknowledges(world)

    assert play(plot, Shape(3)).acknowledged > 50


def test_6662_an_old_master_with_one_slave_confirms_nothing() -> None:
    async def plot(world: World) -> None:
        master = await master_of(world)
        slave, *rest = others(world, master)
        world.watched.cut |= {master.number, slave.number}
        sides = [(master, slave), tuple(rest)]
        cut = {
            way
            for here in sides[0]
            for there in sides[1]
            for way in ((here.number, there.number), (there.number, here.number))
        }
        world.network.cut |= cut
        await asyncio.sleep(SETTLED_S)
        assert not [each for each in sides[0] if each.is_master]
        await acknowledges(world)
        world.network.cut.clear()
        world.watched.cut.clear()

    assert play(plot, Shape(5, min_in_sync=2)).acknowledged > 30


def test_9689_a_master_that_is_elected_again_goes_on() -> None:
    async def plot(world: World) -> None:
        for _ in range(3):
            master = await master_of(world)
            world.watched.cut |= set(world.members)
            await asyncio.sleep(4.0)  # the lease ends
            world.watched.cut.clear()
            await acknowledges(world)
            world.transfer(master.number)
            await acknowledges(world)

    assert play(plot, Shape(3)).acknowledged > 50


def test_9897_two_slaves_are_cut_off_at_once() -> None:
    async def plot(world: World) -> None:
        master = await master_of(world)
        for each in others(world, master):
            world.network.cut |= {(master.number, each.number), (each.number, master.number)}
        assert await acknowledges(world) < 4.0
        await asyncio.sleep(SETTLED_S)
        world.network.cut.clear()
        await master_of(world)

    assert play(plot, Shape(3)).acknowledged > 50


def test_nats_7564_one_member_loses_its_power_while_others_change() -> None:
    async def plot(world: World) -> None:
        for _ in range(3):
            master = await master_of(world)
            first, second = others(world, master)
            first.crash(loses_power=True)
            world.transfer(second.number)
            await asyncio.sleep(1.0)
            first.start(world.check_master)
            await acknowledges(world)

    assert play(plot, Shape(3)).acknowledged > 50


def test_jepsen_nats_all_lose_their_power_at_once() -> None:
    async def plot(world: World) -> None:
        for _ in range(3):
            await master_of(world)
            await acknowledges(world)
            for each in world.members.values():
                each.crash(loses_power=True)
            for each in world.members.values():
                each.start(world.check_master)

    assert play(plot, Shape(3)).acknowledged > 50


def test_10666_what_was_cut_off_does_not_return_after_a_power_cut() -> None:
    async def plot(world: World) -> None:
        master = await master_of(world)
        for each in others(world, master):
            world.network.cut |= {(master.number, each.number), (each.number, master.number)}
        world.watched.cut.add(master.number)
        await asyncio.sleep(SETTLED_S)  # another one is elected, the old one has more
        world.network.cut.clear()
        world.watched.cut.clear()
        await master_of(world)  # its log was cut
        master.crash(loses_power=True)
        master.start(world.check_master)
        await master_of(world)

    assert play(plot, Shape(3)).acknowledged > 50


def test_nats_7545_a_member_is_replaced_by_an_empty_one() -> None:
    async def plot(world: World) -> None:
        for _ in range(2):
            master = await master_of(world)
            first, *_ = others(world, master)
            first.crash()
            await asyncio.sleep(4.0)  # it leaves the set
            first.lose_disk()
            first.start(world.check_master)
            await master_of(world)

    assert play(plot, Shape(3)).acknowledged > 50
