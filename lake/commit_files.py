"""The Parquet files of one commit, written as batches arrive."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table
from pyiceberg.typedef import Record

MOST_OPEN = 64
"""The most open files; to open one more, the file that was opened first is closed."""


@dataclass(frozen=True)
class _OpenFile:
    partition: Record
    output: OutputFile
    writer: FileFormatWriter


class CommitFiles:
    """Splits batches into a file for each partition of a table, with one batch in memory.

    discard() deletes the written files, and so does leaving the context without finish().
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
        self._open: dict[Record, _OpenFile] = {}
        self._files: list[DataFile] = []
        self._paths: list[str] = []
        self._finished = False
        self.rows = 0
        self.nbytes = 0
        """Bytes of the written columns, before compression."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._finished:
            self.discard()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises OSError when the files cannot be written."""
        self.rows += len(batch)
        self.nbytes += batch.nbytes
        for key, rows in self._by_partition(pa.Table.from_batches([batch])):
            columns = rows.cast(self._schema)
            self._file(key).writer.write(columns)

    def finish(self) -> list[DataFile]:
        """Close the files, and return all of them for a commit."""
        while self._open:
            self._close_first()
        self._finished = True
        return self._files

    def discard(self) -> None:
        """Delete the files, none of which may be in a snapshot."""
        for file in self._open.values():
            with suppress(OSError, ValueError):  # a full disk; a file without rows
                file.writer.close()
        for path in self._paths:
            with suppress(OSError):
                self._table.io.delete(path)

    def _by_partition(self, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
        spec, schema = self._table.spec(), self._table.schema()
        if spec.is_unpartitioned():
            yield None, rows
            return
        values: dict[str, pa.Array] = {}
        for field in spec.fields:
            source = schema.find_column_name(field.source_id)
            kind = schema.find_type(field.source_id)
            values[field.name] = field.transform.pyarrow_transform(kind)(
                rows[source].combine_chunks()
            )
        names = list(values)
        keys = pa.table({**values, "": pa.array(range(len(rows)), pa.int64())})
        groups = keys.group_by(names, use_threads=False).aggregate([("", "list")])
        for group in groups.to_batches():
            for number in range(len(group)):
                key = PartitionKey(
                    [
                        PartitionFieldValue(field, group[field.name][number].as_py())
                        for field in spec.fields
                    ],
                    spec,
                    schema,
                )
                places = group["_list"][number].values
                yield key, rows if len(places) == len(rows) else rows.take(places)

    def _file(self, key: PartitionKey | None) -> _OpenFile:
        partition = Record() if key is None else key.partition
        found = self._open.get(partition)
        if found is None:
            if len(self._open) == MOST_OPEN:
                self._close_first()
            name = f"{uuid.uuid4()}.parquet"
            path = self._table.location_provider().new_data_location(name, key)
            output = self._table.io.new_output(path)
            writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(
                output, self._table.schema(), self._table.properties
            )
            self._paths.append(path)
            found = self._open[partition] = _OpenFile(partition, output, writer)
        return found

    def _close_first(self) -> None:
        file = self._open.pop(next(iter(self._open)))
        statistics = file.writer.close()
        self._files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.output.location,
                file_format=FileFormat.PARQUET,
                partition=file.partition,
                file_size_in_bytes=len(file.output),
                sort_order_id=None,
                spec_id=self._table.spec().spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )
