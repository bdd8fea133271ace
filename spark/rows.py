"""Builds Arrow batches of the requested schema from messages of one queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from congreve.records.columns.arrow import OF_QUEUE, repeated, to_batch
from congreve.records.columns.builder import RecordColumns
from congreve.records.columns.column import Column
from congreve.records.filter.record_filter import RecordFilter
from congreve.spark.offsets import Queue
from congreve.spark.schema import CORRUPT, OF_ENTRY


@dataclass(frozen=True)
class Scan:
    """What a task needs in addition to its offsets; pickled from the driver to the tasks."""

    schema: pa.Schema
    tags: tuple[str, ...] | None = None
    sql: str | None = None
    codes: tuple[int, ...] | None = field(default=None)
    verify_crc: bool = False
    decompress: bool = True
    fail_on_data_loss: bool = True

    @property
    def entries_suffice(self) -> bool:
        """Whether the consume queue's entries hold all requested columns, so that the log is not
        read."""
        return (
            self.tags is None
            and self.sql is None
            and not self.verify_crc
            and set(self.schema.names) <= {*OF_QUEUE, *OF_ENTRY}
        )


class QueueRows:
    """Collects rows of one queue into batches."""

    def __init__(self, scan: Scan, queue: Queue, records: RecordFilter | None = None) -> None:
        self._scan = scan
        self._of_queue = dict(zip(OF_QUEUE, queue, strict=True))
        self._constants: dict[str, pa.Array] = {}
        names = [
            "propertiesJson" if name == "properties" and pa.types.is_string(kind) else name
            for name, kind in zip(scan.schema.names, scan.schema.types, strict=True)
            if name not in OF_QUEUE and name != CORRUPT
        ]
        self.gather = RecordColumns(
            names,
            tags=scan.tags,
            records=records,
            verify_crc=scan.verify_crc,
            keep_corrupt=CORRUPT in scan.schema.names,
            decompress=scan.decompress,
        )

    def take(self) -> pa.RecordBatch:
        """Take the collected rows as a batch."""
        rows, corrupt = self.gather.rows, self.gather.corrupt
        columns: dict[str, Column | pa.Array] = dict(self.gather.take())
        if "propertiesJson" in columns:
            columns["properties"] = columns.pop("propertiesJson")
        if corrupt:
            reasons: list[str | None] = [None] * rows
            for row, reason in corrupt:
                reasons[row] = reason
            columns[CORRUPT] = pa.array(reasons, pa.string())
        return self.batch(columns, rows)

    def batch(self, columns: Mapping[str, Column | pa.Array], rows: int) -> pa.RecordBatch:
        """A batch of the given columns and of those that are constant in the queue."""
        constants = {
            name: self._constant(name, rows)
            for name in self._of_queue
            if name in self._scan.schema.names
        }
        return to_batch({**columns, **constants}, self._scan.schema, rows)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """A constant column; it is reused while batches have the same length."""
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            kind = self._scan.schema.field(name).type
            known = self._constants[name] = repeated(self._of_queue[name], kind, rows)
        return known.slice(0, rows)
