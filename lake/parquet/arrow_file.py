"""A Parquet file by pyarrow's writer, for columns of types that ParquetFile does not have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from congreve.lake.parquet.file_writer import ColumnOptions
from congreve.lake.parquet.metadata import Codec

_NAMES = {Codec.ZSTD: "zstd", Codec.SNAPPY: "snappy", Codec.LZ4_RAW: "lz4"}


class ArrowParquetFile:
    """Writes one file, as ParquetFile does, for all types of Arrow; it takes longer."""

    def __init__(self, sink: Any, schema: pa.Schema, options: ColumnOptions) -> None:
        """The metadata of the fields of `schema` has their ids."""
        name = _NAMES.get(options.codec, "NONE")
        level = options.level if options.codec == Codec.ZSTD else None
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression=dict.fromkeys(options.compressed, name),
            compression_level=dict.fromkeys(options.compressed, level),
            use_dictionary=[*options.dictionary],
            write_statistics=[*options.statistics],
            store_schema=False,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        """Append a row group. Raises OSError."""
        self._writer.write_batch(rows, row_group_size=max(len(rows), 1))

    def close(self) -> pq.FileMetaData:
        """End the file; returns what its footer says. Raises OSError."""
        self._writer.close()
        return self._writer.writer.metadata
