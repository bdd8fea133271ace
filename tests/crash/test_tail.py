"""Possible damage at the log's end after a crash: cut, torn, flipped or stale bytes.

An image is a store as a power cut leaves it: everything below the checkpoint is on disk; later
bytes may be present or missing, complete or torn. The tests open, read, write and check each image.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.stores.killed_store import copy_running

from congreve.engine.config import StoreConfig
from congreve.engine.read.reader import GetStatus
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record
from congreve.records.record import decode_records

TOPIC = "TailTest"
QUEUES = 3
SEGMENT = 256 << 10
TAIL = 64 << 10
"""Bytes of the log's end at which the campaign cuts; the long campaign cuts at each of them."""
SECTORS = (512, 4096)

Count = Callable[[str, int], None]

Messages = dict[tuple[int, int], bytes]
"""(queue, queue offset) -> body."""


def config_of(root: Path) -> StoreConfig:
    # Only the test decides when a checkpoint is written.
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 500,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_consume_queue_thorough_interval=3_600_000,
        flush_interval_consume_queue=3_600_000,
    )


def store_of(config: StoreConfig) -> MessageStore:
    """A full disk of the machine must not end the test, and no mark covers the tail."""
    return MessageStore(config, disk_use=lambda _: 0.5, mark_interval_s=3600)


class Image:
    """A running store, copied as a crash would leave it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "image"
        self.messages: Messages = {}
        self.ends: dict[int, tuple[int, int]] = {}
        """Where a record ends -> its queue and queue offset, of records after the checkpoint."""
        with store_of(config_of(folder / "store")) as store:
            self._append(store, 40, 100)
        with store_of(config_of(folder / "store")) as store:
            self.safe = store.log.max_offset
            while store.log.max_offset < self.safe + TAIL:
                self._append(store, 1, random.Random(store.log.max_offset).randrange(1, 900))
            self._append(store, 16, 12)
            self.end = store.log.max_offset
            assert len(store.log.segments) == 1
            copy_running(folder / "store", self.folder)
        log = self.folder / "commitlog" / f"{0:020d}"
        self.log = log.relative_to(self.folder)
        self.bytes = log.read_bytes()

    def _append(self, store: MessageStore, count: int, size: int) -> None:
        for _ in range(count):
            number = len(self.messages)
            body = f"{number:06d}".encode() + random.Random(number).randbytes(size)
            record = Record(
                topic=TOPIC,
                body=body,
                properties={"KEYS": f"k{number}"},
                queue_id=number % QUEUES,
            )
            put = store.put(record)
            assert put.status is PutStatus.PUT_OK
            self.messages[record.queue_id, put.queue_offset] = body
            self.ends[put.end] = (record.queue_id, put.queue_offset)

    def whole_below(self, end: int) -> set[tuple[int, int]]:
        """Messages whose record ends at `end` or before it."""
        return {message for at, message in self.ends.items() if at <= end}


@pytest.fixture(scope="module")
def image(image_folder: Path) -> Image:
    return Image(image_folder / "tail")


@contextmanager
def opened(image: Image, folder: Path, log: bytes) -> Iterator[MessageStore]:
    """The image with this log, recovered."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(image.folder, folder)
    (folder / image.log).write_bytes(log)
    with store_of(config_of(folder)) as store:
        yield store


def served(store: MessageStore) -> Messages:
    """Everything that pulls return."""
    found: Messages = {}
    for queue_id in range(QUEUES):
        offset = store.min_offset(TOPIC, queue_id)
        while offset < store.max_offset(TOPIC, queue_id):
            got = store.get(TOPIC, queue_id, offset, 32)
            if got.status is GetStatus.FOUND:
                for record in decode_records(b"".join(got.buffers)):
                    found[queue_id, record.queue_offset] = record.body
            assert got.next_offset > offset
            offset = got.next_offset
    return found


def accepts_more(store: MessageStore) -> None:
    """Check that the store accepts, keeps and serves a message after the recovered ones."""
    put = store.put(Record(topic=TOPIC, body=b"after the crash", queue_id=0))
    assert put.status is PutStatus.PUT_OK
    assert store.wait_durable(put.end, 10)
    (record,) = decode_records(b"".join(store.get(TOPIC, 0, put.queue_offset, 1).buffers))
    assert record.body == b"after the crash"


def assert_consistent(image: Image, folder: Path, log: bytes, whole: set[tuple[int, int]]) -> None:
    """Check that the store serves exactly the complete messages, unchanged, and accepts new
    ones."""
    with opened(image, folder, log) as store:
        found = served(store)
        assert found == {message: image.messages[message] for message in whole}
        accepts_more(store)
    assert StoreExaminer(str(folder)).verify().problems == []


def places(image: Image, kill_rounds: int) -> list[int]:
    """Every byte of the tail in a long campaign, else some, beginning with the last record's."""
    every = range(image.safe, image.end + 1)
    if kill_rounds >= 1000:
        return list(every)
    last = range(image.end - 20, image.end + 1)
    return sorted({*last, *random.Random(4).sample(every, kill_rounds // 2)})


@pytest.mark.crash
def test_a_log_truncated_at_any_byte_keeps_its_complete_records(
    image: Image, image_folder: Path, kill_rounds: int, campaign: Count
) -> None:
    for end in places(image, kill_rounds):
        log = image.bytes[:end].ljust(SEGMENT, b"\0")
        # A record whose last bytes are zeros anyway may lose some of them and still be whole.
        whole_end = end
        while whole_end < image.end and image.bytes[whole_end] == 0:
            whole_end += 1
        assert_consistent(image, image_folder / "cut", log, image.whole_below(whole_end))
        campaign("R4 tail cut at a byte", 1)


@pytest.mark.crash
@pytest.mark.parametrize("sector", SECTORS)
def test_a_sector_that_never_reached_the_disk_ends_the_log(
    image: Image, image_folder: Path, kill_rounds: int, sector: int, campaign: Count
) -> None:
    dice = random.Random(sector)
    first = image.safe // sector + 1
    sectors = range(first, (image.end - 1) // sector + 1)
    for _ in range(kill_rounds):
        log = bytearray(image.bytes)
        lost = dice.sample(sectors, dice.randint(1, min(4, len(sectors))))
        for number in lost:
            log[number * sector : (number + 1) * sector] = bytes(sector)
        kept = image.whole_below(min(lost) * sector)
        assert_bodies_are_right(image, image_folder / "torn", bytes(log), kept)
    campaign(f"R3 sectors of {sector} B lost", kill_rounds)


def assert_bodies_are_right(
    image: Image, folder: Path, log: bytes, kept: set[tuple[int, int]]
) -> None:
    """Check that the remaining messages are served, and none with changed content.

    A record's CRC covers its body alone: a flipped bit of its queue id or offset may place it
    elsewhere, as it would with the reference.
    """
    given = set(image.messages.values())
    with opened(image, folder, log) as store:
        found = served(store)
        for message in kept:
            assert found[message] == image.messages[message]
        assert given.issuperset(found.values())
        accepts_more(store)


@pytest.mark.crash
def test_a_flipped_bit_in_the_last_messages_never_gives_a_wrong_body(
    image: Image, image_folder: Path, kill_rounds: int, campaign: Count
) -> None:
    ends = sorted(image.ends)[-17:]
    bits = [(byte, bit) for byte in range(ends[0], image.end) for bit in range(8)]
    if kill_rounds < 1000:
        bits = random.Random(16).sample(bits, kill_rounds)
    for byte, bit in bits:
        log = bytearray(image.bytes)
        log[byte] ^= 1 << bit
        kept = image.whole_below(max(end for end in ends if end <= byte))
        assert_bodies_are_right(image, image_folder / "flip", bytes(log), kept)
        campaign("R5 bit of the last 16 messages flipped", 1)


@pytest.mark.crash
def test_bytes_after_the_cut_never_return(
    image: Image, image_folder: Path, kill_rounds: int, campaign: Count
) -> None:
    """A torn record ends the log; whole records lie after it. A shorter message written over the
    torn one must not let a second recovery run into those."""
    dice = random.Random(10666)
    folder = image_folder / "stale"
    ends = sorted(end for end in image.ends if end > image.safe)
    for _ in range(max(1, kill_rounds // 5)):
        torn = dice.randrange(len(ends) - 17)
        log = bytearray(image.bytes)
        log[ends[torn] - 40] ^= 0xFF
        with opened(image, folder, bytes(log)) as store:
            accepts_more(store)
            end = store.log.max_offset
            again = image_folder / "again"
            shutil.rmtree(again, ignore_errors=True)
            copy_running(folder, again)
        with store_of(config_of(again)) as store:
            assert store.log.max_offset == end
        assert not any((again / image.log).read_bytes()[end:])
    campaign("R6 stale tail", max(1, kill_rounds // 5))
