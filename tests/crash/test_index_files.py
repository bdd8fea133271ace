"""Damage to the key index: flipped bits, truncated files.

After a clean stop a start compares the files with their checksums, and rebuilds them from the log
beginning with the first that differs: a query by key finds every message again, and no other.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.records.record import decode_record

PAGE = 4096
SLOTS = 100
HEAD = 40 + SLOTS * 4
CAPACITY = 300
COUNT = 700
"""Messages of one key each: two full files and a part of a third."""

Count = Callable[[str, int], None]


def store_of(root: Path) -> MessageStore:
    config = StoreConfig(
        root_dir=str(root),
        io_backend="mmap",
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=256 << 10,
        max_hash_slot_num=SLOTS,
        max_index_num=CAPACITY,
    )
    return MessageStore(config, disk_use=lambda _: 0.5)


@pytest.fixture(scope="module")
def image(image_folder: Path) -> Path:
    folder = image_folder / "index"
    with store_of(folder) as store:
        for number in range(COUNT):
            keys = {"KEYS": f"k{number}"}
            store.put(Record(topic="T", body=b"%d" % number, properties=keys))
    assert len(list((folder / "index").iterdir())) == 3
    return folder


@pytest.fixture
def copy(image: Path, image_folder: Path) -> Path:
    folder = image_folder / "index-copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(image, folder)
    return folder


def check_all(folder: Path, keys: list[int]) -> None:
    """Each key finds its message and no other, and new ones are found with them."""
    with store_of(folder) as store:
        put = store.put(Record(topic="T", body=b"new", properties={"KEYS": "new"}))
        assert store.index is not None
        store.index.stop()
        assert store.index.indexed_offset == put.end
        for key, body in [("new", b"new"), *((f"k{n}", b"%d" % n) for n in keys)]:
            found = store.query("T", key, 32, 0, 1 << 62).buffers
            assert [decode_record(record).body for record in found] == [body]


def restore(image: Path, folder: Path) -> None:
    for name in ("index", "congreve", "consumequeue"):
        shutil.rmtree(folder / name)
        shutil.copytree(image / name, folder / name)
    for log in (image / "commitlog").iterdir():
        shutil.copy(log, folder / "commitlog" / log.name)


@pytest.mark.crash
@pytest.mark.parametrize("file", [0, 2])
def test_a_flipped_bit_of_the_index_neither_hides_nor_adds_a_message(
    image: Path, copy: Path, kill_rounds: int, campaign: Count, file: int
) -> None:
    """The bits are those of the page that holds header, slots and the first entries."""
    path = sorted((copy / "index").iterdir())[file]
    whole = path.read_bytes()
    bits = range(PAGE * 8)
    if kill_rounds < 1000:
        dice = random.Random(5)
        header, slots, entries = range(40 * 8), range(40 * 8, HEAD * 8), range(HEAD * 8, PAGE * 8)
        chosen = [*dice.sample(header, 12), *dice.sample(slots, 8), *dice.sample(entries, 12)]
    else:
        chosen = list(bits)
    dice = random.Random(6)
    for bit in chosen:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        # Entries of this page are of the file's first messages.
        first = file * (CAPACITY - 1)
        check_all(copy, [*range(first, min(first + 99, COUNT)), *dice.sample(range(COUNT), 20)])
        restore(image, copy)
        campaign("bit of a page of the index flipped", 1)


@pytest.mark.crash
@pytest.mark.parametrize("file", [0, 2])
def test_an_index_file_truncated_at_any_byte_is_rebuilt(
    image: Path, copy: Path, kill_rounds: int, campaign: Count, file: int
) -> None:
    path = sorted((copy / "index").iterdir())[file]
    whole = path.read_bytes()
    ends = list(range(PAGE))
    if kill_rounds < 1000:
        ends = [0, 1, len(whole) - 1, *random.Random(7).sample(ends, 5)]
    for end in ends:
        path.write_bytes(whole[:end])
        check_all(copy, list(range(0, COUNT, 7)))
        restore(image, copy)
        campaign("index file cut at a byte of a page", 1)


@pytest.mark.parametrize("is_unclean", [False, True])
@pytest.mark.parametrize("file", [0, 1, 2])
def test_a_lost_index_file_is_rebuilt(copy: Path, file: int, is_unclean: bool) -> None:
    sorted((copy / "index").iterdir())[file].unlink()
    if is_unclean:
        (copy / "abort").touch()
    check_all(copy, list(range(COUNT)))


def test_an_index_header_with_a_flipped_bit_is_not_used(image: Path, copy: Path) -> None:
    path = copy / "congreve/index.json"
    whole = path.read_bytes()
    for bit in random.Random(8).sample(range(len(whole) * 8), 30):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        check_all(copy, list(range(0, COUNT, 7)))
        restore(image, copy)
