"""Reads from a queue: each status of the reference, limits, filters, what is never served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.read.reader import GetStatus, Reader
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_records, string_hash

SEGMENT = 8192
HOST = ("127.0.0.1", 10911)


class StoredQueue:
    """A log, one queue and a reader, without a store around them."""

    def __init__(self, root: Path) -> None:
        (root / "commitlog").mkdir()
        self.root = root
        self.backend = MmapBackend()
        self.log = CommitLog(str(root / "commitlog"), SEGMENT, self.backend, ManualClock(1000))
        self.log.load()
        self.backend.start(0)
        self.queue = QueueTable(root / "consumequeue", file_size=400).get("T", 0)
        self.reader = Reader(StoreConfig(root_dir=str(root)), self.log)

    def put(self, body: bytes, tag: str | None = None) -> None:
        record = Record(
            topic="T",
            body=body,
            properties={"TAGS": tag} if tag else {},
            born_host=HOST,
            store_host=HOST,
        )
        self.log.append_record(record, self.queue)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[StoredQueue]:
    stored = StoredQueue(tmp_path)
    yield stored
    stored.backend.stop()
    stored.log.close()


def bodies(
    stored: StoredQueue, offset: int, count: int, tags: frozenset[int] | None = None
) -> list[bytes]:
    found = stored.reader.get(stored.queue, offset, count, tags)
    return [record.body for record in decode_records(b"".join(found.buffers))]


def test_an_empty_queue_has_no_message(stored: StoredQueue) -> None:
    found = stored.reader.get(stored.queue, 5, 32)
    assert (found.status, found.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_offsets_beyond_the_end_are_distinguished(stored: StoredQueue) -> None:
    stored.put(b"only")
    at_end = stored.reader.get(stored.queue, 1, 32)
    behind = stored.reader.get(stored.queue, 2, 32)
    assert (at_end.status, at_end.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
    assert (behind.status, behind.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 1)


def test_a_read_before_the_first_offset_gets_the_corrected_offset(stored: StoredQueue) -> None:
    stored.queue.start_at(7)
    stored.put(b"seventh")
    found = stored.reader.get(stored.queue, 3, 32)
    assert (found.status, found.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 7)
    assert bodies(stored, 7, 32) == [b"seventh"]


def test_messages_come_in_order_across_queue_files_and_segments(stored: StoredQueue) -> None:
    sent = [b"%d" % i * 50 for i in range(90)]
    for body in sent:
        stored.put(body)
    assert len(stored.log.segments) > 1 and len(stored.queue.files) > 1
    read: list[bytes] = []
    while len(read) < len(sent):
        found = stored.reader.get(stored.queue, len(read), 25)
        assert found.status is GetStatus.FOUND
        read += [record.body for record in decode_records(b"".join(found.buffers))]
        assert found.next_offset == len(read)
    assert read == sent


def test_tags_filter_messages_and_no_match_has_a_status_of_its_own(stored: StoredQueue) -> None:
    for i in range(40):
        stored.put(b"%d" % i, "rare" if i == 33 else "common")
    found = stored.reader.get(stored.queue, 0, 32, frozenset({string_hash("rare")}))
    assert (found.count, found.next_offset) == (1, 40)
    assert bodies(stored, 0, 32, frozenset({string_hash("rare")})) == [b"33"]
    none = stored.reader.get(stored.queue, 0, 32, frozenset({string_hash("absent")}))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 40)


def test_a_rare_tag_among_thousands_needs_one_scan(stored: StoredQueue) -> None:
    """D20: the reference reads 800 entries of one file and makes the client pull again."""
    for i in range(3_000):
        stored.put(b"%d" % i, "rare" if i == 2_999 else "common")
    found = stored.reader.get(stored.queue, 0, 32, frozenset({string_hash("rare")}))
    assert (found.status, found.count, found.next_offset) == (GetStatus.FOUND, 1, 3_000)


def test_large_messages_are_returned_as_views_and_one_always_fits(tmp_path: Path) -> None:
    stored = StoredQueue(tmp_path)
    stored.put(b"x" * 6000)
    found = stored.reader.get(stored.queue, 0, 32)
    assert [type(piece) for piece in found.buffers] == [memoryview]
    assert found.size == len(found.buffers[0])
    del found
    stored.backend.stop()
    stored.log.close()


def test_an_entry_without_a_record_is_not_served(stored: StoredQueue) -> None:
    stored.put(b"good")
    stored.queue.append(1, 3, 95, 0)
    found = stored.reader.get(stored.queue, 1, 32)
    assert (found.status, found.count, found.next_offset) == (
        GetStatus.MESSAGE_WAS_REMOVING,
        0,
        2,
    )


def test_entries_of_a_deleted_segment_are_skipped(stored: StoredQueue) -> None:
    for i in range(80):
        stored.put(b"%d" % i * 50)
    stored.log.delete_oldest()
    found = stored.reader.get(stored.queue, 0, 32)
    assert found.status is GetStatus.FOUND
    first = decode_records(b"".join(found.buffers))[0]
    assert first.physical_offset == stored.log.min_offset


def test_a_damaged_record_leaves_all_others_readable(stored: StoredQueue) -> None:
    """A header that does not match its entry must not skip the messages after it."""
    for i in range(6):
        stored.put(b"%d" % i)
    with Path(stored.log.segments[0].path).open("r+b") as log:
        log.seek(stored.queue[3][0] + 4)
        log.write(bytes(4))
    assert bodies(stored, 0, 32) == [b"0", b"1", b"2", b"4", b"5"]
    assert bodies(stored, 3, 32) == [b"4", b"5"]


def test_no_message_is_lost_at_a_gap_in_the_queue_offsets(stored: StoredQueue) -> None:
    """D8: a gap has filler entries with physical offset 0, which may still be in the log."""
    stored.put(b"0")
    stored.queue.fill_to(5)
    stored.put(b"1")
    stored.put(b"2")
    assert bodies(stored, 0, 32) == [b"0"]
    assert bodies(stored, 1, 32) == [b"1", b"2"]


def test_an_answer_cannot_be_used_to_write_into_the_log(stored: StoredQueue) -> None:
    stored.put(b"x" * 6000)
    assert stored.reader.get(stored.queue, 0, 32).buffers[0].readonly


@pytest.mark.parametrize("filler_at", [None, 0, 17, 59])
def test_a_reader_sees_what_ends_at_or_before_the_shown_offset(
    stored: StoredQueue, filler_at: int | None
) -> None:
    for number in range(60):
        if number == filler_at:
            stored.queue.fill_to(number + 1)  # its record is lost
        else:
            stored.put(b"%d" % number * (number % 7))
    ends = [place + size for place, size, _ in map(stored.queue.__getitem__, range(60))]
    if filler_at is not None:
        ends[filler_at] = ends[filler_at - 1] if filler_at else 0
    for shown in sorted({at + by for at in ends for by in (-1, 0, 1)}):
        stored.log.show_below(shown)
        visible = [number for number in range(60) if ends[number] <= shown]
        if visible and visible[-1] == filler_at and filler_at < 59:
            visible.pop()  # filler is seen with the record behind it
        end = visible[-1] + 1 if visible else 0
        assert stored.log.end_of(stored.queue) == end
        found = stored.reader.get(stored.queue, max(end - 1, 0), 32)
        assert found.max_offset == end
        assert found.next_offset <= max(end, 0)


def test_an_offset_among_hidden_messages_waits_there(stored: StoredQueue) -> None:
    for number in range(3):
        stored.put(b"%d" % number)
    stored.log.show_below(stored.queue[1][0])
    for offset in (1, 2, 3):
        found = stored.reader.get(stored.queue, offset, 32)
        assert (found.status, found.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, offset)
        assert (found.count, found.max_offset) == (0, 1)
    behind = stored.reader.get(stored.queue, 4, 32)
    assert (behind.status, behind.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 1)
    assert stored.log.is_hiding(stored.queue)
    stored.log.show_below(stored.log.max_offset)
    assert bodies(stored, 1, 32) == [b"1", b"2"]
    assert not stored.log.is_hiding(stored.queue)
