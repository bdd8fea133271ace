"""The scan of the log, compared with a store whose files the reference confirmed byte for byte."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery import scan
from congreve.engine.recovery.scan import LogScanner
from congreve.records.message.message import Record
from congreve.records.record import encode_record

TINY: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/tiny_store.json").read_text()
)
PARKING = StoreConfig(root_dir="unused").parking
SEGMENT = 4096


def file_bytes(name: str) -> bytes:
    file = TINY["files"][name]
    return bytes.fromhex(file["hex"]).ljust(file["size"], b"\0")


def segments() -> Iterator[tuple[int, bytes]]:
    for name in sorted(TINY["files"]):
        if name.startswith("commitlog/"):
            yield int(name.split("/")[1]), file_bytes(name)


def records(*bodies: bytes, queue_offset: int = 0, **fields: Any) -> bytes:
    """Records of one queue, one after the other from physical offset 0."""
    log = b""
    for number, body in enumerate(bodies):
        log += encode_record(
            Record(
                topic="T",
                body=body,
                queue_offset=queue_offset + number,
                physical_offset=len(log),
                store_timestamp=1000 + number,
                **fields,
            )
        )
    return log


def table(tmp_path: Path) -> QueueTable:
    return QueueTable(tmp_path / "consumequeue", 80)


def test_a_scan_builds_the_same_queue_files_as_the_reference(tmp_path: Path) -> None:
    queues = table(tmp_path)
    scanner = LogScanner(queues, parking=[PARKING])
    stops = [scanner.scan(data, base, base) for base, data in segments()]
    queues.close()
    assert stops == [scan.BLANK, scan.END]
    assert scanner.position == TINY["max_phys_offset"]
    assert scanner.records == len(TINY["messages"])
    golden = [name for name in TINY["files"] if name.startswith("consumequeue/")]
    for name in golden:
        assert (tmp_path / name).read_bytes() == file_bytes(name), name
    written = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(written) == sorted(golden)


def test_a_second_scan_adds_no_entry(tmp_path: Path) -> None:
    queues = table(tmp_path)
    for _ in range(2):
        scanner = LogScanner(queues, parking=[PARKING])
        for base, data in segments():
            scanner.scan(data, base, base)
    ends = {(queue.topic, queue.queue_id): queue.max for queue in queues}
    assert ends == {("TopicTest", 0): 10, ("TopicTest", 1): 10, ("SCHEDULE_TOPIC_XXXX", 17): 1}


def test_a_comparison_finds_every_missing_and_wrong_entry(tmp_path: Path) -> None:
    queues = table(tmp_path)
    scanner = LogScanner(queues, parking=[PARKING])
    for base, data in segments():
        scanner.scan(data, base, base)
    queues.find("TopicTest", 1).truncate_to(7)  # type: ignore[union-attr]
    reports: list[str] = []
    check = LogScanner(queues, compare=True, report=reports.append)
    for base, data in segments():
        check.scan(data, base, base)
    # Without delay levels the parked message's entry is another one, too.
    assert [text.split(" is ")[0] for text in reports] == [
        "entry 7 of queue 1 of TopicTest",
        "entry 8 of queue 1 of TopicTest",
        "entry 9 of queue 1 of TopicTest",
        "entry 0 of queue 17 of SCHEDULE_TOPIC_XXXX",
    ]
    assert check.dispatched == len(TINY["messages"])


@pytest.mark.parametrize("at", range(0, 8))
def test_a_scan_stops_at_a_record_that_is_torn_at_any_byte(at: int) -> None:
    whole = records(b"a" * 40, b"b" * 40)
    half = len(whole) // 2
    cut = half + at * half // 8
    scanner = LogScanner()
    why = scanner.scan(whole[:cut].ljust(SEGMENT, b"\0"), 0, 0)
    assert why == (scan.END if cut == half else scan.BAD)
    assert (scanner.position, scanner.records) == (half, 1)


def test_every_flipped_bit_of_a_body_is_found() -> None:
    whole = bytearray(records(b"body of the message").ljust(SEGMENT, b"\0"))
    start = whole.index(b"body of")
    for bit in range(start * 8, (start + 19) * 8):
        whole[bit // 8] ^= 1 << bit % 8
        assert LogScanner().scan(whole, 0, 0) == scan.BAD
        whole[bit // 8] ^= 1 << bit % 8
    assert LogScanner().scan(whole, 0, 0) == scan.END


def test_resync_finds_the_next_record_that_names_its_own_place() -> None:
    log = bytearray(records(b"a", b"b", b"c").ljust(SEGMENT, b"\0"))
    size = len(records(b"a"))
    log[10] ^= 1
    copy = bytes(log[size : 2 * size])  # a record from elsewhere inside a body is not a record
    log[3 * size : 4 * size] = copy
    scanner = LogScanner()
    assert scanner.scan(log, 0, 0) == scan.BAD
    assert scanner.resync(log, 0, 1) == size
    assert scanner.resync(log, 0, 2 * size + 1) is None


def test_a_base_offset_shifts_everything(tmp_path: Path) -> None:
    base, data = list(segments())[1]
    scanner = LogScanner()
    assert scanner.scan(data, base, base, base + 1) == scan.LIMIT
    assert (scanner.records, scanner.last_record) == (1, base)
    assert scanner.last_store_timestamp == TINY["messages"][14]["storeTimestamp"]


@pytest.mark.parametrize("topic", ["../../etc", "a/b", "a b", "."])
def test_a_damaged_topic_name_never_becomes_a_path(tmp_path: Path, topic: str) -> None:
    queues = table(tmp_path)
    log = encode_record(Record(topic=topic, body=b"x")).ljust(SEGMENT, b"\0")
    assert LogScanner(queues).scan(log, 0, 0) == scan.BAD
    assert len(queues) == 0
    assert list(tmp_path.iterdir()) == []


def test_prepared_and_rolled_back_records_get_no_entry(tmp_path: Path) -> None:
    for sys_flag, entries in ((0, 1), (4, 0), (8, 1), (12, 0)):
        queues = QueueTable(tmp_path / str(sys_flag), 80)
        log = records(b"x", sys_flag=sys_flag).ljust(SEGMENT, b"\0")
        LogScanner(queues).scan(log, 0, 0)
        assert sum(queue.max for queue in queues) == entries


def test_a_queue_that_was_deleted_and_created_again_keeps_the_new_messages(tmp_path: Path) -> None:
    old = records(b"a", b"b")
    log = old
    for number in range(2):
        log += encode_record(
            Record(topic="T", body=b"new", queue_offset=number, physical_offset=len(log))
        )
    queues = table(tmp_path)
    LogScanner(queues).scan(log.ljust(SEGMENT, b"\0"), 0, 0)
    queue = queues.get("T", 0)
    assert (queue.max, queue[0][0]) == (2, len(old))


def test_thousands_of_queues_are_distinguished(tmp_path: Path) -> None:
    position = 0
    parts = []
    for i in range(600):
        parts.append(
            encode_record(
                Record(topic=f"T{i % 50}", body=b"", queue_id=i // 50, physical_offset=position)
            )
        )
        position += len(parts[-1])
    log = b"".join(parts) + bytes(8)
    queues = table(tmp_path)
    assert LogScanner(queues).scan(log, 0, 0) == scan.END
    assert len(queues) == 600
    assert all(queue.max == 1 for queue in queues)
