"""A Parquet file, written row group by row group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from congreve.lake.parquet import metadata
from congreve.lake.parquet.metadata import MAGIC, Chunk, Codec, Encoding, Leaf
from congreve.lake.parquet.pages import ArrowRows, PageEncoder, PageScratch
from congreve.lake.parquet.thrift import Value
from congreve.records.columns.buffer import ColumnBuffer

REPEATED = (
    *("topic", "brokerName", "tags", "bornHost", "storeHost", "properties.key_value.key"),
    *("flag", "queueId", "sysFlag", "reconsumeTimes", "storeSize", "tagsCode"),
    *("bornTimestamp", "storeTimestamp"),
)
"""Columns whose values repeat, which have dictionaries. For all others a dictionary costs more time
than it saves bytes: zstd makes the plain pages smaller."""


class Sink(Protocol):
    """The output of a file."""

    def write(self, data: Any, /) -> int:
        """Append a buffer of bytes."""


@dataclass(frozen=True)
class ColumnOptions:
    """Paths of columns: with a dictionary if values repeat, compressed, with statistics."""

    dictionary: Collection[str]
    compressed: Collection[str]
    statistics: Collection[str]
    codec: Codec
    """That of the compressed columns."""
    level: int | None = None


class ParquetFile:
    """Writes one file, without the index of pages."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: ColumnOptions) -> None:
        """Fields of `schema` are int32, int64, times in us, texts, bytes, or required maps of texts
        without nulls; their metadata has their ids. Raises KeyError for another type."""
        self._sink = sink
        self._schema = schema
        scratch = PageScratch()
        self._columns = [_Column(leaf, scratch, options) for leaf in metadata.leaves(schema)]
        self._rows = 0
        self._groups: list[Value] = []
        sink.write(MAGIC)
        self._end = len(MAGIC)

    def write(self, rows: pa.RecordBatch) -> None:
        """Append a row group. Raises OSError, ValueError for a null in a required column."""
        if not len(rows):
            return
        columns = ArrowRows(rows)
        chunks = []
        for column in self._columns:
            chunk = column.write(columns, self._sink, self._end)
            self._end += chunk.file_bytes
            chunks.append(chunk)
        leaves = [column.leaf for column in self._columns]
        group = metadata.row_group(leaves, chunks, len(rows), len(self._groups))
        self._groups.append(group)
        self._rows += len(rows)

    def close(self) -> pq.FileMetaData:
        """End the file, which has rows; returns what its footer says. Raises OSError."""
        footer = metadata.footer(self._schema, self._rows, self._groups)
        self._sink.write(footer)
        return pq.read_metadata(pa.BufferReader(MAGIC + footer))


class _Column:
    """One column of the file."""

    def __init__(self, leaf: Leaf, scratch: PageScratch, options: ColumnOptions) -> None:
        self.leaf = leaf
        self._scratch = scratch
        self._codec = options.codec if leaf.path in options.compressed else Codec.UNCOMPRESSED
        self._compressor = _compressor(self._codec, options.level)
        self._has_statistics = leaf.path in options.statistics
        self._encoder = PageEncoder(
            scratch,
            leaf.column,
            leaf.part,
            leaf.width,
            optional=leaf.optional,
            dictionary=leaf.path in options.dictionary,
            statistics=self._has_statistics,
        )

    def write(self, rows: ArrowRows, sink: Sink, begin: int) -> Chunk:
        """Write the column of a row group at the place `begin` of the file."""
        encoder = self._encoder
        encoder.begin(rows)
        # One value takes a few bytes, whatever the number of rows: a call would only cost time.
        is_constant = encoder.has_dictionary and encoder.dictionary_values == 1
        compressor = None if is_constant else self._compressor
        chunk = Chunk(begin, codec=self._codec if compressor else Codec.UNCOMPRESSED)
        if encoder.has_dictionary:
            chunk.encoding = Encoding.RLE_DICTIONARY
            chunk.dictionary_at = begin
            data = _compressed(self._scratch.dictionary_page, compressor)
            size = len(self._scratch.dictionary_page)
            header = metadata.dictionary_header(encoder.dictionary_values, size, len(data))
            _put(chunk, sink, header, data, size)
        chunk.data_at = begin + chunk.file_bytes
        while values := encoder.next_page():
            data = _compressed(self._scratch.page, compressor)
            size = len(self._scratch.page)
            header = metadata.data_header(values, chunk.encoding, size, len(data))
            _put(chunk, sink, header, data, size)
            chunk.values += values
        if self._has_statistics:
            chunk.statistics = metadata.statistics(
                encoder.minimum, encoder.maximum, encoder.null_count
            )
        return chunk


def _compressor(codec: Codec, level: int | None) -> pa.Codec | None:
    name = codec.name.lower()
    if codec == Codec.UNCOMPRESSED:
        return None
    return pa.Codec(name, level) if pa.Codec.supports_compression_level(name) else pa.Codec(name)


def _compressed(page: ColumnBuffer, compressor: pa.Codec | None) -> ColumnBuffer | pa.Buffer:
    return page if compressor is None else compressor.compress(page)


def _put(
    chunk: Chunk, sink: Sink, header: bytes, data: ColumnBuffer | pa.Buffer, plain: int
) -> None:
    sink.write(header)
    sink.write(data)
    chunk.file_bytes += len(header) + len(data)
    chunk.plain_bytes += len(header) + plain
