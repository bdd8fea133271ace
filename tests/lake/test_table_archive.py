"""Messages by key, time and place while a table and the beginning of the log move on."""

from __future__ import annotations

from pathlib import Path

import pytest

from congreve.engine.exported_queues import ExportedQueues
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import TableError
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.table_archive import TableArchive
from congreve.records.record import decode_record

from . import stores

EVER = (0, 2**63 - 1)
BROKER = "broker-a"
MIB = 1 << 20


class Exported(ExportedQueues):
    """Says that the table of a warehouse has the present queues."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self.known = True
        self.deleted = False

    def refresh(self) -> None:
        """Nothing: it always knows."""

    def table(self, topic: str) -> str | None:
        return str(stores.table_of(self._warehouse).metadata.table_uuid) if self.known else None

    def has(self, topic: str, queue_id: int) -> bool:
        return not self.deleted


class Lake:
    """A store, its table, and an archive that reads the table."""

    def __init__(self, root: Path) -> None:
        self._store, self._warehouse = root / "store", root / "lake"
        self._count = 0
        self.exported = Exported(self._warehouse)
        self.archive = TableArchive({stores.TOPIC: self._table()}, BROKER, self.exported)

    def _table(self) -> TopicTable:
        return TopicTable(open_catalog(str(self._warehouse)), "rocketmq.T", SCHEMA, "day")

    def export(self, count: int) -> None:
        """Put further messages, and commit them."""
        with stores.open_writer(self._store) as writer:
            stores.put(writer, self._count, count)
        self._count += count
        Exporter(DurableTopic(self._store, stores.TOPIC, BROKER), self._table()).run()

    def set_aside(self) -> None:
        """Rename the table."""
        self._table().set_aside("rocketmq.old")

    def find(
        self, key: str, begin: int, most: int = 9, nbytes: int = MIB, last: int | None = None
    ) -> list[int]:
        """The numbers of messages with a key; all queues begin at `begin` in the log, the last one
        perhaps at `last`."""
        begins = {**dict.fromkeys(range(4), begin), 3: begin if last is None else last}
        found = self.archive.query(stores.TOPIC, key, most, nbytes, EVER, begins)
        return [int(decode_record(record).body.split()[1]) for record in found]

    def place(self, number: int) -> int:
        """Where a message is in the log."""
        rows = stores.table_of(self._warehouse).scan("queueOffset >= 0").to_arrow()
        places = zip(rows["body"].to_pylist(), rows["commitLogOffset"].to_pylist(), strict=True)
        return int(dict(places)[b"body %d" % number])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.export(8)
    return lake


def test_a_key_is_found_that_the_log_lost_after_the_last_query(lake: Lake) -> None:
    assert lake.find("key-3", begin=2) == [3]
    lake.export(8)
    assert lake.find("key-11", begin=4) == [11]
    assert lake.find("key-11", begin=4, last=2) == [], "the log has it"


def test_a_time_is_found_that_was_committed_after_the_last_search(lake: Lake) -> None:
    def offset_at(number: int) -> int | None:
        return lake.archive.offset_at(stores.TOPIC, 1, stores.BEGIN_MS + number * 1_200_000)

    assert (offset_at(5), offset_at(9)) == (1, None)
    lake.export(8)
    assert offset_at(9) == 2


def test_a_record_is_found_by_a_place_that_was_committed_after_the_last_look(lake: Lake) -> None:
    assert lake.archive.record_at(lake.place(3)) is not None
    lake.export(8)
    found = lake.archive.record_at(lake.place(12))
    assert found is not None and decode_record(found).body == b"body 12"


@pytest.mark.parametrize("exports", [1, 3])
def test_the_newest_messages_of_all_queues_are_found(lake: Lake, exports: int) -> None:
    for _ in range(exports):
        lake.export(24 // exports)
    newest = [*reversed(range(32))]
    assert lake.find("all", begin=8, most=64) == newest
    assert lake.find("all", begin=8, most=5) == newest[:5]
    assert lake.find("all", begin=4, most=5) == newest[16:21]
    size = len(lake.archive.record_at(lake.place(31)) or b"")
    assert lake.find("all", begin=8, nbytes=2 * size + 1) == newest[:3]
    assert lake.find("all", begin=8, most=0) == lake.find("all", begin=8, nbytes=-1) == []


def test_messages_of_a_deleted_topic_are_not_those_of_the_next(lake: Lake) -> None:
    assert lake.archive.read(stores.TOPIC, 0, 0, MIB) is not None
    lake.exported.deleted = True
    assert lake.archive.read(stores.TOPIC, 0, 0, MIB) is None
    assert lake.archive.first_offset(stores.TOPIC, 0) is None
    assert lake.archive.first_time(stores.TOPIC, 0) is None
    assert lake.archive.offset_at(stores.TOPIC, 0, 0) is None
    assert lake.archive.record_at(lake.place(3)) is None
    assert lake.find("key-3", begin=2) == []


def test_a_table_that_was_set_aside_is_not_read_on(lake: Lake) -> None:
    found = lake.archive.read(stores.TOPIC, 0, 0, 1)
    assert found is not None and found.stop == 1
    lake.set_aside()
    lake.export(8)
    found = lake.archive.read(stores.TOPIC, 0, 1, 1)
    assert found is not None and found.first == 1, "the new table has all messages again"
    assert lake.archive.first_offset(stores.TOPIC, 0) == 0


def test_reads_are_tried_again_until_it_is_known_what_tables_have(lake: Lake) -> None:
    lake.exported.known = False
    with pytest.raises(TableError, match="try again"):
        lake.archive.read(stores.TOPIC, 0, 0, MIB)
