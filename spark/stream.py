"""The stream reader: exact resumption from a checkpoint's offsets, and rate limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
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

from congreve.base.errors import CongreveError
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
from congreve.spark.offsets import Offsets, Queue, from_json, last_of, to_json, with_last
from congreve.spark.options import Options
from congreve.spark.planning import (
    Source,
    between,
    chosen_queues,
    open_source,
    resolve,
    tasks,
)
from congreve.spark.pushdown import Limits
from congreve.spark.retry import retry

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RefusedStream(DataSourceStreamReader):
    """Raises the error of a stream's options on every call.

    When streamReader() itself raises it, Spark 4.3 hides it behind an UnboundLocalError.
    """

    def __init__(self, error: SparkError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raises the error."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises the error."""
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query: the original is on the driver, and pickled copies read in
    the tasks.

    An offset holds the next offset of each queue. A queue that appears later is recorded with its
    earliest offset first, and read from there in the next batch.
    """

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._source: Source | None = None
        self._target: Offsets | None = None
        self._answered = False
        self._planned = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The offsets at which a query without a checkpoint starts."""

        def asked(source: Source) -> dict[str, Any]:
            starts = self._starts(source)
            return with_last(starts, self._last(source, starts, {}, {}))

        return self._retrying(asked)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no limit of rows and bytes together: latestOffset() applies both.
        """The rate limit of a micro-batch."""
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of a query with trigger(availableNow=True)."""
        self._target = self._retrying(lambda source: self._ends(source, None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The offsets at which the next micro-batch ends."""
        starts = from_json(start)
        # A batch is done when the next one is requested; commit() is not called
        # for the last batch of a run.
        self._commit(starts)

        def asked(source: Source) -> dict[str, Any]:
            last = last_of(start)
            ends = self._latest(source, starts, limit)
            moved = {
                queue: offset for queue, offset in starts.items() if ends.get(queue, 0) > offset
            }
            self._check_topics(source, moved, last)
            return with_last(ends, self._last(source, ends, starts, last))

        return self._retrying(asked)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        # Only for the progress that users see: a failure must not end or delay the query.
        """The current end of all queues, for the query's progress."""
        try:
            source = self._open()
            source.refresh()
            return to_json(self._ends(source, None))
        except CongreveError as error:
            logger.warning("latest offsets not reported: %s", error)
            self.stop()
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions of a micro-batch."""
        ranges = between(from_json(start), from_json(end))
        scan = scan_of(self._options, self._schema, Limits())

        def planned(source: Source) -> list[InputPartition]:
            """The partitions, whose ranges can be read."""
            if not self._planned:  # Spark repeats a batch that the former run had begun
                stops = {part.queue: part.stop for part in ranges}
                self._check_topics(source, stops, last_of(end))
                self._planned = True
            source.check(ranges, scan)
            return [RangePartition(parts) for parts in tasks(ranges, self._options)]

        return self._retrying(planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of a partition as Arrow batches, in a task."""
        if not isinstance(partition, RangePartition):
            return  # Spark reads one empty partition when there are none
        source = open_source(self._options)
        try:
            scan = scan_of(self._options, self._schema, Limits())
            for part in partition.parts:
                yield from source.read(part, scan)
        finally:
            source.close()

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets of a micro-batch that is done."""
        self._commit(from_json(end))

    def stop(self) -> None:
        """Close the source."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _open(self) -> Source:
        if self._source is None:
            self._source = open_source(self._options)
        return self._source

    def _retrying(self, ask: Callable[[Source], T]) -> T:
        """Call `ask` with the source; repeat it while a broker restarts.

        An error of servers that have never answered is not retried: an option may be wrong.
        """

        def asked() -> T:
            """Open the source if needed and call `ask`."""
            source = self._open()
            source.refresh()
            answer = ask(source)
            self._answered = True
            return answer

        return retry(asked, self._is_retryable, self._before_retry)

    def _is_retryable(self, error: CongreveError) -> bool:
        if isinstance(error, UnreachableError):
            return self._answered
        return not isinstance(error, OptionError | DamagedError | DataLossError)

    def _before_retry(self, error: CongreveError) -> None:
        logger.warning("requesting the offsets again: %s", error)
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
        # Queues without a range keep their offset.
        stay = {queue: starts.get(queue, end) for queue, end in ends.items()}
        return {**stay, **{part.queue: part.stop for part in ranges}}

    def _ends(self, source: Source, starts: Offsets | None) -> Offsets:
        """The end of each queue, or the first offset of a queue that `starts` does not contain yet.

        With `starts` None no queue counts as new; to a stream that started without queues all of
        them are new.
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

    def _last(
        self, source: Source, ends: Offsets, starts: Offsets, last: Mapping[Queue, int]
    ) -> dict[Queue, int]:
        """The fingerprints of the messages before `ends`; `last` are those before `starts`."""
        found: dict[Queue, int] = {}
        for queue, end in ends.items():
            same = last.get(queue) if starts.get(queue) == end else None
            mark = source.fingerprint(queue, end - 1) if same is None and end > 0 else same
            if mark is not None:
                found[queue] = mark
        return found

    def _check_topics(self, source: Source, ends: Offsets, last: Mapping[Queue, int]) -> None:
        """Raises DataLossError if a queue has another message before `ends` than it had."""
        if not self._options.fail_on_data_loss:
            return
        for queue, end in ends.items():
            now = source.fingerprint(queue, end - 1) if queue in last else None
            if now is not None and now != last[queue]:
                raise DataLossError(
                    f"{queue} has another message at {end - 1} than when it was read: its topic "
                    "was deleted and created again. A new checkpoint reads it from its beginning; "
                    f"option failOnDataLoss=false continues at {end}"
                )

    def _queues(self, source: Source, starts: Offsets) -> set[Queue]:
        """The queues that exist now.

        Raises QueueGoneError when one of `starts` is missing, perhaps only while its broker
        restarts.
        """
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
                f"{gone[0]} was read up to {starts[gone[0]]} and no longer exists; "
                "option failOnDataLoss=false continues without it"
            )
        return queues

    def _end(self, queue: Queue, start: int, low: int, high: int) -> int:
        if not low <= start <= high and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{queue} is to be read from {start} on, but holds {low} to {high}: "
                f"{max(low - start, start - high)} messages are gone; "
                "option failOnDataLoss=false skips them"
            )
        return max(start, high)

    def _commit(self, offsets: Offsets) -> None:
        if not self._options.commit_offsets_to_group:
            return
        try:
            self._open().commit(offsets)
        except CongreveError as error:
            logger.warning("offsets of group %s not committed: %s", self._options.group, error)
