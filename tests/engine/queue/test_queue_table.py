"""The table of all queues."""

import errno
from pathlib import Path

import pytest

from congreve.engine.errors import StoreError
from congreve.engine.queue.queue_table import GROUP_SYNC_AT, QueueTable
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK


def maps_in_use():
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_queues_are_loaded_by_topic_and_id(tmp_path):
    table = QueueTable(tmp_path, 80)
    for topic, queue_id in (("a", 0), ("a", 3), ("%RETRY%g", 0)):
        table.get(topic, queue_id).append(0, 0, 10, 1)
    table.get("memory-only", 1)
    table.close()
    (tmp_path / "stray").write_bytes(b"x")
    (tmp_path / "a/not-a-queue").mkdir()
    again = QueueTable(tmp_path, 80)
    again.load()
    assert sorted(again.topics()) == ["%RETRY%g", "a"]
    assert [queue.queue_id for queue in again.queues_of("a")] == [0, 3]
    assert [queue.max for queue in again] == [1, 1, 1]
    assert again.find("a", 1) is None
    assert again.get("a", 3) is again.find("a", 3)


def test_a_deleted_topic_is_removed_from_memory_and_disk(tmp_path):
    table = QueueTable(tmp_path / "queues", 80)
    for queue_id in range(2):
        table.get("a", queue_id).append(0, 0, 10, 1)
    assert table.remove_topic("a") == 2
    assert table.find("a", 0) is None
    assert list(table.folder.iterdir()) == []
    assert table.remove_topic("a") == 0
    assert len(list(table.unlink_steps())) == 4
    assert list(table.removed_folder.iterdir()) == []


def test_a_recreated_topic_ignores_remaining_files_of_the_deleted_one(
    tmp_path: Path,
) -> None:
    table = QueueTable(tmp_path / "queues", 80)
    removed = table.get("a", 0)
    for offset in range(8):  # two files, of which the first is read by a mapping of its path
        removed.append(offset, 10 * offset, 10, offset)
    assert removed[0] == (0, 10, 0)
    table.remove_topic("a")
    again = table.get("a", 0)
    again.append(0, 900, 10, 7)
    for offset in range(1, 5):
        again.append(offset, 900 + 10 * offset, 10, 7)
    assert again[0] == (900, 10, 7)
    removed.flush()
    removed.delete_expired(50)
    assert (removed.min, removed.max) == (0, 0)
    assert maps_of(table.removed_folder) == 1
    for _ in table.unlink_steps():
        assert [again[offset][0] for offset in range(5)] == [900, 910, 920, 930, 940]
    assert maps_of(table.removed_folder) == 0
    table.close()
    loaded = QueueTable(table.folder, 80)
    loaded.load()
    assert [queue.max for queue in loaded] == [5]


def test_files_of_removed_topics_are_unlinked_after_a_kill(tmp_path: Path) -> None:
    table = QueueTable(tmp_path / "queues", 80)
    for topic in ("a", "b"):
        for queue_id in range(3):
            table.get(topic, queue_id).append(0, 0, 10, 1)
        table.remove_topic(topic)
    next(steps := table.unlink_steps())
    steps.close()
    again = QueueTable(tmp_path / "queues", 80)
    again.load()
    assert again.topics() == []
    again.get("a", 0).append(0, 0, 10, 1)
    again.remove_topic("a")
    assert len(list(again.removed_folder.iterdir())) == 3
    list(again.unlink_steps())
    assert list(again.removed_folder.iterdir()) == []


def test_a_topic_on_another_file_system_is_unlinked_in_place(
    tmp_path: Path,
) -> None:
    files = FaultyFileSystem(DISK, Failpoint("rename", "", errno.EXDEV))
    table = QueueTable(tmp_path / "queues", 80, files=files)
    table.get("a", 0).append(0, 0, 10, 1)
    assert table.remove_topic("a") == 1
    assert list(table.folder.iterdir()) == []
    list(table.unlink_steps())


def test_a_topic_that_cannot_be_removed_keeps_its_queues(tmp_path: Path) -> None:
    files = FaultyFileSystem(DISK, Failpoint("rename", "", errno.EROFS))
    table = QueueTable(tmp_path / "queues", 80, files=files)
    table.get("a", 0).append(0, 0, 10, 1)
    with pytest.raises(StoreError, match="cannot move"):
        table.remove_topic("a")
    assert table.get("a", 0)[0] == (0, 10, 1)


def test_loading_keeps_no_file_mapped(tmp_path):
    table = QueueTable(tmp_path, 80)
    for queue_id in range(300):
        table.get("a", queue_id).append(0, queue_id * 10, 10, 1)
    table.close()
    before = maps_in_use()
    again = QueueTable(tmp_path, 80, mapping_limit=10)
    again.load()
    assert maps_in_use() < before + 50
    assert sum(len(queue.entries(0, 1)) for queue in again) == 300
    assert maps_in_use() < before + 50


def test_many_dirty_queues_are_synced_as_a_group(tmp_path: Path) -> None:
    """With ten thousand single syncs a stop would take seconds."""
    table = QueueTable(tmp_path, 4000)
    for queue_id in range(GROUP_SYNC_AT + 1):
        table.get("T", queue_id).append(0, 100 * queue_id, 100, 1)
    assert all(queue.dirty_pages for queue in table)
    table.flush()
    assert not any(queue.dirty_pages for queue in table)
    table.close()
    again = QueueTable(tmp_path, 4000)
    again.load()
    assert [queue.max for queue in again] == [1] * (GROUP_SYNC_AT + 1)


def test_queues_beyond_the_limit_release_their_mapping(tmp_path: Path) -> None:
    """65,536 mapped queues would use every mapping that a process may have."""
    before = maps_in_use()
    table = QueueTable(tmp_path, 4000, mapping_limit=10, writable_limit=20)
    for turn in range(3):
        for queue_id in range(500):
            table.get("T", queue_id).append(turn, 100 * (turn * 500 + queue_id), 100, queue_id)
            assert table.writable.mapped <= 20
    assert maps_in_use() < before + 50
    for queue in table:
        assert [int(row["tags_code"]) for row in queue.entries(0, 3)] == [queue.queue_id] * 3
    assert maps_in_use() < before + 50
    table.flush()
    table.close()
    again = QueueTable(tmp_path, 4000)
    again.load()
    assert [queue.max for queue in again] == [3] * 500


def test_queues_that_get_entries_keep_their_mapping(tmp_path: Path) -> None:
    table = QueueTable(tmp_path, 4000, writable_limit=20)
    busy = [table.get("busy", queue_id) for queue_id in range(10)]
    made = 0
    for turn in range(400):
        for queue in busy:
            queue.append(turn, 1000 * made, 100, 1)
            made += 1
        table.get("idle", turn).append(0, 1000 * made, 100, 1)
        made += 1
    assert maps_of(tmp_path / "busy") == 10
    assert maps_of(tmp_path) <= 20


def test_views_of_a_queue_stay_valid_when_its_mapping_is_released(tmp_path: Path) -> None:
    table = QueueTable(tmp_path, 4000, mapping_limit=1, writable_limit=16)
    queue = table.get("T", 0)
    for offset in range(100):
        queue.append(offset, 1000 * offset, 100, offset)
    seen = queue.entries(0, 100)
    for queue_id in range(1, 200):
        table.get("T", queue_id).append(0, 1_000_000 + 1000 * queue_id, 100, 1)
    assert maps_of(tmp_path / "T/0/") == 1  # the mapping that `seen` keeps
    assert seen["tags_code"].tolist() == list(range(100))
    del seen
    assert maps_of(tmp_path / "T/0/") == 0
    assert queue[99] == (99_000, 100, 99)
    queue.append(100, 10_000_000, 100, 100)
    assert queue.entries(99, 101)["tags_code"].tolist() == [99, 100]


def test_entries_of_a_queue_with_a_released_mapping_are_synced(tmp_path: Path) -> None:
    table = QueueTable(tmp_path, 4000, writable_limit=16)
    for queue_id in range(50):
        table.get("T", queue_id).append(0, 1000 * queue_id, 100, 1)
    assert sum(queue.dirty_pages for queue in table) == 50
    table.flush()
    assert sum(queue.dirty_pages for queue in table) == 0


def maps_of(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())
