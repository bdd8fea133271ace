"""A topic's table with columns of bodies, and the table of messages whose bodies do not fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, Reference
from pyiceberg.expressions.literals import literal

from congreve.lake.bodies.body_reader import BodyReader
from congreve.lake.bodies.body_schema import BodySchema
from congreve.lake.commit_files import CommitFiles
from congreve.lake.errors import CommitConflictError, ProgressError
from congreve.lake.progress import EndOffsets, LastMessage, OfBrokers, Progress, advanced
from congreve.lake.table import REASON, TopicTable

logger = logging.getLogger(__name__)


class BodyTable:
    """Both tables of a topic, for an Exporter: a message is in exactly one of them.

    Two tables cannot be committed at once, so each has progress of its own, and that of the dead
    letters goes ahead: append() commits them first. What the dead letters have beyond the table's
    progress was decided by a commit that a kill or a conflict ended half-way, and stays: the rest
    of these messages belongs into the table.
    """

    def __init__(self, table: TopicTable, schema: BodySchema, broker: str) -> None:
        """The table of dead letters is created for the first of them."""
        self._table = table
        self._dead = table.dead_letter_table()
        self._schema = schema
        self._columns = schema.columns()
        self._broker = broker
        self._has_dead = False
        self.name = table.name

    @property
    def tables(self) -> tuple[TopicTable, ...]:
        """Both tables."""
        return self._table, self._dead

    def load(self) -> bool:
        """Read the state of both tables; false if there is no table yet.

        The table gets the columns of the schema that it lacks. Raises TableError, also for a
        column of another type.
        """
        columns = pa.schema(self._columns.values())
        while self._table.load():
            # After the table, so that the dead letters are never behind it.
            self._has_dead = self._dead.load()
            try:
                if not self._table.add_columns(columns, self._schema.format):
                    return True
            except CommitConflictError as error:
                logger.info("%s; its columns are compared again", error)
        return False

    def create(self) -> None:
        """Create the table if there is none, and load() it."""
        self._table.create()
        self.load()

    def progress(self) -> EndOffsets:
        """That of the table: both have all messages before these offsets. Raises TableError."""
        return self._table.progress()

    def last_messages(self) -> OfBrokers:
        """Those of the table. Raises TableError."""
        return self._table.last_messages()

    def last_rows(self, broker: str, ends: Mapping[int, int]) -> dict[int, LastMessage]:
        """Those of both tables. Raises TableError."""
        found = self._table.last_rows(broker, ends)
        left = {queue_id: end for queue_id, end in ends.items() if queue_id not in found}
        return {**found, **(self._dead.last_rows(broker, left) if self._has_dead else {})}

    @property
    def uuid(self) -> str:
        """That of the table."""
        return self._table.uuid

    def new_files(self) -> DividedFiles:
        """Files for one commit to each table. Raises TableError."""
        types = self._table.column_types()
        columns = {
            name: pa.field(column.name, types[column.name])
            for name, column in self._columns.items()
        }
        reader = BodyReader(self._schema, columns)
        files = self._table.new_files(self._schema.format)
        return DividedFiles(self, reader, files, self._decided())

    def append(self, files: DividedFiles, progress: Progress) -> None:
        """Commit dead letters, then rows, each with its progress.

        Raises what TopicTable.append() raises; what was committed stays, and load() shows it.
        """
        if files.dead is not None:
            known = self._dead.progress()
            before = known.get(self._broker, {})
            moved = {
                queue: max(end, before.get(queue, 0))
                for queue, end in progress.ends[self._broker].items()
            }
            self._dead.append(files.dead, Progress(advanced(known, self._broker, moved), {}))
        self._table.append(files.fitting, progress)

    def new_dead_files(self) -> CommitFiles:
        """Files of dead letters, whose table is created if there is none."""
        if not self._has_dead:
            self._dead.create()
            self._has_dead = True
        return self._dead.new_files()

    def _decided(self) -> dict[int, Decided]:
        """By queue id: what the dead letters have decided beyond the table's progress."""
        if not self._has_dead:
            return {}
        ends = self._table.progress().get(self._broker, {})
        return {
            queue: Decided(end, self._dead_offsets(queue, ends.get(queue, 0)))
            for queue, end in self._dead.progress().get(self._broker, {}).items()
            if end > ends.get(queue, 0)
        }

    def _dead_offsets(self, queue_id: int, start: int) -> pa.Array:
        condition = And(
            EqualTo(term=Reference("brokerName"), value=literal(self._broker)),
            And(
                EqualTo(term=Reference("queueId"), value=literal(queue_id)),
                GreaterThanOrEqual(term=Reference("queueOffset"), value=literal(start)),
            ),
        )
        rows = self._dead.iceberg.scan(condition, selected_fields=("queueOffset",)).to_arrow()
        return rows["queueOffset"].combine_chunks()


class Decided:
    """Messages of a queue before `end`: those at `dead` (int64 offsets) are dead letters."""

    def __init__(self, end: int, dead: pa.Array) -> None:
        self.end = end
        self.dead = dead.to_numpy()


class DividedFiles:
    """The files of one commit: rows that fit, and dead letters once there is one."""

    def __init__(
        self,
        table: BodyTable,
        reader: BodyReader,
        fitting: CommitFiles,
        decided: dict[int, Decided],
    ) -> None:
        self._table = table
        self._reader = reader
        self._decided = decided
        self.fitting = fitting
        self.dead: CommitFiles | None = None
        self.rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the written columns of both tables, before compression."""
        return self.fitting.nbytes + (0 if self.dead is None else self.dead.nbytes)

    def __enter__(self) -> Self:
        self.fitting.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.fitting.__exit__(kind, error, trace)
        if self.dead is not None:
            self.dead.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append messages of one queue.

        Raises OSError, TableError, ProgressError for a message that a former schema has decided to
        fit and the present one does not.
        """
        decided = self._decided.get(batch["queueId"][0].as_py())
        offsets = batch["queueOffset"].to_numpy()
        if decided is not None:
            known = np.isin(offsets, decided.dead)
            self.rows += int(known.sum())  # in the table of dead letters, but not counted yet
            batch, offsets = batch.filter(pa.array(~known)), offsets[~known]
        if not len(batch):
            return
        columns, failed = self._reader.read(batch["body"])
        if failed:
            fits = np.ones(len(batch), bool)
            fits[[*failed]] = False
            if decided is not None and (offsets[~fits] < decided.end).any():
                raise ProgressError(self._undecided(offsets[~fits][0], batch))
            self._write_dead(batch.filter(pa.array(~fits)), [failed[i] for i in sorted(failed)])
            batch = batch.filter(pa.array(fits))
        self.rows += len(batch) + len(failed)
        if len(batch):
            names = [*batch.schema.names, *columns]
            rows = pa.RecordBatch.from_arrays([*batch.columns, *columns.values()], names)
            self.fitting.write(rows)

    def _write_dead(self, batch: pa.RecordBatch, reasons: list[str]) -> None:
        if self.dead is None:
            self.dead = self._table.new_dead_files()
        self.dead.write(batch.append_column(REASON, pa.array(reasons, pa.string())))

    def _undecided(self, offset: int, batch: pa.RecordBatch) -> str:
        return (
            f"message {offset} of queue {batch['queueId'][0]} fitted the schema that "
            f"{self._table.name} had: export it with that schema once, then change it"
        )
