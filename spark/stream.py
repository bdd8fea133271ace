"""The stream side of the source: offsets that a checkpoint resumes exactly, within limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from congreve.errors import CongreveError
from congreve.spark.admission import within_bytes, within_rows
from congreve.spark.batch import RangePartition, scan_of
from congreve.spark.errors import (
    DamagedError,
    DataLossError,
    OptionError,
    QueueGoneError,
    SparkError,
    UnreachableError,
)
from congreve.spark.offsets import Offsets, Queue, from_json, to_json
from congreve.spark.options import Options
from congreve.spark.patience import patiently
from congreve.spark.planning import (
    Source,
    between,
    chosen_queues,
    open_source,
    resolve,
    tasks,
)
from congreve.spark.pushdown import Limits

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RefusedStream(DataSourceStreamReader):
    """Says what is wrong with a stream's options as soon as it is asked for anything.

    Where streamReader() raises it, Spark 4.3 puts an UnboundLocalError of its own behind it.
    """

    def __init__(self, error: SparkError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's reader: lives on the driver, its pickled copies read in the tasks.

    An offset is that of each queue's next message. A queue that appears later is first noted at
    its earliest offset and read from there in the batch behind.
    """

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._source: Source | None = None
        self._target: Offsets | None = None
        self._answered = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_json(self._patiently(self._starts))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark knows no limit that is made of two: where both are set, latestOffset() sees to it.
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._patiently(lambda source: self._ends(source, None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        starts = from_json(start)
        # What a batch ended with is done when the next one is asked for; commit() is not called
        # for the last batch of a run.
        self._commit(starts)
        return to_json(self._patiently(lambda source: self._latest(source, starts, limit)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        # For the progress that users see: no reason to end or to hold up a query.
        try:
            source = self._open()
            source.refresh()
            return to_json(self._ends(source, None))
        except CongreveError as error:
            logger.warning("the latest offsets are not reported: %s", error)
            self.stop()
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges = between(from_json(start), from_json(end))
        scan = scan_of(self._options, self._schema, Limits())
        self._patiently(lambda source: source.check(ranges, scan))
        return [RangePartition(parts) for parts in tasks(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return  # Spark asks for one empty partition where there are none
        source = open_source(self._options)
        try:
            scan = scan_of(self._options, self._schema, Limits())
            for part in partition.parts:
                yield from source.read(part, scan)
        finally:
            source.close()

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(from_json(end))

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _open(self) -> Source:
        if self._source is None:
            self._source = open_source(self._options)
        return self._source

    def _patiently(self, ask: Callable[[Source], T]) -> T:
        """The answer of a source that may be away for a while: a broker that starts again.

        Servers that never answered are not waited for: an option may be wrong.
        """

        def asked() -> T:
            source = self._open()
            source.refresh()
            answer = ask(source)
            self._answered = True
            return answer

        return patiently(asked, self._waits_for, self._asks_again)

    def _waits_for(self, error: CongreveError) -> bool:
        if isinstance(error, UnreachableError):
            return self._answered
        return not isinstance(error, OptionError | DamagedError | DataLossError)

    def _asks_again(self, error: CongreveError) -> None:
        logger.warning("offsets are asked for again: %s", error)
        self.stop()

    def _starts(self, source: Source) -> Offsets:
        options = self._options
        queues = chosen_queues(source, options.selection, partly=True)
        return resolve(source, queues, options.starting, options, start=True)

    def _latest(self, source: Source, starts: Offsets, limit: ReadLimit) -> Offsets:
        ends = self._ends(source, starts)
        if isinstance(limit, ReadAllAvailable):
            return ends
        ranges = between(starts, ends)
        rows, size = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        if rows:
            ranges = within_rows(ranges, rows)
        if size:
            ranges = within_bytes(ranges, size, source)
        # Queues that no range is left for stay where they are.
        stay = {queue: starts.get(queue, end) for queue, end in ends.items()}
        return {**stay, **{part.queue: part.stop for part in ranges}}

    def _ends(self, source: Source, starts: Offsets | None) -> Offsets:
        """The end of each queue, or its first offset for one that `starts` does not have yet.

        No queue is new where `starts` is None; all are to a stream that began before them.
        """
        known = starts or {}
        queues = self._queues(source, known)
        ends = {queue: start for queue, start in known.items() if queue not in queues}
        for queue in queues:
            low, high = source.bounds(queue)
            if queue in known:
                ends[queue] = self._end(queue, known[queue], low, high)
            else:
                ends[queue] = high if starts is None else low
            if self._target is not None and starts is not None:
                begin = known.get(queue, low)
                ends[queue] = min(ends[queue], max(self._target.get(queue, begin), begin))
        return ends

    def _queues(self, source: Source, starts: Offsets) -> set[Queue]:
        """Queues that are there now. QueueGoneError where one of `starts` is not, which may be for
        a while only: its broker starts again."""
        try:
            queues = set(chosen_queues(source, self._options.selection, partly=True))
        except UnreachableError:
            raise
        except OptionError:
            if not starts:
                raise
            queues = set()
        gone = sorted(starts.keys() - queues)
        if gone and self._options.fail_on_data_loss:
            raise QueueGoneError(
                f"{gone[0]} was read up to {starts[gone[0]]} and is no longer there; "
                "option failOnDataLoss=false goes on without it"
            )
        return queues

    def _end(self, queue: Queue, start: int, low: int, high: int) -> int:
        if not low <= start <= high and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{queue} is to be read on from {start}, but has {low} to {high}: "
                f"{max(low - start, start - high)} messages are gone; "
                "option failOnDataLoss=false passes over them"
            )
        return max(start, high)

    def _commit(self, offsets: Offsets) -> None:
        if not self._options.commit_offsets_to_group:
            return
        try:
            self._open().commit(offsets)
        except CongreveError as error:
            logger.warning("group %s stays behind: %s", self._options.group, error)
