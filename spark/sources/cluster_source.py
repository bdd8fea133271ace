"""The source of a live cluster (option `nameServer`): tasks pull from the brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.consumer.consumer import PullConsumer
from congreve.client.errors import (
    BrokerError,
    ClientError,
    InvalidNameError,
    RouteNotFoundError,
)
from congreve.client.message import MessageQueue, PullStatus
from congreve.client.pull.bulk_reader import BulkReader, OffsetMovedError, Pulled
from congreve.client.transport.client_thread import ClientThread
from congreve.engine.store_files.queue_scan import BATCH_BYTES, BATCH_ROWS
from congreve.records.columns.arrow import schema
from congreve.records.columns.same_message import fingerprint_of
from congreve.records.errors import RecordError
from congreve.records.filter.kinds import ALL, SQL92, TAG
from congreve.records.message.properties import KEY_SEPARATOR
from congreve.spark.errors import DamagedError, DataLossError, OptionError, UnreachableError, lost
from congreve.spark.offsets import Offsets, Queue, Range
from congreve.spark.options import DEFAULT_GROUP, Options
from congreve.spark.retry import retry
from congreve.spark.rows import QueueRows, Scan

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ClusterSource:
    """Topics and queues from the name servers, bounds from the brokers."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._timeout_s = options.pull_timeout_ms / 1000
        self._group = options.group or DEFAULT_GROUP
        address = options.name_server or ""
        try:
            self._consumer = ClientThread(
                "spark",
                lambda: PullConsumer(address, group=self._group, timeout_s=self._timeout_s),
            )
        except InvalidNameError as error:
            raise OptionError(
                f"option group (or groupIdPrefix) is {self._group!r}: {error}"
            ) from error
        self._admin = ClientThread(
            "spark-admin", lambda: AdminClient(address, timeout_s=self._timeout_s)
        )
        self._admin_started = False
        self._announced = False
        try:
            self._consumer.start()
        except CongreveError as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        """Close the connections."""
        self._consumer.stop()
        if self._admin_started:
            self._admin.stop()

    def refresh(self) -> None:
        """Fetch the routes again."""
        self._consumer.run(self._consumer.client.routes.refresh())

    def topics(self) -> list[str]:
        """The topics registered at the name servers. Raises UnreachableError when no name server
        answers."""
        return self._ask(self._admin.client.topics(), self._administrator())

    def missing_topic_hint(self, topic: str) -> str:
        """The registered brokers: name servers forget the topics of a broker that is down."""
        admin = self._administrator()
        found = ", ".join(sorted(self._ask(admin.client.cluster_info(), admin).broker_addr_table))
        if not found:
            return ". No broker is registered: the topic's broker may be down"
        return f". Registered: {found}; if {topic!r} is on another broker, that one may be down"

    def queues(self, topic: str) -> list[Queue]:
        """The readable queues of a topic, none when no broker has it. Raises UnreachableError
        when no name server answers."""
        try:
            found = self._consumer.run(self._consumer.client.queues(topic))
        except RouteNotFoundError:
            return []
        except InvalidNameError as error:
            option = self._options.selection.option
            raise OptionError(f"option {option} names topic {topic!r}: {error}") from error
        except CongreveError as error:
            raise self._unreachable(error) from error
        return [Queue(queue.topic, queue.broker_name, queue.queue_id) for queue in found]

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Offset of the first message, and of the next message to arrive. Raises
        UnreachableError when the broker does not answer."""
        return self._ask(_bounds(self._consumer.client, _message_queue(queue)))

    def offset_from_time(self, queue: Queue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time, else the queue's end; each probe is a pull.

        A broker's own search by time returns any message of the millisecond, not the first.
        """
        start, stop = self.bounds(queue)
        while start < stop:
            middle = (start + stop) // 2
            if self._store_time(queue, middle) >= timestamp_ms:
                stop = middle
            else:
                start = middle + 1
        return start

    def stop_within(self, queue: Queue, start: int, stop: int, limit: int) -> int:
        """The largest end of a range whose records have at most `limit` bytes, by the sizes that
        the broker reads from its consume queue."""
        while start < stop:
            sizes = self._sizes(queue, start, stop)
            for size in sizes:
                limit -= size
                if limit < 0:
                    return start
                start += 1
            if not sizes:
                break
        return stop

    def size_of(self, queue: Queue, start: int, stop: int) -> int:
        """Bytes of the records in a range."""
        total = 0
        while start < stop:
            sizes = self._sizes(queue, start, stop)
            if not sizes:
                break
            total += sum(sizes)
            start += len(sizes)
        return total

    def fingerprint(self, queue: Queue, offset: int) -> int | None:
        """What tells a message from a later one with its offset; None without such a message."""
        pulled = self._ask(self._consumer.client.pull(_message_queue(queue), offset, 1))
        for message in pulled.messages:
            if message.queue_offset == offset and message.source is not None:
                with suppress(RecordError):
                    return fingerprint_of(message.source.body)
        return None

    def find_key(self, queues: list[Queue], key: str) -> dict[Queue, list[int]]:
        """Offsets of the messages with a key; this reads the keys of all messages."""
        scan = Scan(schema=schema(["queueOffset", "keys", "msgId"]), fail_on_data_loss=False)
        found: dict[Queue, list[int]] = {}
        for queue in queues:
            for batch in self.read(Range(queue, *self.bounds(queue)), scan):
                columns = batch.to_pydict().values()
                for offset, keys, unique in zip(*columns, strict=True):
                    if key == unique or key in (keys or "").split(KEY_SEPARATOR):
                        found.setdefault(queue, []).append(offset)
        return found

    def commit(self, offsets: Offsets) -> None:
        """Commit these offsets for the group of the option `group`."""
        client = self._consumer.client
        for queue, offset in offsets.items():
            self._route(queue)
            self._ask(client.commit(_message_queue(queue), offset))
        if not self._announced:
            self._ask(client.announce())
            self._announced = True

    def check(self, parts: list[Range], scan: Scan) -> None:
        """Raises OptionError when a broker refuses the SQL92 expression."""
        for broker, queue in {part.queue.broker: part.queue for part in parts}.items():
            if scan.sql is None:
                return
            admin = self._administrator()
            try:
                admin.run(admin.client.check_filter(broker, queue.topic, self._group, scan.sql))
            except BrokerError as error:
                raise OptionError(
                    f"option subExpression is {scan.sql!r}: broker {broker} refuses it: {error}"
                ) from error
            except CongreveError as error:
                raise self._unreachable(error) from error

    def read(self, part: Range, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in batches.

        Raises DataLossError when messages have been deleted, DamagedError when a record is damaged,
        UnreachableError when the broker does not answer.
        """
        queue, start, stop = part
        low, high = self._bounds_at_last(queue)
        if (start < low or stop > high) and scan.fail_on_data_loss:
            raise lost(part, low, high)
        start, stop = max(start, low), min(stop, high)
        reader = self._bulk_reader(queue, scan)
        rows = QueueRows(scan, queue)
        held = count = 0
        try:
            for pulled in self._bodies(reader, Range(queue, start, stop), scan):
                count += rows.gather.add_records(*pulled)
                held += len(pulled.body)
                if rows.gather.rows >= BATCH_ROWS or held >= BATCH_BYTES:
                    held = 0
                    if rows.gather.rows:
                        yield rows.take()
            if rows.gather.rows:
                yield rows.take()
        except RecordError as error:
            raise DamagedError(
                f"{queue}: {error}. Ask for the column _corrupt to get a row for it"
            ) from error
        except ClientError as error:
            raise self._unreachable(error) from error
        finally:
            reader.close()
        unfiltered = scan.tags is None and scan.sql is None
        if unfiltered and scan.fail_on_data_loss and count != max(stop - start, 0):
            raise DataLossError(
                f"{queue}: offsets {start} to {stop} returned {count} messages, the others were "
                "deleted meanwhile; option failOnDataLoss=false skips them"
            )

    def _bounds_at_last(self, queue: Queue) -> tuple[int, int]:
        """The bounds; waits for a broker that was restarted after the offsets were planned."""
        try:
            return self.bounds(queue)
        except UnreachableError:
            return retry(
                lambda: self._bounds_anew(queue),
                is_retryable=lambda error: isinstance(error, UnreachableError),
                on_retry=lambda error: logger.warning("requesting the bounds again: %s", error),
            )

    def _bounds_anew(self, queue: Queue) -> tuple[int, int]:
        self._ask(self._consumer.client.routes.refresh())
        return self.bounds(queue)

    def _bodies(self, reader: BulkReader, part: Range, scan: Scan) -> Iterator[Pulled]:
        _, start, stop = part
        while start < stop:
            try:
                yield from reader.bodies(start, stop)
                return
            except OffsetMovedError as error:
                if scan.fail_on_data_loss or error.max_offset < stop:
                    raise lost(part, error.min_offset, error.max_offset) from error
                # Bodies are returned in order: none at or after the new start was returned yet.
                start = max(start, error.min_offset)
                reader.close()

    def _bulk_reader(self, queue: Queue, scan: Scan) -> BulkReader:
        expression, kind = ALL, TAG
        if scan.sql is not None:
            expression, kind = scan.sql, SQL92
        elif scan.tags is not None:
            expression = " || ".join(scan.tags)
        self._route(queue)
        return BulkReader(
            self._consumer.client.routes.address(queue.broker),
            self._group,
            _message_queue(queue),
            expression=expression,
            expression_type=kind,
            batch=self._options.pull_batch_size,
            in_flight=self._options.read_ahead,
            timeout_s=self._timeout_s,
        )

    def _store_time(self, queue: Queue, offset: int) -> int:
        pulled = self._ask(self._consumer.client.pull(_message_queue(queue), offset, 1))
        if pulled.status is not PullStatus.FOUND:
            return 0
        return pulled.messages[0].store_timestamp

    def _sizes(self, queue: Queue, start: int, stop: int) -> list[int]:
        entries = self._admin.client.queue_entries(_message_queue(queue), start, stop - start)
        return [entry.physic_size for entry in self._ask(entries, self._administrator())]

    def _route(self, queue: Queue) -> None:
        self._ask(self._consumer.client.routes.find(queue.topic))

    def _ask(self, question: Coroutine[Any, Any, T], thread: ClientThread[Any] | None = None) -> T:
        """The answer of a name server or broker. Raises UnreachableError when there is none."""
        try:
            return (thread or self._consumer).run(question)
        except CongreveError as error:
            raise self._unreachable(error) from error

    def _administrator(self) -> ClientThread[AdminClient]:
        if not self._admin_started:
            self._admin.start()
            self._admin_started = True
        return self._admin

    def _unreachable(self, error: CongreveError) -> UnreachableError:
        return UnreachableError(f"option nameServer is {self._options.name_server!r}: {error}")


async def _bounds(client: PullConsumer, queue: MessageQueue) -> tuple[int, int]:
    await client.routes.find(queue.topic)
    # Both at once: a stream needs the bounds of all queues for each micro-batch.
    low, high = await asyncio.gather(client.min_offset(queue), client.max_offset(queue))
    return low, max(low, high)


def _message_queue(queue: Queue) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=queue.broker, queue_id=queue.queue_id)
