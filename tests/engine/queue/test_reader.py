"""Reads from a queue: each status of the reference, limits, filters, what is never served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.engine.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.queue.reader import GetStatus, Reader
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_records, string_hash

SEGMENT = 8192
HOST = ("127.0.0.1", 10911)


class Shelf:
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
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path)
    yield shelf
    shelf.backend.stop()
    shelf.log.close()


def bodies(
    shelf: Shelf, offset: int, count: int, tags: frozenset[int] | None = None
) -> list[bytes]:
    found = shelf.reader.get(shelf.queue, offset, count, tags)
    return [record.body for record in decode_records(b"".join(found.buffers))]


def test_an_empty_queue_has_no_message(shelf: Shelf) -> None:
    found = shelf.reader.get(shelf.queue, 5, 32)
    assert (found.status, found.next_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_offsets_beyond_the_end_are_distinguished(shelf: Shelf) -> None:
    shelf.put(b"only")
    at_end = shelf.reader.get(shelf.queue, 1, 32)
    behind = shelf.reader.get(shelf.queue, 2, 32)
    assert (at_end.status, at_end.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
    assert (behind.status, behind.next_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, 1)


def test_a_read_before_the_first_offset_gets_the_corrected_offset(shelf: Shelf) -> None:
    shelf.queue.start_at(7)
    shelf.put(b"seventh")
    found = shelf.reader.get(shelf.queue, 3, 32)
    assert (found.status, found.next_offset) == (GetStatus.OFFSET_TOO_SMALL, 7)
    assert bodies(shelf, 7, 32) == [b"seventh"]


def test_messages_come_in_order_across_queue_files_and_segments(shelf: Shelf) -> None:
    sent = [b"%d" % i * 50 for i in range(90)]
    for body in sent:
        shelf.put(body)
    assert len(shelf.log.segments) > 1 and len(shelf.queue.files) > 1
    read: list[bytes] = []
    while len(read) < len(sent):
        found = shelf.reader.get(shelf.queue, len(read), 25)
        assert found.status is GetStatus.FOUND
        read += [record.body for record in decode_records(b"".join(found.buffers))]
        assert found.next_offset == len(read)
    assert read == sent


def test_tags_filter_messages_and_no_match_has_a_status_of_its_own(shelf: Shelf) -> None:
    for i in range(40):
        shelf.put(b"%d" % i, "rare" if i == 33 else "common")
    found = shelf.reader.get(shelf.queue, 0, 32, frozenset({string_hash("rare")}))
    assert (found.count, found.next_offset) == (1, 40)
    assert bodies(shelf, 0, 32, frozenset({string_hash("rare")})) == [b"33"]
    none = shelf.reader.get(shelf.queue, 0, 32, frozenset({string_hash("absent")}))
    assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 40)


def test_a_rare_tag_among_thousands_needs_one_scan(shelf: Shelf) -> None:
    """D20: the reference reads 800 entries of one file and makes the client pull again."""
    for i in range(3_000):
        shelf.put(b"%d" % i, "rare" if i == 2_999 else "common")
    found = shelf.reader.get(shelf.queue, 0, 32, frozenset({string_hash("rare")}))
    assert (found.status, found.count, found.next_offset) == (GetStatus.FOUND, 1, 3_000)


def test_large_messages_are_returned_as_views_and_one_always_fits(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.put(b"x" * 6000)
    found = shelf.reader.get(shelf.queue, 0, 32)
    assert [type(piece) for piece in found.buffers] == [memoryview]
    assert found.size == len(found.buffers[0])
    del found
    shelf.backend.stop()
    shelf.log.close()


def test_an_entry_without_a_record_is_not_served(shelf: Shelf) -> None:
    shelf.put(b"good")
    shelf.queue.append(1, 3, 95, 0)
    found = shelf.reader.get(shelf.queue, 1, 32)
    assert (found.status, found.count, found.next_offset) == (
        GetStatus.MESSAGE_WAS_REMOVING,
        0,
        2,
    )


def test_entries_of_a_deleted_segment_are_skipped(shelf: Shelf) -> None:
    for i in range(80):
        shelf.put(b"%d" % i * 50)
    shelf.log.delete_oldest()
    found = shelf.reader.get(shelf.queue, 0, 32)
    assert found.status is GetStatus.FOUND
    first = decode_records(b"".join(found.buffers))[0]
    assert first.physical_offset == shelf.log.min_offset


def test_a_damaged_record_leaves_all_others_readable(shelf: Shelf) -> None:
    """A header that does not match its entry must not skip the messages after it."""
    for i in range(6):
        shelf.put(b"%d" % i)
    with Path(shelf.log.segments[0].path).open("r+b") as log:
        log.seek(shelf.queue[3][0] + 4)
        log.write(bytes(4))
    assert bodies(shelf, 0, 32) == [b"0", b"1", b"2", b"4", b"5"]
    assert bodies(shelf, 3, 32) == [b"4", b"5"]


def test_no_message_is_lost_at_a_gap_in_the_queue_offsets(shelf: Shelf) -> None:
    """D8: a gap has filler entries with physical offset 0, which may still be in the log."""
    shelf.put(b"0")
    shelf.queue.fill_to(5)
    shelf.put(b"1")
    shelf.put(b"2")
    assert bodies(shelf, 0, 32) == [b"0"]
    assert bodies(shelf, 1, 32) == [b"1", b"2"]


def test_an_answer_cannot_be_used_to_write_into_the_log(shelf: Shelf) -> None:
    shelf.put(b"x" * 6000)
    assert shelf.reader.get(shelf.queue, 0, 32).buffers[0].readonly
