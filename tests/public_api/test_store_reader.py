"""A store's files as numpy and Arrow, beside a broker and without one."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import congreve
from congreve.engine.errors import StoreFormatError
from congreve.engine.state.lock import is_held
from congreve.records.errors import CorruptRecordError, RecordError
from congreve.records.record import decode_record
from congreve.store_reader import COLUMNS
from tests.spark.stores import TINY, write_tiny

BODIES = [b"%d" % number for number in range(3_000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running node, with BODIES in two queues of T and several segments."""
    folder = tmp_path_factory.mktemp("node")
    settings = {"mappedFileSizeCommitLog": 64 << 10, "defaultTopicQueueNums": 2}
    with congreve.serve(folder, flushDiskType="ASYNC_FLUSH", **settings) as node:
        with node.producer("p") as producer:
            producer.send_many("T", BODIES, batch_bytes=4096, tags="A", properties={"n": "1"})
            producer.send(congreve.Message(topic="U", body=b"plain", keys="k"))
        yield folder


def state(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file of a folder, with its time and its bytes."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def wanted(topic: str) -> list[dict[str, Any]]:
    """Messages of 4.9.4's store as it wrote them, queue by queue."""
    messages = [message for message in TINY["messages"] if message["topic"] == topic]
    return sorted(messages, key=lambda message: (message["queueId"], message["queueOffset"]))


def test_a_store_of_4_9_4_is_read_without_any_change(tmp_path: Path) -> None:
    before = state(write_tiny(tmp_path))
    store = congreve.open_store(tmp_path)
    messages = wanted("TopicTest")
    found = store.numpy("TopicTest", COLUMNS)
    assert len(found) == len(messages) > 10
    for row, message in zip(found, messages, strict=True):
        record = decode_record(bytes.fromhex(message["record_hex"]))
        assert row["body"] == record.body == bytes.fromhex(message["body_hex"])
        assert row["properties"] == record.properties
        assert row["tags"] == record.properties.get("TAGS")
        assert row["topic"] == "TopicTest"
        assert row["commitLogOffset"] == message["physOffset"]
        assert row["storeSize"] == message["size"]
        assert row["storeTimestamp"] == np.datetime64(message["storeTimestamp"], "ms")
    report = store.verify()
    assert (report.records, report.problems) == (len(TINY["messages"]), [])
    assert not is_held(str(tmp_path / "lock"))
    assert state(tmp_path) == before


def test_arrow_and_numpy_return_equal_values(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    store = congreve.open_store(folder)
    table, array = store.arrow("T"), store.numpy("T", COLUMNS)
    assert table.num_rows == len(array) == len(BODIES)
    assert sorted(array["body"], key=int) == BODIES
    for name in COLUMNS:
        column = table[name]
        if name == "properties":
            assert [dict(pairs) for pairs in column.to_pylist()] == array[name].tolist()
        elif name.endswith("Timestamp"):
            assert column.cast("int64").to_pylist() == array[name].astype(np.int64).tolist()
        else:
            assert column.to_pylist() == array[name].tolist()


def test_an_absent_text_of_a_message_is_none(folder: Path) -> None:
    (row,) = congreve.open_store(folder).numpy("U", ["tags", "keys"])
    assert (row["tags"], row["keys"]) == (None, "k")


def test_numpy_returns_the_fixed_width_columns_by_default(folder: Path) -> None:
    array = congreve.open_store(folder).numpy("T")
    assert not array.dtype.hasobject and "queueOffset" in array.dtype.names


def test_topics_queues_and_ranges_are_listed(folder: Path) -> None:
    store = congreve.open_store(folder)
    assert store.root == folder / "store"
    assert store.topics() == ["T", "U"]
    first, second = store.queues("T")
    assert (first.min, first.max + second.max) == (0, len(BODIES))
    part = store.numpy("T", queues=[1], start=10, stop=25)
    assert part["queueId"].tolist() == [1] * 15
    assert part["queueOffset"].tolist() == list(range(10, 25))
    assert len(store.numpy("T", start=first.max + second.max)) == 0
    entries = store.entries("T", 1, 10, 25)
    assert entries["physical_offset"].tolist() == part["commitLogOffset"].tolist()
    assert entries["size"].tolist() == part["storeSize"].tolist()


def test_the_end_of_a_with_unmaps_the_log(tmp_path: Path) -> None:
    def maps_the_log() -> bool:
        return str(tmp_path / "commitlog") in Path("/proc/self/maps").read_text()

    write_tiny(tmp_path)
    with congreve.open_store(tmp_path) as store:
        messages = store.numpy("TopicTest", ["body"])
        assert maps_the_log()
    assert not maps_the_log()
    assert store.numpy("TopicTest", ["body"]).tolist() == messages.tolist()


def test_the_error_for_a_missing_topic_or_queue_names_it(folder: Path, tmp_path: Path) -> None:
    store = congreve.open_store(folder)
    with pytest.raises(StoreFormatError, match="nowhere"):
        store.queues("nowhere")
    with pytest.raises(RecordError, match="brokerName"):
        store.numpy("T", ["brokerName"])
    with pytest.raises(StoreFormatError, match="is not a store"):
        congreve.open_store(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_damaged_message_is_an_error_and_verify_gives_its_position(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    message = wanted("TopicTest")[0]
    with (tmp_path / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(message["physOffset"] + 4)
        log.write(b"\0\0\0\0")
    store = congreve.open_store(tmp_path)
    with pytest.raises(CorruptRecordError):
        store.numpy("TopicTest")
    assert store.verify().problems


@pytest.mark.parametrize("backend", ["mmap", "pool"])
def test_a_store_is_read_and_verified_while_a_broker_writes_to_it(
    backend: str, tmp_path: Path
) -> None:
    """The counts grow, and messages that arrive meanwhile do not count as damage."""
    settings = {"mappedFileSizeCommitLog": 256 << 10, "flushDiskType": "ASYNC_FLUSH"}
    with congreve.serve(tmp_path, ioBackend=backend, **settings) as node:
        done = threading.Event()

        def send() -> None:
            with node.producer("p") as producer:
                for _ in range(400):
                    producer.send_many("T", BODIES[:100])
            done.set()

        thread = threading.Thread(target=send)
        thread.start()
        while not (tmp_path / "store" / "consumequeue" / "T").is_dir():
            done.wait(0.01)
        store, counts = congreve.open_store(tmp_path), [0]
        while not done.is_set():
            array = store.numpy("T", ["body", "queueOffset"])
            counts.append(len(array))
            report = store.verify()
            assert report.problems == [] and report.records == report.entries
        thread.join()
        assert counts == sorted(counts) and counts[-1] > counts[1]


def test_reading_needs_no_pyarrow(folder: Path) -> None:
    code = (
        "import congreve, sys; sys.modules['pyarrow'] = None\n"
        f"assert len(congreve.open_store({str(folder)!r}).numpy('T')) == {len(BODIES)}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
