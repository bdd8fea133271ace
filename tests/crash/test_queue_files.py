"""Damage to consume queues: flipped bits, truncated files, holes, swapped names.

An image is a store after a clean stop. Whatever a queue's files contain, the store serves every
message of the log at its offset and nothing else, and the next message gets the next offset.
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
from congreve.records.record import decode_records, string_hash

ENTRY = 20
PAGE = 4096
PER_FILE = 500
COUNT = 1200
"""Messages of each queue: two whole files and a part of a third one."""
QUEUES = [("A", 0), ("A", 1), ("B", 0)]
"""In lockstep and of one size: a flipped bit may lead to a record of another queue or topic."""

Count = Callable[[str, int], None]
Messages = dict[tuple[str, int, int], bytes]


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        io_backend="mmap",
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=ENTRY * PER_FILE,
        message_index_enable=False,
        flush_consume_queue_thorough_interval=3_600_000,
        flush_interval_consume_queue=3_600_000,
    )


def store_of(root: Path) -> MessageStore:
    """A full disk of the machine must not end the test."""
    return MessageStore(config_of(root), disk_use=lambda _: 0.5)


class Image:
    """A store of three queues, as a clean stop left it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: Messages = {}
        with store_of(folder) as store:
            for number in range(COUNT):
                for topic, queue_id in QUEUES:
                    body = f"{topic}{queue_id} {number:06d}".encode().ljust(157)
                    put = store.put(
                        Record(
                            topic=topic,
                            queue_id=queue_id,
                            body=body,
                            properties={"TAGS": f"t{number % 10}"},
                        )
                    )
                    assert put.end - put.physical_offset == 256
                    self.messages[topic, queue_id, put.queue_offset] = body

    def queue(self, topic: str, queue_id: int, file: int) -> Path:
        return Path("consumequeue", topic, str(queue_id), f"{file * ENTRY * PER_FILE:020d}")


@pytest.fixture(scope="module")
def image(image_folder: Path) -> Image:
    return Image(image_folder / "queues")


@pytest.fixture
def copy(image: Image, image_folder: Path) -> Path:
    folder = image_folder / "queues-copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(image.folder, folder)
    return folder


def served(store: MessageStore, tag: str | None = None) -> Messages:
    """Everything that pulls return, of one tag or all."""
    found: Messages = {}
    codes = None if tag is None else frozenset({string_hash(tag)})
    for topic, queue_id in QUEUES:
        offset = store.min_offset(topic, queue_id)
        while offset < store.max_offset(topic, queue_id):
            got = store.get(topic, queue_id, offset, 32, codes)
            if got.status is GetStatus.FOUND:
                for record in decode_records(b"".join(got.buffers)):
                    assert (record.topic, record.queue_id) == (topic, queue_id)
                    found[topic, queue_id, record.queue_offset] = record.body
            assert got.next_offset > offset
            offset = got.next_offset
    return found


def check_all(image: Image, folder: Path, *, tags: bool = True) -> None:
    """All messages are served, the next offsets are right, and the store stays sound."""
    with store_of(folder) as store:
        for topic, queue_id in QUEUES:
            assert store.min_offset(topic, queue_id) == 0
            assert store.max_offset(topic, queue_id) == COUNT
        if tags:
            wanted = {key: body for key, body in image.messages.items() if key[2] % 10 == 3}
            assert served(store, "t3") == wanted
        assert served(store) == image.messages
        for topic, queue_id in QUEUES:
            put = store.put(Record(topic=topic, queue_id=queue_id, body=b"next"))
            assert (put.status, put.queue_offset) == (PutStatus.PUT_OK, COUNT)
    assert StoreExaminer(str(folder)).verify().problems == []


@contextmanager
def damaged(folder: Path, path: Path, data: bytes) -> Iterator[None]:
    """Replace the content of one file of the image; undo the changes of the store."""
    files = {
        found: found.read_bytes()
        for found in folder.rglob("*")
        if found.is_file() and found.parent.name != "commitlog"
    }
    log = next((folder / "commitlog").iterdir())
    end = len(log.read_bytes().rstrip(b"\0"))
    (folder / path).write_bytes(data)
    yield
    for found in folder.rglob("*"):
        if found.is_file() and found.parent.name != "commitlog" and found not in files:
            found.unlink()
    for found, whole in files.items():
        if not found.exists() or found.read_bytes() != whole:
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_bytes(whole)
    with log.open("r+b") as file:
        file.seek(end)
        file.write(bytes(PAGE))


def bits_of_a_page(data: bytes, first: int, kill_rounds: int) -> list[int]:
    """Every bit of a page, or some of each byte of an entry."""
    if kill_rounds >= 1000:
        return list(range(first * 8, (first + PAGE) * 8))
    dice = random.Random(2)
    entries = [dice.randrange(first // ENTRY + 1, (first + PAGE) // ENTRY - 1) for _ in range(40)]
    places = [
        (entry * ENTRY + i % ENTRY) * 8 + dice.randrange(8) for i, entry in enumerate(entries)
    ]
    return places


@pytest.mark.crash
@pytest.mark.parametrize("file", [0, 2])
def test_a_flipped_bit_of_a_queue_hides_repeats_and_moves_no_message(
    image: Image, copy: Path, kill_rounds: int, campaign: Count, file: int
) -> None:
    """Of a page in a whole file, and of the last entries with the zeros after them."""
    path = image.queue("A", 0, file)
    whole = (copy / path).read_bytes()
    first = PAGE if file == 0 else 200 * ENTRY - PAGE // 2
    for bit in bits_of_a_page(whole, first, kill_rounds):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with damaged(copy, path, bytes(data)):
            check_all(image, copy, tags=kill_rounds < 1000 or bit % 16 == 0)
        campaign("bit of a page of queue entries flipped", 1)


@pytest.mark.crash
@pytest.mark.parametrize("file", [0, 2])
def test_a_queue_file_truncated_at_any_byte_is_repaired(
    image: Image, copy: Path, kill_rounds: int, campaign: Count, file: int
) -> None:
    path = image.queue("A", 0, file)
    whole = (copy / path).read_bytes()
    ends: list[int] = list(range(PAGE, 2 * PAGE))
    if kill_rounds < 1000:
        ends = [0, 1, len(whole) // 2, len(whole) - 1, *random.Random(3).sample(ends, 6)]
    for end in ends:
        with damaged(copy, path, whole[:end]):
            check_all(image, copy, tags=kill_rounds < 1000)
        campaign("queue file cut at a byte of a page", 1)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_one_flipped_bit_of_an_entry_does_not_hide_the_rest_of_the_queue(
    image: Image, copy: Path, has_checkpoint: bool
) -> None:
    """The high byte of entry 100's physical offset: there is no record, and none after it."""
    path = copy / image.queue("A", 0, 0)
    data = bytearray(path.read_bytes())
    data[100 * ENTRY] ^= 0x40
    path.write_bytes(data)
    if not has_checkpoint:
        shutil.rmtree(copy / "congreve")
    check_all(image, copy)


def hole(folder: Path, image: Image) -> None:
    path = folder / image.queue("A", 0, 0)
    data = bytearray(path.read_bytes())
    data[PAGE : 2 * PAGE] = bytes(PAGE)
    path.write_bytes(data)


def only_zeros(folder: Path, image: Image) -> None:
    path = folder / image.queue("A", 0, 2)
    path.write_bytes(bytes(len(path.read_bytes())))


def swapped_queues(folder: Path, image: Image) -> None:
    one, other = folder / "consumequeue/A/0", folder / "consumequeue/A/1"
    one.rename(folder / "swap")
    other.rename(one)
    (folder / "swap").rename(other)


def swapped_files(folder: Path, image: Image) -> None:
    one, other = folder / image.queue("A", 0, 0), folder / image.queue("A", 0, 1)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def renamed_queue(folder: Path, image: Image) -> None:
    (folder / "consumequeue/A/0").rename(folder / "consumequeue/A/7")


def renamed_topic(folder: Path, image: Image) -> None:
    (folder / "consumequeue/A").rename(folder / "consumequeue/C")


def lost_file(folder: Path, image: Image) -> None:
    (folder / image.queue("A", 0, 1)).unlink()


def longer_file(folder: Path, image: Image) -> None:
    with (folder / image.queue("A", 0, 1)).open("ab") as file:
        file.write(b"x")


def foreign_files(folder: Path, image: Image) -> None:
    queue = folder / "consumequeue/A/0"
    (queue / "notes.txt").write_text("x")
    (queue / f"{3 * ENTRY * PER_FILE:020d}").write_bytes(random.Random(1).randbytes(10_000))
    (queue / f"{10**15:020d}").write_bytes(b"\1" * ENTRY * PER_FILE)
    (queue / "00000000000000000007").write_bytes(b"\1")
    for name in ("00", "x", "99999999999"):
        (folder / "consumequeue/A" / name).mkdir()


def no_checkpoint_and_a_hole(folder: Path, image: Image) -> None:
    hole(folder, image)
    shutil.rmtree(folder / "congreve")


def edited_checkpoint(folder: Path, image: Image) -> None:
    path = folder / "congreve/queues.json"
    path.write_text(path.read_text().replace("1200", "1000"))
    path.with_name("queues.json.bak").unlink(missing_ok=True)


def wrong_times(folder: Path, image: Image) -> None:
    (folder / "checkpoint").write_bytes(b"\x7f" * 4096)
    (folder / "abort").touch()


HARMS = [
    *(hole, only_zeros, swapped_queues, swapped_files, renamed_queue, renamed_topic, lost_file),
    *(longer_file, foreign_files, no_checkpoint_and_a_hole, edited_checkpoint, wrong_times),
]


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_no_message_is_lost_when_queue_files_are_damaged(
    image: Image, copy: Path, harm: Callable[[Path, Image], None], unclean: bool
) -> None:
    if unclean:
        (copy / "abort").touch()
    harm(copy, image)
    check_all(image, copy)


def test_a_queue_is_repaired_while_it_is_read(image: Image, copy: Path) -> None:
    """The damage occurs while the store runs: a pull finds it, not the start."""
    with store_of(copy) as store:
        path = copy / image.queue("A", 0, 0)
        with path.open("r+b") as file:
            file.seek(PAGE)
            file.write(bytes(PAGE))
            file.seek(0)
            file.write(b"\x40")
        assert served(store) == image.messages
    check_all(image, copy)


def test_a_kill_keeps_the_messages_since_the_checkpoint(image: Image, copy: Path) -> None:
    """Entries of a queue after its checkpoint are read from the log, not from its files."""
    killed = copy.with_name("queues-killed")
    shutil.rmtree(killed, ignore_errors=True)
    with store_of(copy) as store:
        for number in range(100):
            store.put(Record(topic="A", body=b"late %d" % number))
        copy_running(copy, killed)
    path = killed / image.queue("A", 0, 2)
    data = bytearray(path.read_bytes())
    data[210 * ENTRY] ^= 0x40
    path.write_bytes(data)
    with store_of(killed) as store:
        assert store.max_offset("A", 0) == COUNT + 100
        found = served(store)
        assert len(found) == len(image.messages) + 100
        assert found["A", 0, COUNT + 99] == b"late 99"
    assert StoreExaminer(str(killed)).verify().problems == []
