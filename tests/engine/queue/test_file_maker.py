"""The first file of a queue, made by a thread before its first entry."""

import errno
import threading
from pathlib import Path

import pytest

from congreve.engine.queue.file_maker import QueueFileMaker
from congreve.engine.queue.queue_table import QueueTable
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK


@pytest.fixture
def table(tmp_path: Path) -> QueueTable:
    return QueueTable(tmp_path / "consumequeue", 6_000)


@pytest.fixture
def maker(table: QueueTable):
    made = QueueFileMaker(table, threading.RLock())
    yield made
    made.stop()


def test_the_first_entry_uses_the_file_that_was_made(table, maker) -> None:
    assert maker.is_missing("T", 3)
    maker.make("T", 3).result()
    assert not maker.is_missing("T", 3)
    queue = table.get("T", 3)
    assert queue.max == 0 and len(queue.files) == 1
    queue.append(0, 0, 100, 7)
    assert queue[0] == (0, 100, 7)
    table.close()
    again = QueueTable(table.folder, 6_000)
    again.load()
    assert again.get("T", 3)[0] == (0, 100, 7)


def test_a_file_without_an_entry_is_removed_at_the_end(table, maker) -> None:
    maker.make("T", 0).result()
    table.close()
    assert not list(table.folder.rglob("0" * 20))


def test_a_file_that_is_made_and_appended_to_at_once_is_one(table, maker) -> None:
    for queue_id in range(200):
        made = maker.make("T", queue_id)
        table.get("T", queue_id).append(0, queue_id * 100, 100, queue_id)
        made.result()
    table.close()
    again = QueueTable(table.folder, 6_000)
    again.load()
    for queue_id in range(200):
        assert again.get("T", queue_id)[0] == (queue_id * 100, 100, queue_id)


def test_no_file_is_made_for_a_removed_topic(table, maker) -> None:
    queue = table.get("T", 0)
    table.remove_topic("T")
    maker._make(queue)
    assert not queue.has_file and not (table.folder / "T").exists()


def test_after_a_failure_the_append_has_the_reason(tmp_path: Path) -> None:
    failing = FaultyFileSystem(DISK, Failpoint("create_map", "/T", errno.ENOSPC, times=2))
    table = QueueTable(tmp_path / "consumequeue", 6_000, files=failing)
    maker = QueueFileMaker(table, threading.RLock())
    maker.make("T", 0).result()
    assert not maker.is_missing("T", 0)
    with pytest.raises(Exception, match="No space"):
        table.get("T", 0).append(0, 0, 100, 7)
    assert maker.is_missing("T", 0)
    maker.make("T", 0).result()
    table.get("T", 0).append(0, 0, 100, 7)
    maker.stop()
    table.close()


def test_messages_that_wait_keep_later_ones_behind_them(table, maker) -> None:
    with maker.waiting("T", 0) as made:
        made.result()
        assert maker.is_missing("T", 0)
    assert not maker.is_missing("T", 0)
