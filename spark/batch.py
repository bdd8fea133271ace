"""The batch reader: the driver plans ranges, tasks read them as Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from congreve.records.record import string_hash
from congreve.spark.offsets import Queue, Range
from congreve.spark.options import Options
from congreve.spark.planning import Source, open_source, planned, tasks
from congreve.spark.pushdown import Limits, limits
from congreve.spark.rows import Scan


@dataclass
class RangePartition(InputPartition):
    """The ranges that one task reads, in order."""

    parts: tuple[Range, ...]

    def __init__(self, parts: tuple[Range, ...]) -> None:
        super().__init__(parts)
        self.parts = parts


def scan_of(options: Options, schema: pa.Schema, found: Limits) -> Scan:
    """The scan that tasks apply to the messages of their ranges."""
    tags = options.filter.tags
    if found.tags is not None:
        tags = tuple(sorted(found.tags if tags is None else found.tags & set(tags)))
    codes = None if tags is None else {string_hash(tag) for tag in tags}
    if found.codes is not None:
        codes = set(found.codes) if codes is None else codes & found.codes
    return Scan(
        schema=schema,
        tags=tags,
        sql=options.filter.sql,
        codes=None if codes is None else tuple(sorted(codes)),
        verify_crc=options.verify_crc,
        decompress=options.decompress_body,
        fail_on_data_loss=options.fail_on_data_loss,
    )


class BatchReader(DataSourceReader):
    """Plans a batch read and runs its tasks; only what was passed to __init__ is pickled to the
    tasks."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._limits = Limits(key=options.filter.key)

    def partitions(self) -> list[InputPartition]:
        """The partitions of the read, planned on the driver."""
        source = open_source(self._options)
        try:
            ranges = self.plan(source)
            source.check(ranges, self.scan())
            options = self._options
            if self._limits.key is not None and options.max_partitions == 0:
                # The rows of a key are scattered: one task for each would dominate the cost.
                queues = len({part.queue for part in ranges})
                options = replace(options, max_partitions=max(queues, options.min_partitions))
            return [RangePartition(parts) for parts in tasks(ranges, options)]
        finally:
            source.close()

    def plan(self, source: Source) -> list[Range]:
        """The ranges to read. Raises what planned() raises."""
        found = self._limits
        ranges = [part for part in planned(source, self._options) if found.admits(part.queue)]
        ranges = [found.narrow(source, part) for part in ranges]
        if found.key is not None:
            ranges = list(_of_key(source, ranges, found.key))
        return [part for part in ranges if part.start < part.stop]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of a partition as Arrow batches, in a task."""
        if not isinstance(partition, RangePartition):
            return  # Spark reads one empty partition when there are none
        freeze_imports()
        yield from self.batches(partition)

    def batches(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        """The messages of a partition, in any process."""
        source = open_source(self._options)
        try:
            for part in partition.parts:
                yield from source.read(part, self.scan())
        finally:
            source.close()

    def scan(self) -> Scan:
        """The scan of the tasks."""
        return scan_of(self._options, self._schema, self._limits)


class PushdownReader(BatchReader):
    """A BatchReader that accepts Spark's filters.

    Spark calls pushFilters() only when its setting spark.sql.python.filterPushdown.enabled is true;
    therefore the option `pushdown`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the read by the filters; returns all of them, so that Spark applies them again."""
        self._limits = replace(limits(filters), key=self._limits.key or limits(filters).key)
        return filters


@cache
def freeze_imports() -> None:
    """Freeze the imported objects once in a process, so that the worker's garbage collections skip
    them.

    Spark's worker collects all garbage after each task, and the next task waits for that.
    """
    gc.freeze()


def _of_key(source: Source, ranges: list[Range], key: str) -> Iterator[Range]:
    found: dict[Queue, list[int]] = source.find_key([part.queue for part in ranges], key)
    for queue, start, stop in ranges:
        offsets = [offset for offset in found.get(queue, []) if start <= offset < stop]
        # Adjacent offsets are read together.
        while offsets:
            count = 1
            while count < len(offsets) and offsets[count] == offsets[0] + count:
                count += 1
            yield Range(queue, offsets[0], offsets[0] + count)
            offsets = offsets[count:]
