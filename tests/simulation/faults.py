"""Faults that hit a group by chance; each heals by itself after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .member import Member
    from .world import World

Fault = Callable[["World"], Coroutine[Any, Any, None]]

WINDOW_S = 0.1
"""How soon most faults come behind messages that were sent, in seconds."""


def _any(world: World) -> Member:
    return world.chance.choice(list(world.members.values()))


def _master(world: World) -> Member:
    """The master, most of the time."""
    masters = [each for each in world.members.values() if each.is_master]
    return masters[0] if masters and world.chance.random() < 0.8 else _any(world)


async def _pause(world: World, longest_s: float = 15.0) -> None:
    await asyncio.sleep(world.chance.random() ** 2 * longest_s)


def _again(world: World, member: Member) -> None:
    if member.process is None:
        member.start(world.check_master)


async def kill(world: World) -> None:
    """A process is killed."""
    member = _master(world)
    member.crash()
    await _pause(world)
    _again(world, member)


async def kill_two(world: World) -> None:
    """Two processes are killed, one soon behind the other."""
    first = _master(world)
    first.crash()
    await asyncio.sleep(world.chance.random() * 0.3)
    second = world.chance.choice([each for each in world.members.values() if each is not first])
    second.crash()
    for member in world.chance.sample((first, second), 2):
        await _pause(world, 8.0)
        _again(world, member)


async def power_cut(world: World) -> None:
    """A machine loses its power; with ASYNC_FLUSH its process is killed."""
    member = _any(world)
    member.crash(loses_power=world.shape.sync_flush)
    await _pause(world)
    _again(world, member)


async def all_lose_power(world: World) -> None:
    """All machines lose their power at one time; with ASYNC_FLUSH their processes are killed."""
    members = list(world.members.values())
    for member in members:
        member.crash(loses_power=world.shape.sync_flush)
    for member in members:
        await _pause(world, 5.0)
        _again(world, member)


async def clean_stop(world: World) -> None:
    """An operator stops a member, and starts it again."""
    member = _master(world)
    await member.stop()
    await _pause(world)
    _again(world, member)


async def transfer(world: World) -> None:
    """An operator names the next master."""
    world.transfer(_any(world).number)


async def isolate(world: World) -> None:
    """A member's links to all others carry nothing, or in one direction only."""
    member = _master(world).number
    others = [each for each in world.members if each != member]
    ways = world.chance.choice((1, 2, 3))
    cut = {(member, each) for each in others if ways & 1}
    cut |= {(each, member) for each in others if ways & 2}
    world.network.cut |= cut
    await _pause(world)
    world.network.cut -= cut


async def cut_off(world: World) -> None:
    """A member does not reach the coordination service."""
    member = _master(world).number
    world.watched.cut.add(member)
    await _pause(world)
    world.watched.cut.discard(member)


async def lost_answers(world: World) -> None:
    """Answers of the coordination service are lost, or changes are carried out late."""
    world.watched.lost_answers = 0.5
    await _pause(world)
    world.watched.lost_answers = 0.0


async def slow(world: World) -> None:
    """A member's links are slow."""
    member = _any(world).number
    world.network.slow.add(member)
    await _pause(world)
    world.network.slow.discard(member)


async def reset(world: World) -> None:
    """All connections of a member end."""
    world.network.reset(_any(world).number)


async def lost_end(world: World) -> None:
    """A member that is not alone in the set loses the end of its log, once at a time."""
    member = _master(world)
    in_sync = world.watched.service.read().in_sync
    if world.has_lost_end or member.process is None or not in_sync - {member.number}:
        return
    world.has_lost_end = True
    member.crash(loses_bytes=world.chance.randint(1, 2000))
    await _pause(world)
    _again(world, member)
    while not world.is_in_sync(member) and not world.ends:
        await asyncio.sleep(0.5)
    world.has_lost_end = False


FAULTS: tuple[Fault, ...] = (
    *(kill, kill_two, kill_two, power_cut, all_lose_power, clean_stop, transfer),
    *(isolate, isolate, cut_off, lost_answers, slow, slow, reset, lost_end),
)


async def by_chance(world: World) -> None:
    """Faults by chance, until the clients stop."""
    while world.loop.time() < world.until:
        await asyncio.sleep(world.chance.expovariate(world.rates.faults / 60))
        world.raise_broken()
        if world.chance.random() < 0.7:  # while messages are on their way
            await asyncio.wait([world.loop.create_task(world.burst.wait())], timeout=10.0)
            await asyncio.sleep(WINDOW_S * world.chance.random())
        fault = world.chance.choice(FAULTS)
        world.faults += 1
        world.note(fault.__name__)
        world.begin(fault(world))
