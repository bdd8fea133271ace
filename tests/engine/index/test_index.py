"""The key index: the same bytes as the reference's files, and queries by key."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.health import Health
from congreve.engine.index.index import KeyIndex
from congreve.engine.index.index_file import IndexFile
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record, index_hash

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/index_vectors.json").read_text()
)
HOST = ("127.0.0.1", 10911)
FOREVER = 1 << 62


def key_hash(key: str) -> int:
    topic, _, name = key.partition("#")
    return index_hash(topic, name)


@pytest.mark.parametrize("group", ["index_file", "index_file_next"])
def test_files_hold_the_bytes_of_the_reference(group: str, tmp_path: Path) -> None:
    vector = VECTORS[group]
    file = IndexFile(
        str(tmp_path / "20231114221320456"),
        vector["hash_slots"],
        vector["index_num"],
        create=True,
        end_physical=vector.get("end_phy", 0),
        end_timestamp=vector.get("end_ts", 0),
    )
    for put in vector["puts"]:
        added = file.add(key_hash(put["key"]), put["phyOffset"], put["storeTimestamp"])
        assert added == put.get("ok", True)
    file.flush()
    assert Path(file.path).read_bytes().hex() == vector["file_hex"]


def test_queries_find_at_least_what_the_reference_finds(tmp_path: Path) -> None:
    vector = VECTORS["index_file"]
    path = tmp_path / "20231114221320456"
    path.write_bytes(bytes.fromhex(vector["file_hex"]))
    file = IndexFile(str(path), vector["hash_slots"], vector["index_num"])
    for query in vector["queries"]:
        found = list(file.find(key_hash(query["key"]), query["begin"], query["end"]))
        assert set(query["result"]) <= set(found)
        assert found == sorted(found, reverse=True)


class Shelf:
    """A log and its index, without a store around them."""

    def __init__(self, root: Path, **settings: int) -> None:
        (root / "commitlog").mkdir(exist_ok=True)
        self.config = StoreConfig(
            root_dir=str(root), max_hash_slot_num=101, max_index_num=50, **settings
        )
        self.clock = ManualClock(1_700_000_000_000)
        self.backend = MmapBackend()
        self.log = CommitLog(str(root / "commitlog"), 16384, self.backend, self.clock)
        self.queues = QueueTable(root / "consumequeue", file_size=4000)
        self.index = KeyIndex(self.config, self.log, Health(self.backend))

    def open(self, *, clean: bool = True, end: int = 0) -> "Shelf":
        self.log.load()
        if end:
            self.log.set_end(end)
        self.backend.start(self.log.max_offset)
        self.index.start(clean=clean)
        return self

    def put(self, body: bytes, topic: str = "T", **properties: str) -> int:
        record = Record(
            topic=topic, body=body, properties=properties, born_host=HOST, store_host=HOST
        )
        offset = self.log.append_record(record, self.queues.get(topic, 0)).physical_offset
        self.index.wake()
        return offset

    def settled(self) -> None:
        wait_until(lambda: self.index.indexed_offset >= self.log.max_offset)

    def bodies(self, key: str, topic: str = "T", count: int = 64, **times: int) -> list[bytes]:
        found = self.index.query(
            topic, key, count, times.get("begin", 0), times.get("end", FOREVER)
        )
        return [decode_record(record).body for record in found.buffers]

    def close(self) -> int:
        end = self.log.max_offset
        self.index.stop()
        self.backend.stop()
        self.log.close()
        return end


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path).open()
    yield shelf
    shelf.close()


def test_messages_are_found_by_unique_key_and_by_each_of_their_keys(shelf: Shelf) -> None:
    shelf.put(b"one", UNIQ_KEY="U1", KEYS="a b")
    shelf.put(b"two", UNIQ_KEY="U2", KEYS="b  c")
    shelf.put(b"none")
    shelf.settled()
    assert shelf.bodies("U1") == [b"one"]
    assert shelf.bodies("b") == [b"one", b"two"]
    assert shelf.bodies("c") == [b"two"]
    assert shelf.bodies("absent") == []


def test_a_hash_collision_is_not_returned(shelf: Shelf) -> None:
    """D3: "Aa" and "BB" have one String.hashCode."""
    shelf.put(b"wrong", KEYS="Aa")
    shelf.put(b"right", KEYS="BB")
    shelf.settled()
    assert shelf.bodies("BB") == [b"right"]


def test_a_query_over_colliding_keys_reads_one_message_a_step(shelf: Shelf) -> None:
    for _ in range(30):
        shelf.put(b"wrong", KEYS="AaAa")
    shelf.settled()
    assert len(list(shelf.index.query_steps("T", "BBBB", 64, 0, FOREVER))) >= 30


def test_a_query_from_the_exact_store_time_finds_the_message(shelf: Shelf) -> None:
    """D4: entry times are whole seconds."""
    shelf.put(b"first", KEYS="k")
    shelf.clock.advance(1_999)
    shelf.put(b"exact", KEYS="k")
    shelf.settled()
    now = shelf.clock.now()
    assert shelf.bodies("k", begin=now, end=now) == [b"exact"]


def test_a_clock_that_stepped_back_hides_nothing(shelf: Shelf) -> None:
    """D4: one old entry does not end the chain."""
    start = shelf.clock.now()
    shelf.put(b"early", KEYS="k")
    shelf.clock.set(start - 3_600_000)
    shelf.put(b"stepped back", KEYS="k")
    shelf.settled()
    assert shelf.bodies("k", begin=start, end=start + 1) == [b"early"]


def test_entries_beyond_the_capacity_of_a_file_continue_in_the_next(shelf: Shelf) -> None:
    for i in range(200):
        shelf.put(b"%d" % i, KEYS=f"key{i}")
    shelf.settled()
    assert len(list(Path(shelf.config.index_dir).iterdir())) > 3
    assert all(shelf.bodies(f"key{i}") == [b"%d" % i] for i in range(200))


def test_a_message_with_more_keys_than_a_file_holds_has_each_key_once(shelf: Shelf) -> None:
    shelf.put(b"before", KEYS="first")
    keys = [f"key{i}" for i in range(130)]
    shelf.put(b"many", KEYS=" ".join(keys))
    shelf.put(b"behind", KEYS="last")
    shelf.settled()
    assert all(shelf.bodies(key) == [b"many"] for key in keys)
    assert (shelf.bodies("first"), shelf.bodies("last")) == ([b"before"], [b"behind"])
    files = [IndexFile(str(path), 101, 50) for path in Path(shelf.config.index_dir).iterdir()]
    assert sum(file.count - 1 for file in files) == 132


def test_a_limited_query_returns_the_newest_messages(shelf: Shelf) -> None:
    for i in range(10):
        shelf.put(b"%d" % i, KEYS="k")
    shelf.settled()
    assert shelf.bodies("k", count=3) == [b"7", b"8", b"9"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_loses_and_duplicates_no_key(clean: bool, tmp_path: Path) -> None:
    """D2 and D18: after a crash older keys vanish in the reference; after a rebuild the last one
    is there twice."""
    shelf = Shelf(tmp_path).open()
    for i in range(120):
        shelf.put(b"%d" % i, KEYS=f"key{i}")
    shelf.settled()
    end = shelf.close()
    again = Shelf(tmp_path).open(clean=clean, end=end)
    again.settled()
    assert all(again.bodies(f"key{i}") == [b"%d" % i] for i in range(120))
    entries = [
        IndexFile(str(path), 101, 50).count - 1 for path in Path(again.config.index_dir).iterdir()
    ]
    assert sum(entries) == 120
    again.close()


def test_a_missing_index_is_built_from_the_log(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path).open()
    shelf.put(b"kept", KEYS="k")
    end = shelf.close()
    for path in Path(shelf.config.index_dir).iterdir():
        path.unlink()
    (Path(shelf.config.own_dir) / "index.json").unlink()
    again = Shelf(tmp_path).open(clean=True, end=end)
    again.settled()
    assert again.bodies("k") == [b"kept"]
    again.close()


def test_every_message_is_indexed_while_the_log_grows(shelf: Shelf) -> None:
    """The thread catches up with the writer in the middle of a segment, again and again."""
    for i in range(5_000):
        shelf.put(b"x", KEYS=f"key{i}")
        if i % 500 == 0:
            time.sleep(0.004)
    shelf.settled()
    entries = [
        IndexFile(str(path), 101, 50).count - 1 for path in Path(shelf.config.index_dir).iterdir()
    ]
    assert sum(entries) == 5_000


def test_the_index_goes_on_after_an_error_that_is_not_expected(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [KeyError("unexpected")]
    works = Health.works

    def failing(health: Health, part: str) -> None:
        if failures:
            raise failures.pop()
        works(health, part)

    monkeypatch.setattr(Health, "works", failing)
    for number in range(100):  # over the end of a file
        shelf.put(b"x", KEYS=f"key{number}")
    wait_until(lambda: not failures)
    shelf.put(b"last", KEYS="last")
    shelf.settled()
    assert shelf.bodies("last") == [b"last"]
    assert "the index failed; it goes on after a pause" in caplog.text


def test_expired_index_files_are_removed_except_the_last(shelf: Shelf) -> None:
    for i in range(120):
        shelf.put(b"%d" % i, KEYS=f"key{i}")
    shelf.settled()
    assert shelf.index.delete_expired(shelf.log.max_offset) == 2
    assert len(list(Path(shelf.config.index_dir).iterdir())) == 1
    assert shelf.bodies("key119") == [b"119"]


def test_index_entries_beyond_the_end_of_the_log_do_not_prevent_a_start(tmp_path: Path) -> None:
    """After a power cut index pages may be on disk whose records are not."""
    shelf = Shelf(tmp_path).open()
    ends = [shelf.put(b"%d" % i, KEYS=f"key{i}") for i in range(120)]
    shelf.settled()
    shelf.close()
    again = Shelf(tmp_path).open(clean=False, end=ends[10])
    assert all(again.bodies(f"key{i}") == [] for i in range(10, 120))
    for i in range(20):
        again.put(b"new%d" % i, KEYS=f"new{i}")
    again.settled()
    assert all(again.bodies(f"new{i}") == [b"new%d" % i] for i in range(20))
    assert all(again.bodies(f"key{i}") == [b"%d" % i] for i in range(10))
    again.close()


@pytest.mark.parametrize("damage", [(36, b"\x7f\xff\xff\xff"), (0, bytes(40))])
def test_a_damaged_newest_index_file_is_rebuilt(damage: tuple[int, bytes], tmp_path: Path) -> None:
    shelf = Shelf(tmp_path).open()
    for i in range(120):
        shelf.put(b"%d" % i, KEYS=f"key{i}")
    shelf.settled()
    end = shelf.close()
    newest = max(Path(shelf.config.index_dir).iterdir())
    at, data = damage
    content = bytearray(newest.read_bytes())
    content[at : at + len(data)] = data
    newest.write_bytes(content)
    again = Shelf(tmp_path).open(clean=False, end=end)
    again.settled()
    assert all(again.bodies(f"key{i}") == [b"%d" % i] for i in range(120))
    again.close()


def test_a_query_for_a_key_of_every_message_reads_only_the_needed_entries(tmp_path: Path) -> None:
    file = IndexFile(str(tmp_path / "20231114221320456"), 7, 5_000, create=True)
    while file.add(1, file.count, 1_700_000_000_000):
        pass
    found = iter(file.find(1, 0, FOREVER))
    assert [next(found), next(found)] == [4_999, 4_998]
    assert not isinstance(file.find(1, 0, FOREVER), list)


def test_a_time_before_the_first_file_is_found_after_the_clock_stepped_back(
    shelf: Shelf,
) -> None:
    """D4: entries older than their file carry no time of their own."""
    start = shelf.clock.now()
    shelf.put(b"early", KEYS="k")
    shelf.clock.set(start - 3_600_000)
    shelf.put(b"stepped back", KEYS="k")
    shelf.settled()
    assert shelf.bodies("k", begin=start - 3_700_000, end=start - 3_500_000) == [b"stepped back"]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60_000)), max_size=40),
    st.integers(0, 9),
    st.integers(0, 60_000),
    st.integers(0, 60_000),
)
def test_an_index_file_finds_what_a_full_scan_finds(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[tuple[int, int]],
    wanted: int,
    begin: int,
    length: int,
) -> None:
    """For any clocks and shared slots, queries find every entry, and none of other keys."""
    path = tmp_path_factory.mktemp("index") / "20231114221320456"
    file = IndexFile(str(path), 3, 50, create=True)
    for number, (hashed, when) in enumerate(puts):
        assert file.add(hashed, number, when)
    found = list(file.find(wanted, begin, begin + length))
    same_key = [number for number, (hashed, _) in enumerate(puts) if hashed == wanted]
    in_time = [number for number in same_key if begin <= puts[number][1] <= begin + length]
    assert set(in_time) <= set(found) <= set(same_key)
    assert found == sorted(found, reverse=True)
