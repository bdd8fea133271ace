"""Spark's own Parquet readers find the rows of a table's data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from congreve.lake.commit_files import CommitFiles
from congreve.lake.durable import SCHEMA
from congreve.lake.table import TopicTable, open_catalog
from congreve.records.columns.arrow import REPEATED

ROWS = 6_000


def value_of(field: pa.Field, number: int) -> Any:
    if pa.types.is_map(field.type):
        return [(f"k{i}", f"v{number * i}") for i in range(number % 4)]
    if pa.types.is_integer(field.type):
        return number if field.name == "queueOffset" else number // 500
    if pa.types.is_timestamp(field.type):
        return number // 25 * 1000
    if pa.types.is_binary(field.type):
        return b"%06d" % number * (number % 70)  # several pages
    if field.nullable and number % 7 == 0:
        return None
    return f"{field.name}-{number % 100 if field.name in REPEATED else number}"


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_spark_reads_the_written_rows(spark: Any, tmp_path: Path, vectorized: str) -> None:
    rows = [{field.name: value_of(field, n) for field in SCHEMA} for n in range(ROWS)]
    table = TopicTable(open_catalog(str(tmp_path)), "rocketmq.T", SCHEMA, "day")
    table.create()
    with CommitFiles(table.iceberg) as files:
        for begin in (0, ROWS // 2):
            files.write(pa.RecordBatch.from_pylist(rows[begin : begin + ROWS // 2], schema=SCHEMA))
        (file,) = files.finish()
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
    found = spark.read.parquet(file.file_path)
    assert found.filter("queueOffset >= 3000 and tags = 'tags-5'").count() == 26
    table = found.orderBy("queueOffset").toArrow()
    assert table.drop_columns(["properties"]).to_pylist() == [
        {name: value for name, value in row.items() if name != "properties"}
        for row in pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist()
    ]
    maps = [dict(entries) for entries in table["properties"].to_pylist()]
    assert maps == [dict(row["properties"]) for row in rows]
    spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
