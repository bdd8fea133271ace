"""Members of an elected group that find damage when they start: it is fetched, nothing is cut."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.eventually import eventually
from harness.replication.elected_processes import ElectedProcesses
from harness.replication.replicas import log_bytes, queued_bodies

from congreve.client import Message, Producer
from congreve.engine.state.confirmed import ConfirmedFile
from congreve.engine.state.durable_mark import DurableMarkFile
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.record import decode_record

TOPIC = "Heals"
SEGMENT = 1 << 15
HEADER = range(4, 8)
"""Of a record: its magic. Without it the queues lose its entry."""
PLACE = range(28, 36)
BODY = range(100, 300)
MESSAGES = 400
EQUAL_S = 60
pytestmark = pytest.mark.crash


class Filled(NamedTuple):
    """A group whose members have stopped: its processes, the log of each, its records' places."""

    group: ElectedProcesses
    log: bytes
    places: list[int]
    bodies: dict[int, list[bytes]]


@asynccontextmanager
async def filled_group(folder: Path, **settings: str) -> AsyncIterator[Filled]:
    """Three members with MESSAGES messages, killed when all of it is confirmed and the same."""
    small = {"mappedFileSizeCommitLog": str(SEGMENT), "scrubInterval": "300"}
    group = ElectedProcesses(folder, 3, lease_s=2, settings={**small, **settings})
    async with group.running():
        for number in group.members:
            group.start(number)
        await group.all_in_sync()
        async with Producer(group.namesrv.address, group="p") as producer:
            for start in range(0, MESSAGES, 50):
                await asyncio.gather(
                    *(
                        producer.send(Message(topic=TOPIC, body=b"%4d" % number * 60))
                        for number in range(start, start + 50)
                    )
                )
        await equal(group, all_noted)
        log = log_bytes(group.members[1].store)
        for member in group.members.values():
            member.kill()
        places = list(records_of(log))
        bodies = queued_bodies(log, TOPIC, SEGMENT)
        assert sum(map(len, bodies.values())) == MESSAGES and len(log) > 3 * SEGMENT
        yield Filled(group, log, places, bodies)


def records_of(log: bytes) -> Iterable[int]:
    """Where records of the test's topic begin."""
    at = 0
    while at + 8 < len(log):
        size, magic = int.from_bytes(log[at : at + 4]), log[at + 4 : at + 8].hex()
        if magic == "daa320a7":
            if decode_record(log[at : at + size]).topic == TOPIC:
                yield at
            at += size
        else:
            at += SEGMENT - at % SEGMENT


def all_noted(stores: list[Path], logs: list[bytes]) -> bool:
    """Whether each member has noted that the whole log is confirmed and on disk."""
    folders = [str(store / "congreve") for store in stores]
    confirmed = [ConfirmedFile(each, read_only=True).load() for each in folders]
    marks = [DurableMarkFile(each).load() for each in folders]
    ends = [*confirmed, *(0 if mark is None else mark.end for mark in marks)]
    return all(end >= len(logs[0]) for end in ends)


async def equal(
    group: ElectedProcesses,
    also: Callable[[list[Path], list[bytes]], bool] = lambda stores, logs: True,
) -> None:
    """Return when all logs are the same."""
    stores = [member.store for member in group.members.values()]

    def are() -> bool:
        logs = [log_bytes(store) for store in stores]
        return logs[0] == logs[1] == logs[2] and also(stores, logs)

    await eventually(are, EQUAL_S)


def flip(store: Path, place: int) -> None:
    """Flip one bit of the byte at this offset of the log."""
    path = store / "commitlog" / f"{place - place % SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(place % SEGMENT)
        byte = file.read(1)[0]
        file.seek(place % SEGMENT)
        file.write(bytes([byte ^ 0x10]))


async def start_all(group: ElectedProcesses) -> None:
    """Start all members; returns when they are in the set of a new term."""
    before = await group.state()
    for number in group.members:
        group.start(number)

    async def has_begun() -> bool:
        return (await group.state()).epoch > before.epoch

    await eventually(has_begun, EQUAL_S)
    await group.all_in_sync()


async def healed(filled: Filled) -> None:
    """Start all members: all logs are as before, no message is lost, and nothing was cut."""
    group = filled.group
    await start_all(group)
    await equal(group, lambda stores, logs: logs[0][: len(filled.log)] == filled.log)
    for member in group.members.values():
        member.stop()
        assert "cuts its log" not in member.log.read_text()
        report = StoreExaminer(str(member.store)).verify()
        assert report.problems == []
        assert queued_bodies(log_bytes(member.store), TOPIC, SEGMENT) == filled.bodies


async def test_what_verify_finds_at_a_running_member_heals_without_a_scrub(tmp_path: Path) -> None:
    async with filled_group(tmp_path, scrubBytesPerSecond="0") as filled:
        group, places = filled.group, filled.places
        await start_all(group)
        await equal(group, all_noted)
        for at, place in enumerate(places[:-1:40]):
            flip(group.members[at % 3 + 1].store, place + BODY[0])
        for number, member in group.members.items():
            found = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "congreve", "store", "verify", str(member.store)),
                stderr=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
            )
            _, told = await found.communicate()
            assert found.returncode == 1
            assert b"the broker that runs looks at the damage" in told, f"member {number}"
        await equal(group, lambda stores, logs: logs[0][: len(filled.log)] == filled.log)


async def test_a_flipped_bit_in_each_segment_of_one_member(tmp_path: Path) -> None:
    async with filled_group(tmp_path) as filled:
        store = filled.group.members[2].store
        chance = random.Random(1)
        for segment in sorted({place // SEGMENT for place in filled.places}):
            place = chance.choice([each for each in filled.places if each // SEGMENT == segment])
            flip(store, place + chance.choice([*HEADER, *PLACE, *BODY]))
        assert log_bytes(store) != filled.log
        await healed(filled)
        text = filled.group.members[2].log.read_text()
        assert "is damaged" in text or "the log is damaged" in text
        assert "are repaired, from the log of" in text


@pytest.mark.parametrize("part", ["body", "header", "any"])
async def test_each_record_is_damaged_at_two_members_and_whole_at_one(
    tmp_path: Path, part: str
) -> None:
    parts = {"body": [*BODY], "header": [*HEADER, *PLACE], "any": [*HEADER, *PLACE, *BODY]}
    async with filled_group(tmp_path) as filled:
        chance = random.Random(part)
        for at, place in enumerate(filled.places):
            for number in {1, 2, 3} - {at % 3 + 1}:
                flip(filled.group.members[number].store, place + chance.choice(parts[part]))
        await healed(filled)
