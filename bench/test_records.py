"""Costs of one record: CRC, hash, encoding, appending (run: pytest bench/test_records.py)."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from congreve.base.clock import Clock
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.checksum import crc32_by_folding, crc32_by_tables
from congreve.records.message.message import Record
from congreve.records.record import (
    crc32,
    decode_records,
    encode_record,
    index_hash,
    string_hash,
)

BATCH = 32
PROPERTIES = {"UNIQ_KEY": "7F0000010001", "TAGS": "TagA", "CLUSTER": "DefaultCluster"}
SIZES = pytest.mark.parametrize("size", [128, 1024])


@pytest.mark.parametrize("size", [128, 1024, 65536])
@pytest.mark.parametrize(
    "way",
    [crc32, crc32_by_folding, crc32_by_tables, zlib.crc32],
    ids=["best", "folding", "tables", "zlib"],
)
def test_crc(benchmark: BenchmarkFixture, way: object, size: int) -> None:
    benchmark.group = f"crc {size}"
    benchmark(way, bytes(size))


def test_string_hash(benchmark: BenchmarkFixture) -> None:
    assert benchmark(string_hash, b"TagA") == 2598919


def test_index_hash(benchmark: BenchmarkFixture) -> None:
    assert benchmark(index_hash, b"TopicTest", b"7F00000100002A9F00000000001D2687") >= 0


@SIZES
def test_encode_record(benchmark: BenchmarkFixture, size: int) -> None:
    benchmark(encode_record, Record(topic="TopicTest", body=bytes(size), properties=PROPERTIES))


def test_decode_records_of_a_pull(benchmark: BenchmarkFixture) -> None:
    record = Record(topic="TopicTest", body=bytes(128), properties=PROPERTIES)
    assert len(benchmark(decode_records, encode_record(record) * 32)) == 32


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    backend = MmapBackend()
    log = CommitLog(str(tmp_path / "commitlog"), 256 << 20, backend, Clock())
    log.load()
    backend.start(0)
    log.next_segment()
    yield log
    backend.stop()
    log.close()


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    return ConsumeQueue(str(tmp_path / "queue"), "TopicTest", 0)


@SIZES
def test_append_record(
    benchmark: BenchmarkFixture, log: CommitLog, queue: ConsumeQueue, size: int
) -> None:
    record = Record(topic="TopicTest", body=bytes(size), properties=PROPERTIES)
    benchmark.pedantic(log.append_record, (record, queue), rounds=20000, warmup_rounds=100)


@SIZES
def test_append_batch_of_32(
    benchmark: BenchmarkFixture, log: CommitLog, queue: ConsumeQueue, size: int
) -> None:
    properties = b"TAGS\1TagA\2UNIQ_KEY\0017F0000010001"
    element = (
        struct.pack(">iiiii", 22 + size + len(properties), 0, 0, 0, size)
        + bytes(size)
        + struct.pack(">h", len(properties))
        + properties
    )
    record = Record(topic="TopicTest", body=b"", properties={"CLUSTER": "DefaultCluster"})
    benchmark.extra_info["records"] = BATCH
    benchmark.pedantic(
        log.append_records, (record, element * BATCH, queue), rounds=5000, warmup_rounds=10
    )
