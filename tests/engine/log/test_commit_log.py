"""The commit log: Java's bytes, and the rules at the end of a segment."""

import ctypes
import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.engine.errors import MessageIllegalError, StoreError
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.io_backends.backend import Segment
from congreve.io_backends.errors import BackendError
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/append_vectors.json").read_text()
)
SEGMENT = 4096
FIXED = 91
NOW_MS = 1700000000456
BLANK_MAGIC = -875286124
WAIT_S = 20.0


class Bench:
    """A log with one queue in a folder of its own."""

    def __init__(
        self, folder: Path, segment_size: int = SEGMENT, backend: MmapBackend | None = None
    ) -> None:
        self.folder = folder
        self.backend = backend or MmapBackend()
        self.log = CommitLog(
            str(folder / "commitlog"), segment_size, self.backend, ManualClock(NOW_MS)
        )
        self.queue = ConsumeQueue(str(folder / "queue"), "T", 0)

    def open(self, end: int | None = None) -> "Bench":
        self.log.load()
        if end is not None:
            self.log.set_end(end)
        self.backend.start(self.log.max_offset)
        return self

    def close(self) -> None:
        self.backend.stop()
        self.log.close()

    def append(self, size: int = FIXED + 1, **fields: Any) -> int:
        """Append a record of exactly `size` bytes."""
        record = Record(topic="T", body=b"x" * (size - FIXED - 1), **fields)
        return self.log.append_record(record, self.queue).physical_offset

    def file(self, base: int) -> bytes:
        return (self.folder / "commitlog" / f"{base:020d}").read_bytes()

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder / "commitlog"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path).open()
    yield bench
    bench.close()


def element(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def test_an_appended_record_equals_what_the_codec_writes(bench: Bench) -> None:
    record = Record(
        topic="TopicTest",
        body=b"Hello",
        properties={"TAGS": "TagA", "KEYS": "k"},
        queue_id=3,
        flag=7,
        born_timestamp=5,
        born_host=("2001:db8::10", 54321),
        store_host=("10.0.0.7", 10911),
        reconsume_times=2,
    )
    bench.append(500)
    done = bench.log.append_record(record, bench.queue)
    assert done == (500, 500 + len(encode_record(record)), 1, NOW_MS, 1)
    record.physical_offset, record.queue_offset, record.store_timestamp = 500, 1, NOW_MS
    assert bench.file(0)[500 : done.end] == encode_record(record)
    assert bench.log.read(500) == encode_record(record)
    assert bench.queue[1] == (500, done.end - 500, 2598919)
    assert bench.log.last_store_timestamp == NOW_MS


def test_a_batch_equals_what_java_writes_byte_for_byte(bench: Bench) -> None:
    vector = VECTORS["batch"]
    bench.close()
    big = Bench(bench.folder / "big", 1 << 16).open()
    for _ in range(6):
        big.append(100)
    big.append(vector["first_phys_offset"] - 600)
    queue = ConsumeQueue(str(bench.folder / "other"), vector["topic"], vector["queueId"])
    queue.start_at(vector["first_queue_offset"])
    record = Record(
        topic=vector["topic"],
        body=b"",
        properties={"CLUSTER": "DefaultCluster"},
        queue_id=vector["queueId"],
        born_timestamp=vector["bornTs"],
        born_host=tuple(vector["born"]),
        store_host=tuple(vector["store"]),
    )
    done = big.log.append_records(record, bytes.fromhex(vector["wire_body_hex"]), queue)
    assert big.file(0)[5000 : done.end].hex() == vector["records_hex"]
    assert (done.queue_offset, done.records) == (7, 3)
    entries = b"".join(struct.pack(">qiq", *queue[offset]) for offset in (7, 8, 9))
    assert entries.hex() == vector["cq_hex"]
    big.close()


@pytest.mark.parametrize("vector", VECTORS["append_fits"], ids=lambda v: f"{v['max_blank']}")
def test_a_record_needs_space_for_a_blank_after_it(bench: Bench, vector: dict[str, Any]) -> None:
    # one byte of topic is the least: both numbers grow by one
    size, left = vector["msg_len"] + 1, vector["max_blank"] + 1
    bench.append(SEGMENT - left)
    at = bench.append(size)
    assert at == (SEGMENT - left if vector["fits"] else SEGMENT)


@pytest.mark.parametrize("vector", VECTORS["blank_record"][:3], ids=lambda v: f"{v['max_blank']}")
def test_a_segment_ends_with_a_blank_that_gives_the_remaining_size(
    bench: Bench, vector: dict[str, Any]
) -> None:
    left = vector["max_blank"]
    bench.append(SEGMENT - left)
    assert bench.append(200) == SEGMENT
    assert bench.file(0)[-left:].hex() == vector["first8_hex"] + "00" * (left - 8)
    assert decode_record(bench.file(SEGMENT)).physical_offset == SEGMENT
    assert bench.names()[:2] == ["0" * 20, f"{SEGMENT:020d}"]  # a third may be prepared


def test_a_record_larger_than_a_segment_wastes_no_segment(bench: Bench) -> None:  # D1
    bench.append(100)
    with pytest.raises(MessageIllegalError, match="4096"):
        bench.append(SEGMENT - 7)
    assert bench.log.max_offset == 100
    assert bench.queue.max == 1
    assert bench.append(SEGMENT - 8) == SEGMENT


@pytest.mark.parametrize(
    "fields",
    [{"topic": "t" * 128}, {"topic": ""}, {"properties": {"k": "v" * 32767}}],
    ids=["topic", "no topic", "properties"],
)
def test_lengths_over_the_limits_of_the_format_are_refused(
    bench: Bench, fields: dict[str, Any]
) -> None:
    with pytest.raises(MessageIllegalError):
        bench.log.append_record(Record(**{"topic": "T", "body": b"", **fields}), bench.queue)
    assert bench.log.max_offset == 0


@pytest.mark.parametrize(("kind", "entries"), [(0, 1), (8, 1), (4, 0), (12, 0)])
def test_half_and_rolled_back_messages_get_no_queue_offset(
    bench: Bench, kind: int, entries: int
) -> None:
    bench.append()
    at = bench.append(sys_flag=kind)
    stored = bench.log.read(at)
    assert stored is not None
    assert decode_record(stored).queue_offset == entries
    assert bench.queue.max == 1 + entries


def test_the_entrys_code_can_be_given(bench: Bench) -> None:
    bench.log.append_record(Record(topic="T", body=b""), bench.queue, tags_code=NOW_MS + 1000)
    assert bench.queue[0][2] == NOW_MS + 1000


def test_a_batch_that_does_not_fit_moves_to_the_next_segment_as_a_whole(bench: Bench) -> None:
    bench.append(SEGMENT - 500)
    done = bench.log.append_records(Record(topic="T", body=b""), element(b"x") * 6, bench.queue)
    assert done.physical_offset == SEGMENT
    assert struct.unpack_from(">ii", bench.file(0), SEGMENT - 500) == (500, BLANK_MAGIC)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 21,
        element(b"x")[:-1],
        element(b"x") + b"\0",
        struct.pack(">iiiii", 23, 0, 0, 0, -1) + b"x\0\0",
        struct.pack(">iiiii", 23, 0, 0, 0, 2) + b"x\0\0",
        struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x\0\1",
        struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x\xff\xff",
        struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, 1) + b"x\0\0",
        struct.pack(">iiiii", -23, 0, 0, 0, 1) + b"x\0\0",
    ],
)
def test_no_part_of_a_malformed_batch_is_written(bench: Bench, body: bytes) -> None:
    record = Record(topic="T", body=b"")
    with pytest.raises(MessageIllegalError):
        bench.log.append_records(record, element(b"good") + body if body else b"", bench.queue)
    assert bench.log.max_offset == bench.queue.max == 0


def test_a_batch_in_a_transaction_is_refused(bench: Bench) -> None:
    with pytest.raises(MessageIllegalError):
        bench.log.append_records(
            Record(topic="T", body=b"", sys_flag=4), element(b"x"), bench.queue
        )


def test_a_batch_larger_than_a_segment_wastes_no_segment(bench: Bench) -> None:  # D1
    with pytest.raises(MessageIllegalError, match="4096"):
        bench.log.append_records(Record(topic="T", body=b""), element(b"x" * 1000) * 4, bench.queue)
    assert bench.log.max_offset == 0


def test_a_batch_crosses_the_files_of_its_queue(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 1 << 16).open()
    queue = ConsumeQueue(str(tmp_path / "small"), "T", 1, 60)
    done = bench.log.append_records(Record(topic="T", body=b""), element(b"x") * 32, queue)
    assert (done.records, queue.max) == (32, 32)
    for offset in range(32):
        stored = bench.log.read(queue[offset][0])
        assert stored is not None
        assert decode_record(stored).queue_offset == offset
    bench.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=80))
def test_arbitrary_bytes_as_a_batch_are_refused_or_read_back(bench: Bench, raw: bytes) -> None:
    before = bench.log.max_offset
    try:
        done = bench.log.append_records(Record(topic="T", body=b""), raw, bench.queue)
    except MessageIllegalError:
        assert bench.log.max_offset == before
        return
    assert bench.log.read(done.physical_offset) is not None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(FIXED + 1, SEGMENT - 8), max_size=12))
def test_an_appended_record_is_read_at_its_offset(bench: Bench, sizes: list[int]) -> None:
    begin = bench.queue.max
    places = [bench.append(size) for size in sizes]
    for i, (size, place) in enumerate(zip(sizes, places, strict=True)):
        assert bench.queue[begin + i] == (place, size, 0)
        stored = bench.log.read(place)
        assert stored is not None
        assert decode_record(stored, physical_offset=place).size == size


def test_reads_outside_of_record_boundaries_return_nothing(bench: Bench) -> None:  # D13
    for _ in range(3):
        bench.append(SEGMENT - 8)
    assert bench.log.read(1) is None
    assert bench.log.read(bench.log.max_offset) is None
    assert bench.log.read(-1) is None
    assert bench.log.read(1 << 62) is None
    assert bench.log.read(SEGMENT - 8) is None
    bench.log.delete_oldest()
    assert bench.log.read(0) is None
    assert bench.log.read(SEGMENT) is not None
    assert bench.log.min_offset == SEGMENT


def test_deleting_keeps_the_views_that_readers_hold(bench: Bench) -> None:
    bench.append(SEGMENT - 8)
    bench.append()
    view = bench.log.read(0)
    assert view is not None
    bench.log.delete_oldest()
    assert bench.names() == [f"{SEGMENT:020d}"]
    assert decode_record(view).size == SEGMENT - 8
    with pytest.raises(StoreError):
        bench.log.delete_oldest()


def test_everything_appended_becomes_durable(bench: Bench) -> None:
    for _ in range(9):
        bench.append(SEGMENT - 8)
    assert bench.backend.wait_durable(bench.log.max_offset, WAIT_S)


def test_the_log_folder_holds_only_segments(bench: Bench) -> None:
    for _ in range(5):
        bench.append(SEGMENT - 100)
        assert all(len(name) == 20 for name in bench.names())
    bench.close()
    assert bench.names() == [f"{base:020d}" for base in range(0, 5 * SEGMENT, SEGMENT)]
    assert sorted(os.listdir(bench.folder)) == ["commitlog", "queue"]


def resident(segment: Segment, position: int) -> bool:
    state = ctypes.create_string_buffer(1)
    address = np.asarray(memoryview(segment)).ctypes.data + position
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(4096), state) == 0
    return state.raw != b"\0"


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14),
    reason="MADV_POPULATE_WRITE came with Linux 5.14",
)
def test_memory_ahead_of_the_writer_is_prepared(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 64 << 20, MmapBackend(prefault=20 << 20)).open()
    bench.append()
    segment = bench.log.segment_at(0)
    assert segment is not None
    assert not resident(segment, 40 << 20)
    for _ in range(25):
        bench.append(1_000_000)
    deadline = time.monotonic() + WAIT_S
    while not resident(segment, 40 << 20):
        assert time.monotonic() < deadline, "never prepared"
        time.sleep(0.01)
    assert bytes(memoryview(segment)[40 << 20 : 41 << 20]) == bytes(1 << 20)
    bench.close()


def populated(segment: Segment, position: int) -> bool:
    """Whether this process has the page in its table (proc(5), pagemap)."""
    address = np.asarray(memoryview(segment)).ctypes.data + position
    with open("/proc/self/pagemap", "rb") as table:
        table.seek(address // 4096 * 8)
        return bool(table.read(8)[7] & 0x80)


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14),
    reason="MADV_POPULATE_WRITE came with Linux 5.14",
)
def test_memory_after_the_end_is_prepared_before_the_first_append(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 64 << 20, MmapBackend(prefault=0)).open()
    for _ in range(10):
        bench.append(1_000_000)
    end = bench.log.max_offset
    bench.close()
    bench = Bench(tmp_path, 64 << 20, MmapBackend(prefault=20 << 20)).open(end)
    segment = bench.log.segment_at(0)
    assert segment is not None
    deadline = time.monotonic() + WAIT_S
    while not populated(segment, 25 << 20):
        assert time.monotonic() < deadline, "never prepared"
        time.sleep(0.01)
    bench.close()


def test_a_folder_in_place_of_a_prepared_segment_is_a_recoverable_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path).open()
    (tmp_path / "commitlog.prepared").write_bytes(b"")
    with pytest.raises(BackendError, match="prepared"):
        bench.append()
    assert bench.names() == []
    (tmp_path / "commitlog.prepared").unlink()
    assert bench.append() == 0
    bench.close()
