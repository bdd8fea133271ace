"""A data file's encodings: dictionaries, statistics and compression where they help."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import TableError
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog
from congreve.records.columns.arrow import REPEATED
from congreve.records.message.message import Record

from . import stores


def written(tmp_path: Path, bodies: list[bytes], codec: str = "zstd") -> pq.FileMetaData:
    """The footer of the only file of a table with these bodies."""
    with stores.open_writer(tmp_path / "store") as store:
        for body in bodies:
            record = Record(topic="T", body=body, properties={"TAGS": "t"})
            store.put(record)
    topic = DurableTopic(tmp_path / "store", "T", "b")
    warehouse = tmp_path / "lake"
    table = TopicTable(open_catalog(str(warehouse)), "rocketmq.T", SCHEMA, "day")
    table.create()
    with table.iceberg.transaction() as change:
        change.set_properties({"write.parquet.compression-codec": codec})
    Exporter(topic, table).run()
    assert [row[2] for row in stores.in_table(warehouse)] == bodies
    (file,) = warehouse.rglob("*.parquet")
    return pq.read_metadata(file)


def columns(footer: pq.FileMetaData) -> dict[str, pq.ColumnChunkMetaData]:
    group = footer.row_group(0)
    chunks = (group.column(number) for number in range(footer.num_columns))
    return {chunk.path_in_schema: chunk for chunk in chunks}


def test_columns_with_few_values_have_dictionaries(tmp_path: Path) -> None:
    found = columns(written(tmp_path, [b"x"] * 10))
    assert {name for name, chunk in found.items() if chunk.has_dictionary_page} == {*REPEATED}


def test_the_tables_property_chooses_the_codec(tmp_path: Path) -> None:
    found = columns(written(tmp_path, [b"0123456789" * 10] * 20, codec="snappy"))
    assert {found[name].compression for name in ("body", "msgId", "queueOffset")} == {"SNAPPY"}
    with pytest.raises(TableError, match=r"'gzip': use one of zstd, snappy"):
        written(tmp_path / "other", [b"x"], codec="gzip")


def test_columns_that_readers_select_by_have_statistics(tmp_path: Path) -> None:
    found = columns(written(tmp_path, [b"x"] * 10))
    named = {"queueOffset", "storeTimestamp", "bornTimestamp", "tags", "keys", "msgId", "queueId"}
    assert named <= {name for name, chunk in found.items() if chunk.is_stats_set}
    assert not found["body"].is_stats_set
    (task,) = stores.table_of(tmp_path / "lake").scan().plan_files()
    offset = stores.table_of(tmp_path / "lake").schema().find_field("queueOffset").field_id
    assert int.from_bytes(task.file.upper_bounds[offset], "little") == 9
    body = stores.table_of(tmp_path / "lake").schema().find_field("body").field_id
    assert body not in task.file.upper_bounds


@pytest.mark.parametrize(
    ("bodies", "compression"),
    [
        ([b"0123456789" * 10] * 20, "ZSTD"),
        ([random.Random(n).randbytes(100) for n in range(20)], "UNCOMPRESSED"),
        ([b""] * 20, "ZSTD"),
    ],
    ids=["compressible", "random", "empty"],
)
def test_bodies_are_compressed_where_that_helps(
    tmp_path: Path, bodies: list[bytes], compression: str
) -> None:
    assert columns(written(tmp_path, bodies))["body"].compression == compression
