"""Damage anywhere in the files of one store, stopped or running: no wrong byte is served.

Every message whose record is whole stays readable, and each damaged record is named.
"""

import errno
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from congreve.base.errors import CongreveError
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.io_backends.backends import BACKENDS, Options
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TOPIC = "Damaged"
QUEUES = 3
MESSAGES = 240
SEGMENT = 64 << 10
PAGE = 4096
pytestmark = pytest.mark.crash

STOPPED, RUNNING = "stopped", "running"
GONE = re.compile(rf"entries (\d+) to (\d+) of queue (\d+) of {TOPIC} were damaged")
"""The line about entries whose records have another place in their headers."""
CUT = re.compile(r"the log ends at (\d+): the torn bytes after it are removed")
"""The line about damage that goes on to the end of the log."""


class Stored(NamedTuple):
    """A message: where its record is in the log, and its bytes."""

    begin: int
    record: bytes


Messages = dict[tuple[int, int], Stored]
"""By queue and queue offset."""


class Fault(NamedTuple):
    """What was done to a file: its bytes [start, end) may be others now."""

    path: Path
    start: int
    end: int
    what: str


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=100,
        max_index_num=400,
        scrub_interval=3_600_000,
    )


def store_of(root: Path, files: FileSystem = DISK) -> MessageStore:
    made = BACKENDS["mmap"].make(Options(prewrites=False, locked=True))
    return MessageStore(config_of(root), backend=made, files=files, disk_use=lambda _: 0.5)


def body_of(number: int) -> bytes:
    return b"%d," % number * (1 + number * 7919 % 200)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Messages]:
    """A store that was stopped, and its messages."""
    root = tmp_path_factory.mktemp("whole") / "store"
    messages = {}
    with store_of(root) as store:
        for number in range(MESSAGES):
            keys = {"KEYS": f"k{number}"}
            body = body_of(number)
            put = store.put(
                Record(topic=TOPIC, body=body, queue_id=number % QUEUES, properties=keys)
            )
            record = bytes(store.read(put.physical_offset) or b"")
            messages[number % QUEUES, put.queue_offset] = Stored(put.physical_offset, record)
        assert store.wait_durable(put.end, 60)
    return root, messages


def harmed(root: Path, choose: random.Random) -> Fault:
    """Damage one place of one file; each kind of file has the same chance."""
    kinds: dict[str, list[Path]] = {}
    for path in root.rglob("*"):
        if path.is_file() and path.stat().st_size:
            kinds.setdefault(path.relative_to(root).parts[0], []).append(path)
    path = choose.choice(kinds[choose.choice(sorted(kinds))])
    if choose.random() < 0.4:
        path = choose.choice(kinds["commitlog"])
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0")) or 1
    start = choose.randrange(used)
    what = choose.choice(("a flipped bit", "zeros", "garbage", "a truncated end"))
    end = min(start + choose.choice((1, 8, 500, PAGE, 20_000)), used)
    if what == "a flipped bit":
        end = start + 1
        data[start] ^= 1 << choose.randrange(8)
    elif what == "zeros":
        data[start:end] = bytes(end - start)
    elif what == "garbage":
        data[start:end] = choose.randbytes(end - start)
    else:
        end = len(data)
        with path.open("r+b") as file:
            file.truncate(start)
        return Fault(path, start, end, what)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data[start:end])
    return Fault(path, start, end, what)


def served(store: MessageStore) -> Iterator[bytes]:
    """The records that pulls return."""
    for queue_id in range(QUEUES):
        offset = store.min_offset(TOPIC, queue_id)
        while offset < store.max_offset(TOPIC, queue_id):
            got = store.get(TOPIC, queue_id, offset, 16)
            assert got.next_offset > offset
            answer, at = b"".join(got.buffers), 0
            while at < len(answer):
                size = int.from_bytes(answer[at : at + 4])
                yield answer[at : at + size]
                at += size
            offset = got.next_offset


def check(
    store: MessageStore, messages: Messages, fault: Fault, log: pytest.LogCaptureFixture
) -> None:
    in_log = fault.path.parent.name == "commitlog"
    base = int(fault.path.name) if in_log else 0
    hit = range(base + fault.start, base + fault.end) if in_log else range(0)
    found = set()
    for data in served(store):
        record = decode_record(data)
        place = record.queue_id, record.queue_offset
        stored = messages[place]
        if data != stored.record:  # RocketMQ's format has no check of these bytes
            assert in_log and record.body == decode_record(stored.record).body, fault
            assert overlaps(hit, stored), fault
        found.add(place)
    for place, stored in messages.items():
        assert place in found or overlaps(hit, stored), (fault, place)
    for number in range(0, MESSAGES, 40):
        for buffer in store.query(TOPIC, f"k{number}", 9, 0, 1 << 60).buffers:
            assert decode_record(buffer).body == body_of(number), fault
    end = store.scrub.examiner.end
    damages = [step.damage for step in store.scrub.examiner.steps(store.log.min_offset, end)]
    text = log.text
    gone = {
        (int(queue), offset)
        for first, last, queue in GONE.findall(text)
        for offset in range(int(first), int(last) + 1)
    }
    cut = min((int(end) for end in CUT.findall(text)), default=1 << 60)
    for place, stored in messages.items():
        begin = stored.begin
        is_named = place in gone or begin >= cut
        is_named |= any(each is not None and each.begin <= begin < each.end for each in damages)
        is_named |= f" {begin}" in text or str(fault.path) in text
        assert place in found or is_named, (fault, place)


def overlaps(hit: range, stored: Stored) -> bool:
    return hit.start < stored.begin + len(stored.record) and stored.begin < hit.stop


@pytest.mark.parametrize("when", [STOPPED, RUNNING])
def test_damage_is_named_and_never_served(
    tmp_path: Path,
    whole: tuple[Path, Messages],
    when: str,
    kill_rounds: int,
    caplog: pytest.LogCaptureFixture,
    campaign: Callable[[str, int], None],
) -> None:
    origin, messages = whole
    rounds = max(kill_rounds // 2, 10)
    for seed in range(rounds):
        choose = random.Random(f"{when} {seed}")
        root = tmp_path / "store"
        shutil.copytree(origin, root)
        caplog.clear()
        if when == STOPPED:
            fault = harmed(root, choose)
        store = store_of(root)
        try:
            store.start()
        except CongreveError as error:
            assert when == STOPPED and fault.what == "a truncated end", (fault, error)
            assert str(fault.path) in str(error) or fault.path.name in str(error), (fault, error)
        else:
            if when == RUNNING:
                fault = harmed(root, choose)
            try:
                check(store, messages, fault, caplog)
            except BackendError as error:
                # A file of a queue that is shorter than its mapping is repaired at the next start.
                assert when == RUNNING and fault.what == "a truncated end", (fault, error)
                assert str(fault.path) in str(error)
                store.close()
                store = store_of(root)
                store.start()
                check(store, messages, fault, caplog)
            store.close()
        shutil.rmtree(root)
    campaign(f"damage of a {when} store", rounds)


def test_sectors_that_cannot_be_read_are_damage_and_no_failure(
    tmp_path: Path, whole: tuple[Path, Messages]
) -> None:
    origin, messages = whole
    shutil.copytree(origin, tmp_path / "store")
    point = Failpoint("read", "commitlog", errno.EIO, nth=1, times=3)
    with store_of(tmp_path / "store", FaultyFileSystem(DISK, point)) as store:
        steps = list(store.scrub.examiner.steps(0, store.scrub.examiner.end))
        damages = [step.damage for step in steps if step.damage is not None]
        # The first read as a whole, and two pages of it; later reads work.
        assert [each.begin for each in damages] == [0]
        assert store.writable
        assert len(list(served(store))) == len(messages)
        store.scrub.look_at(0)
        assert not store.scrub.damages.open
