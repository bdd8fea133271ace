"""Parquet files of messages: an encoding for each column, statistics from the footer."""

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
from pyiceberg.typedef import Properties

REPEATED = ("topic", "brokerName", "tags", "bornHost", "storeHost")
"""Columns with few values, which have dictionaries. For all others a dictionary costs more time
than it saves bytes: zstd makes the plain pages smaller."""
UNIQUE = ("bodyCRC",)
"""Columns whose values have nothing in common, which are not compressed."""
UNCOMPARED = (
    *("body", "properties.key", "properties.value", "flag", "offsetMsgId", "storeSize"),
    *("tagsCode", "sysFlag", "bodyCRC", "reconsumeTimes", "bornHost", "storeHost"),
)
"""Columns by which few readers select. The others have statistics, so that a reader skips files."""
NOTHING = MetricsMode(MetricModeTypes.NONE)
LEVEL = 1
SAMPLE_BYTES = 256 << 10
WORTH = 0.9
"""Bodies are compressed if a sample of them becomes this share of its size, or less."""


class DataFileWriter:
    """One Parquet file of a table's data; every write() is a row group."""

    def __init__(
        self, output: OutputFile, schema: Schema, arrow: pa.Schema, properties: Properties
    ) -> None:
        """A file with the columns `schema`, which are `arrow` in Arrow's terms."""
        self.output = output
        self._arrow = arrow
        self._paths = parquet_path_to_id_mapping(schema)
        self._plan = compute_statistics_plan(
            schema,
            {
                **properties,
                **{f"write.metadata.metrics.column.{name}": "none" for name in UNCOMPARED},
            },
        )
        self._stream: Any = None
        self._writer: Any = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows, which have the file's columns. Raises OSError."""
        if self._writer is None:
            self._stream = self.output.create(overwrite=True)
            self._writer = pq.ParquetWriter(self._stream, self._arrow, **self._options(rows))
        self._writer.write_table(pa.Table.from_batches([rows]))

    def close(self) -> DataFileStatistics:
        """End the file, which has rows. Raises OSError."""
        with self._stream:
            self._writer.close()
        return data_file_statistics_from_parquet_metadata(
            self._writer.writer.metadata, self._plan, self._paths
        )

    def abandon(self) -> None:
        """Close what is open, for a file that will be deleted. Raises OSError."""
        if self._stream is not None:
            with self._stream:
                self._writer.close()

    def _options(self, rows: pa.RecordBatch) -> dict[str, Any]:
        plain = {*UNIQUE, *(() if _compressible(rows["body"]) else ("body",))}
        zstd = [path for path in self._paths if path not in plain]
        return {
            "compression": dict.fromkeys(plain, "NONE") | dict.fromkeys(zstd, "ZSTD"),
            "compression_level": dict.fromkeys(zstd, LEVEL),
            "use_dictionary": list(REPEATED),
            "write_statistics": [
                path for path, field in self._paths.items() if self._plan[field].mode != NOTHING
            ],
        }


def _compressible(bodies: pa.Array) -> bool:
    """True if zstd makes bodies smaller, as the first ones tell."""
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
