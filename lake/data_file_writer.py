"""A data file of a table: an encoding for each column, statistics from the footer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Properties

from congreve.lake.errors import TableError
from congreve.records.columns.arrow import REPEATED, TYPES

UNIQUE = ("bodyCRC",)
"""Columns whose values have nothing in common, which are not compressed."""
UNCOMPARED = (
    *("body", "properties.key", "properties.value", "flag", "offsetMsgId", "storeSize"),
    *("tagsCode", "sysFlag", "bodyCRC", "reconsumeTimes", "bornHost", "storeHost"),
)
"""Columns by which few readers select. The others have statistics, so that a reader skips files."""
NOTHING = MetricsMode(MetricModeTypes.NONE)
CODECS = {"zstd": "zstd", "snappy": "snappy", "lz4": "lz4", "uncompressed": "none"}
"""Arrow's name of a codec by the value of the table's property."""
LEVEL = 1
SHORT = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
SAMPLE_BYTES = 256 << 10
WORTH = 0.9
"""Bodies are compressed if a sample of them becomes this share of its size, or less."""


class DataFileWriter:
    """One Parquet file of a table's data; every write() is a row group."""

    def __init__(
        self, output: OutputFile, schema: Schema, arrow: pa.Schema, properties: Properties
    ) -> None:
        """A file with the columns `schema`, which are `arrow` in Arrow's terms.

        `properties` are those of the table. Raises TableError for a codec that is not in CODECS.
        """
        self.output = output
        self._arrow = arrow
        self._paths = parquet_path_to_id_mapping(schema)
        unread = {f"write.metadata.metrics.column.{name}": "none" for name in UNCOMPARED}
        self._plan = compute_statistics_plan(schema, {**properties, **unread})
        codec = properties.get(TableProperties.PARQUET_COMPRESSION, "zstd")
        if codec not in CODECS:
            raise TableError(
                f"the table's property {TableProperties.PARQUET_COMPRESSION} is {codec!r}: "
                f"use one of {', '.join(CODECS)}"
            )
        self._codec = CODECS[codec]
        self._level = int(properties.get(TableProperties.PARQUET_COMPRESSION_LEVEL, LEVEL))
        self._stream: Any = None
        self._file: pq.ParquetWriter

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows, which have the file's columns.

        Raises OSError, and ValueError for a null in a required column.
        """
        if self._stream is None:
            self._stream = self.output.create(overwrite=True)
            self._file = self._open(rows)
        if len(rows):
            self._file.write_batch(rows, row_group_size=len(rows))

    def close(self) -> DataFileStatistics:
        """End the file, which has rows. Raises OSError."""
        with self._stream:
            self._file.close()
        footer = self._file.writer.metadata
        return data_file_statistics_from_parquet_metadata(footer, self._plan, self._paths)

    def abandon(self) -> None:
        """Close the file, which will be deleted. Raises OSError."""
        if self._stream is not None:
            with self._stream:
                self._file.close()

    def _open(self, rows: pa.RecordBatch) -> pq.ParquetWriter:
        """The file, with options for each column that suit its first rows."""
        plain = {*UNIQUE}
        if "body" in rows.schema.names and not _compressible(rows["body"]):
            plain.add("body")
        compressed = [path for path in self._paths if path not in plain]
        levels = dict.fromkeys(compressed, self._level) if self._codec == "zstd" else None
        of_bodies = [path for path in self._paths if path.split(".")[0] not in TYPES]
        return pq.ParquetWriter(
            self._stream,
            self._arrow,
            compression=dict.fromkeys(compressed, self._codec),
            compression_level=levels,
            use_dictionary=[*REPEATED, *of_bodies],
            write_statistics=[
                path for path, field in self._paths.items() if self._plan[field].mode != NOTHING
            ],
            store_schema=False,
        )


def with_short_offsets(schema: pa.Schema) -> pa.Schema:
    """The schema with 32-bit offsets of texts, which the columns of messages have."""

    def short(field: pa.Field) -> pa.Field:
        kind = SHORT.get(field.type, field.type)
        if pa.types.is_map(kind):
            kind = pa.map_(short(kind.key_field), short(kind.item_field))
        elif pa.types.is_large_list(kind):
            kind = pa.list_(short(kind.value_field))
        elif pa.types.is_struct(kind):
            kind = pa.struct(map(short, kind))
        return field.with_type(kind)

    return pa.schema(map(short, schema))


def _compressible(bodies: pa.Array) -> bool:
    """True if zstd makes the first bodies smaller."""
    offsets = bodies.buffers()[1]
    values = bodies.buffers()[2]
    if values is None or offsets is None:
        return True
    start = bodies.offset
    ends = memoryview(offsets).cast("i")
    sample = values[ends[start] : min(ends[start + len(bodies)], ends[start] + SAMPLE_BYTES)]
    if not len(sample):
        return True
    return len(pa.Codec("zstd", LEVEL).compress(sample)) <= WORTH * len(sample)
