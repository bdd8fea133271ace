"""The table of all queues."""

from pathlib import Path

from congreve.engine.queuetable import GROUP_SYNC_AT, QueueTable


def maps_in_use():
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_queues_are_found_again_by_topic_and_id(tmp_path):
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


def test_a_deleted_topic_is_gone_from_memory_and_disk(tmp_path):
    table = QueueTable(tmp_path, 80)
    for queue_id in range(2):
        table.get("a", queue_id).append(0, 0, 10, 1)
    assert table.delete_topic("a") == 2
    assert table.find("a", 0) is None
    assert list(tmp_path.iterdir()) == []
    assert table.delete_topic("a") == 0


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
    """Ten thousand syncs one by one took a stop seconds."""
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
