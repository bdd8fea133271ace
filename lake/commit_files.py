"""The Parquet files of one commit, written as batches arrive."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from congreve.lake.data_file_writer import DataFileWriter, with_short_offsets

SORTED_BY = ("brokerName", "queueId", "queueOffset")
"""The order of the rows in each file, which a table declares as its sort order."""
MOST_OPEN = 64
"""The most open files; to open one more, the file that was opened first is closed."""


@dataclass(frozen=True)
class _OpenFile:
    partition: Record
    writer: DataFileWriter


class CommitFiles:
    """Splits batches into a file for each partition of a table, with one batch in memory.

    Batches come in the order SORTED_BY.

    discard() deletes the written files, and so does leaving the context without finish().
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._schema = table_schema(table)
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
        """Append rows; columns that they lack are null. Raises OSError when the files cannot be
        written, ValueError for a null in a required column."""
        self.rows += len(batch)
        self.nbytes += batch.nbytes
        columns = [_column(batch, field) for field in self._schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for key, part in self._by_partition(rows):
            self._file(key).writer.write(part)

    def finish(self) -> list[DataFile]:
        """Close the files, and return all of them for a commit."""
        while self._open:
            self._close_first()
        self._finished = True
        return self._files

    def discard(self) -> None:
        """Delete the files, none of which may be in a snapshot."""
        for file in self._open.values():
            with suppress(OSError):  # a full disk
                file.writer.abandon()
        for path in self._paths:
            with suppress(OSError):
                self._table.io.delete(path)

    def _by_partition(
        self, rows: pa.RecordBatch
    ) -> Iterator[tuple[PartitionKey | None, pa.RecordBatch]]:
        spec = self._table.spec()
        if spec.is_unpartitioned():
            yield None, rows
            return
        values = {field.name: self._partition_values(field, rows) for field in spec.fields}
        if all(column.null_count == 0 and _is_constant(column) for column in values.values()):
            yield self._key({name: column[0] for name, column in values.items()}), rows
            return
        keys = pa.table({**values, "": pa.array(np.arange(len(rows)))})
        groups = keys.group_by(list(values), use_threads=False).aggregate([("", "list")])
        for group in groups.to_batches():
            for number in range(len(group)):
                key = self._key({name: group[name][number] for name in values})
                places = group["_list"][number].values
                first, count = places[0].as_py(), len(places)
                # Ascending places: without a gap if the last is count - 1 behind the first.
                if places[-1].as_py() - first == count - 1:
                    yield key, rows.slice(first, count)
                else:
                    yield key, rows.take(places)

    def _partition_values(self, field: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        schema = self._table.schema()
        kind = schema.find_type(field.source_id)
        transform = field.transform.pyarrow_transform(kind)
        return transform(rows[schema.find_column_name(field.source_id)])

    def _key(self, values: dict[str, pa.Scalar]) -> PartitionKey:
        spec = self._table.spec()
        fields = [PartitionFieldValue(field, values[field.name].as_py()) for field in spec.fields]
        return PartitionKey(fields, spec, self._table.schema())

    def _file(self, key: PartitionKey | None) -> _OpenFile:
        partition = Record() if key is None else key.partition
        found = self._open.get(partition)
        if found is None:
            if len(self._open) == MOST_OPEN:
                self._close_first()
            name = f"{uuid.uuid4()}.parquet"
            path = self._table.location_provider().new_data_location(name, key)
            writer = DataFileWriter(
                self._table.io.new_output(path),
                self._table.schema(),
                self._schema,
                self._table.properties,
            )
            self._paths.append(path)
            found = self._open[partition] = _OpenFile(partition, writer)
        return found

    def _close_first(self) -> None:
        file = self._open.pop(next(iter(self._open)))
        statistics = file.writer.close()
        self._files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.writer.output.location,
                file_format=FileFormat.PARQUET,
                partition=file.partition,
                file_size_in_bytes=len(file.writer.output),
                sort_order_id=_sort_order_id(self._table),
                spec_id=self._table.spec().spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )


def table_schema(table: Table) -> pa.Schema:
    """The columns of a table as batches have them, with the ids of fields."""
    return with_short_offsets(schema_to_pyarrow(table.schema(), include_field_ids=True))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(len(batch), field.type)
    column = batch.column(place)
    return column if column.type == field.type else column.cast(field.type)


def _sort_order_id(table: Table) -> int | None:
    """The table's sort order if it is SORTED_BY; another program may have changed the table's."""
    order = table.sort_order()
    names = [table.schema().find_column_name(field.source_id) for field in order.fields]
    return order.order_id if tuple(names) == SORTED_BY else None


def _is_constant(column: pa.Array) -> bool:
    bounds = pc.min_max(column)
    return bool(bounds["min"] == bounds["max"])
