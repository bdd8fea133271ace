"""What queues, pulls and the key index cost (run: pytest bench/test_queues.py)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from congreve.base.clock import Clock
from congreve.engine.config import StoreConfig
from congreve.engine.index.index import KeyIndex
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.read.reader import Reader
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import string_hash

HOST = ("127.0.0.1", 10911)
QUEUES = 1_000
ENTRIES = 100_000
MESSAGES = 100_000


def filled(log: CommitLog, queue: ConsumeQueue, count: int, size: int = 128) -> None:
    for i in range(count):
        properties = {"UNIQ_KEY": f"7F00000100002A9F{i:016X}", "KEYS": f"order-{i}"}
        if i % 1000 == 999:
            properties["TAGS"] = "rare"
        log.append_record(
            Record(
                topic="TopicTest",
                body=bytes(size),
                properties=properties,
                born_host=HOST,
                store_host=HOST,
            ),
            queue,
        )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    backend = MmapBackend()
    log = CommitLog(str(tmp_path / "commitlog"), 256 << 20, backend, Clock())
    log.load()
    backend.start(0)
    yield log
    backend.stop()
    log.close()


def test_append_entries(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """A round appends 1,000 entries, each by a Python call."""
    queue = ConsumeQueue(str(tmp_path / "T/0"), "T", 0)

    def append() -> None:
        first = queue.max
        for i in range(first, first + 1_000):
            queue.append(i, i * 200, 200, i)

    benchmark(append)


def test_find_the_end_of_a_queue(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Recovery's scan of one queue of 100,000 entries."""
    queue = ConsumeQueue(str(tmp_path / "T/0"), "T", 0)
    for i in range(ENTRIES):
        queue.append(i, i * 200, 200, i)
    queue.close()
    benchmark(queue.load)
    assert queue.max == ENTRIES


def test_make_queues(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Create 1,000 queues by their first entries."""

    def make() -> None:
        table = QueueTable(tmp_path)
        for i in range(QUEUES):
            table.get(f"topic{i // 8}", i % 8).append(0, i * 200, 200, i)

    benchmark.pedantic(make, rounds=1)


def test_load_queues(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Load 1,000 existing queues."""
    table = QueueTable(tmp_path)
    for i in range(QUEUES):
        table.get(f"topic{i // 8}", i % 8).append(0, i * 200, 200, i)
    table.close()
    benchmark(lambda: QueueTable(tmp_path).load())


@pytest.mark.parametrize("size", [128, 1024, 8192])
@pytest.mark.parametrize("queues", [1, 4])
def test_pull_of_32(
    benchmark: BenchmarkFixture, log: CommitLog, tmp_path: Path, queues: int, size: int
) -> None:
    """Pull from one queue with contiguous records, and from one of four interleaved queues."""
    table = QueueTable(tmp_path / "consumequeue")
    for _ in range(64):
        for queue_id in range(queues):
            filled(log, table.get("TopicTest", queue_id), 1, size)
    reader = Reader(StoreConfig(root_dir=str(tmp_path)), log)
    assert benchmark(reader.get, table.get("TopicTest", 0), 0, 32).count > 0


def test_pull_of_a_rare_tag(benchmark: BenchmarkFixture, log: CommitLog, tmp_path: Path) -> None:
    """Pull 32 messages, one in a thousand."""
    queue = QueueTable(tmp_path / "consumequeue").get("TopicTest", 0)
    filled(log, queue, 32_000, 16)
    reader = Reader(StoreConfig(root_dir=str(tmp_path)), log)
    tags = frozenset({string_hash("rare")})
    assert benchmark(reader.get, queue, 0, 32, tags).count == 32


def test_index_messages(benchmark: BenchmarkFixture, log: CommitLog, tmp_path: Path) -> None:
    """Index 100,000 messages of two keys in the index's own thread."""
    queue = QueueTable(tmp_path / "consumequeue").get("TopicTest", 0)
    filled(log, queue, MESSAGES)
    index = KeyIndex(StoreConfig(root_dir=str(tmp_path)), log)

    def build() -> None:
        index.start(clean=True)
        while index.indexed_offset < log.max_offset:
            time.sleep(0.0005)

    benchmark.pedantic(build, rounds=1)
    index.stop()


def test_query_by_key(benchmark: BenchmarkFixture, log: CommitLog, tmp_path: Path) -> None:
    queue = QueueTable(tmp_path / "consumequeue").get("TopicTest", 0)
    filled(log, queue, 10_000)
    index = KeyIndex(StoreConfig(root_dir=str(tmp_path)), log)
    index.start(clean=True)
    while index.indexed_offset < log.max_offset:
        time.sleep(0.0005)
    found = benchmark(index.query, "TopicTest", "order-7", 32, 0, 1 << 62)
    index.stop()
    assert len(found.buffers) == 1
