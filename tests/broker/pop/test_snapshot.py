"""pops.json: it is written while windows change, and does not hold the event loop."""

import asyncio
import json
import time
from random import Random

import numpy
from harness.eventually import eventually
from harness.slowness import limit_s

from congreve.broker.pop.journal import PopJournal

from ...engine.pop.model import state_of
from ..tool import config_of, running
from .popping import OK, Member

WINDOWS = 60_000
HOUR_MS = 3_600_000


async def _windows_of(tool, broker) -> PopJournal:
    """The broker's journal, with many windows; nothing is out, which would come again at once
    when the client is gone."""
    await tool.create_topic("T", queues=1)
    await tool.send("T", b"first")
    member = Member(tool)
    (found,) = await member.pop()
    assert await member.ack(found) == OK
    pops = broker.managers.pops
    for number in range(WINDOWS):
        pops.in_flight.window("G", f"%LMQ%T$lite-{number}", number % 8, number)
    return pops.journal


async def test_windows_that_change_while_pops_json_is_written_are_as_they_were(tmp_path):
    config, file = config_of(tmp_path), tmp_path / "congreve" / "pops.json"
    chance = Random(7)
    async with running(config) as (tool, broker):
        journal = await _windows_of(tool, broker)
        in_flight = broker.managers.pops.in_flight
        names = [(each.group, each.topic, each.queue_id) for each in in_flight.all_windows()]
        names = [name for name in names if "lite" in name[1]]
        writing = asyncio.ensure_future(journal.writer.write())
        rounds = 0
        written = ""
        while not written:
            if writing.done():  # changes of one more round are only in the journal
                await writing
                written = file.read_text()
            rounds += 1
            for name in chance.sample(names, 20):
                window = in_flight.window(*name, 5)
                first, now = window.next, time.time_ns() // 1_000_000 + rounds
                what = chance.randrange(4)
                if what == 0:
                    in_flight.drop(window)
                elif what == 1:
                    window.reset(chance.randrange(100))
                else:
                    window.take(numpy.arange(first, first + 3), first + 5, now, HOUR_MS)
                    window.ack(first + 1, now)
            assert journal.write()
            await asyncio.sleep(0)
        assert rounds > 1
        assert int(json.loads(written)["at"]) < journal.end
        await eventually(lambda: not in_flight.settled_windows())
        expected = state_of(in_flight)
    file.write_text(written)  # which the stop has written again, and a kill leaves
    async with running(config) as (_, broker):
        found = state_of(broker.managers.pops.in_flight)
        assert {
            name: (expected.get(name), found.get(name))
            for name in expected.keys() | found.keys()
            if expected.get(name) != found.get(name)
        } == {}


async def test_the_event_loop_copies_no_windows_for_pops_json(tmp_path):
    async with running(config_of(tmp_path)) as (tool, broker):
        journal = await _windows_of(tool, broker)
        begun = time.thread_time()
        await journal.writer.write()
        assert time.thread_time() - begun < limit_s(0.01)
        written = json.loads((tmp_path / "congreve" / "pops.json").read_text())
        assert len(written["windows"]) > 50 * WINDOWS
