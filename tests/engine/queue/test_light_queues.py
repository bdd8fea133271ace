"""Light message queues of the reference (enableLmq) lead to records of other topics."""

import logging
import shutil
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.read.reader import GetStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.records.message.message import Record

LIGHT = "%LMQ%123"


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=20 * 5,
        message_index_enable=False,
    )


def put(store: MessageStore, count: int) -> None:
    for number in range(count):
        properties = {"INNER_MULTI_DISPATCH": LIGHT, "INNER_MULTI_QUEUE_OFFSET": str(number // 2)}
        store.put(
            Record(topic="T", body=b"%d" % number, properties=properties if number % 2 == 0 else {})
        )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of the reference: every second message of T is also in the light queue."""
    with MessageStore(config_of(tmp_path)) as store:
        put(store, 40)
        queue = store.queues.get("T", 0)
        light = ConsumeQueue(f"{tmp_path}/consumequeue/{LIGHT}/0", LIGHT, 0, 20 * 5)
        for number in range(0, 40, 2):
            light.append(number // 2, *queue[number])
        light.close()
    shutil.rmtree(tmp_path / "congreve")  # so that it is a store of the reference
    return tmp_path


def light_files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "consumequeue" / LIGHT).glob("0/*")}


@pytest.mark.parametrize("clean", [True, False])
def test_light_message_queues_are_not_changed(
    root: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = light_files(root)
    assert len(files) == 4
    for _ in range(3):  # without our checkpoint, and with it
        if not clean:
            (root / "abort").touch()
        caplog.clear()
        with caplog.at_level(logging.WARNING), MessageStore(config_of(root)) as store:
            said = [record.getMessage() for record in caplog.records if "%LMQ%" in record.message]
            assert said == [
                "ignoring 1 light message queues (%LMQ%): this broker does not serve them"
            ]
            assert LIGHT not in store.queues.topics()
            assert store.get("T", 0, 0, 32).status is GetStatus.FOUND
            assert store.unused_topics({"T"}) == []
            put(store, 2)
        assert light_files(root) == files
    assert StoreExaminer(str(root)).verify().problems == []
    assert light_files(root) == files


def test_light_message_queues_stay_when_segments_and_topics_are_deleted(root: Path) -> None:
    files = light_files(root)
    with MessageStore(config_of(root)) as store:
        store.log.delete_oldest()
        store.delete_topic("T")
        store.delete_topic(LIGHT)
    assert light_files(root) == files
