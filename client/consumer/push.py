"""Consumes as a member of a group (RocketMQ: DefaultMQPushConsumer)."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Unpack

from congreve.client.consumer.concurrent import ConcurrentConsumption
from congreve.client.consumer.listening import (
    BatchListener,
    Listener,
    Listening,
    check_listeners,
    hooked,
)
from congreve.client.consumer.member import GroupMember, MemberOptions
from congreve.client.consumer.orderly import OrderlyConsumption
from congreve.client.consumer.send_back import SendBack
from congreve.client.errors import ClientStateError, InvalidSubscriptionError
from congreve.client.hooks import ConsumeContext, ConsumeOutcome
from congreve.client.message import ReceivedMessage
from congreve.client.namespace import unwrap
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumeFrom, MessageModel
from congreve.client.subscription import Sql
from congreve.client.transport.client_thread import SyncClient
from congreve.client.transport.options import check_options

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ConsumeFrom", "PushConsumer", "SyncPushConsumer"]

BATCH_ROWS = 32_768


class _Delivery:
    """The messages of a pull, and those of them that an iteration has not reached."""

    __slots__ = ("messages", "process_queue", "records")

    def __init__(
        self,
        process_queue: ProcessQueue,
        records: PulledRecords,
        messages: Iterator[ReceivedMessage] | None = None,
    ) -> None:
        self.process_queue = process_queue
        self.records = records
        self.messages = messages

    def next(self) -> ReceivedMessage | None:
        if self.process_queue.dropped:
            return None
        if self.messages is None:
            self.messages = iter(self.records.messages(self.process_queue.queue))
        return next(self.messages, None)


class PushConsumer(GroupMember):
    """A member of a consumer group, which shares the queues of its topics among its members
    (RocketMQ: DefaultMQPushConsumer)::

        async def listener(message): ...

        async with PushConsumer("host:9876", group="g", topics={"T": "*"}, listener=listener):
            await asyncio.Event().wait()

    or, without a listener::

        async with PushConsumer("host:9876", group="g", topics={"T": "A || B"}) as consumer:
            async for message in consumer:
                ...

    All members must have the same `topics`. A listener may be ``async def`` or ``def``, which runs
    in threads. When it raises or returns ConsumeResult.LATER, its message is retried later. With
    `orderly` the messages of each queue are consumed one at a time, and a failing message holds
    back the rest. `batch_listener` gets lists of up to settings.consume_batch messages.

    In an iteration a message counts as consumed when the program requests the next one or calls
    done(). When its task is cancelled or leaves the loop, the message is delivered again, to this
    member or another. Several tasks may iterate. `hooks` are called around each listener call, or
    around the work on each message of an iteration. Other arguments are those of GroupMember.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        **options: Unpack[MemberOptions],
    ) -> None:
        super().__init__(namesrv, group=group, topics=topics, **options)
        if not topics:
            raise InvalidSubscriptionError(f"consumer of group {group} has no topics to read")
        check_listeners(listener, batch_listener)
        if self.orderly and listener is None and batch_listener is None:
            raise ClientStateError("an orderly consumer needs a listener")
        self._listener = listener
        self._batch_listener = batch_listener
        self._listening: Listening | None = None
        self._sending_back = SendBack(self, self.settings.attempts(orderly=self.orderly))
        self._consumption: ConcurrentConsumption | OrderlyConsumption | None = None
        self._backlog: deque[_Delivery] = deque()
        self._arrived = asyncio.Event()
        self._ended = False

    async def start(self) -> None:
        """Join the group and start the listener's workers. Raises as GroupMember.start() does."""
        if self._listener is not None or self._batch_listener is not None:
            self._consumption = self._make_consumption()
            self._consumption.start()
            timeout_s = self.settings.consume_timeout_s
            self._every(timeout_s, self._consumption.send_back_expired, first_s=timeout_s)
        await super().start()

    def _make_consumption(self) -> ConcurrentConsumption | OrderlyConsumption:
        settings = self.settings
        self._listening = listening = Listening(
            self._listener,
            self._batch_listener,
            batch=settings.consume_batch,
            threads=settings.concurrency,
            hooks=self.hooks,
            group=unwrap(self.namespace, self.group),
            timeout_s=settings.consume_timeout_s,
        )
        shares = self.model is MessageModel.CLUSTERING
        if self.orderly:
            locks = self.locks if shares else None
            return OrderlyConsumption(settings, listening, self.stats, self._sending_back, locks)
        send_back = self._sending_back.send if shares else None
        return ConcurrentConsumption(settings, listening, self.stats, send_back)

    # --- iteration without a listener

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        timeout_s = self.settings.consume_timeout_s
        while await self._wait_for_delivery():
            delivery = self._backlog[0]
            message = delivery.next()
            if message is None:
                self._backlog.popleft()
                continue
            next_requested = False
            try:
                if not self.hooks:
                    yield message
                else:
                    with hooked(self.hooks, self._work_on(message), timeout_s) as work:
                        yield message
                        work.outcome = ConsumeOutcome.SUCCESS
                next_requested = True
            finally:
                if not next_requested:
                    self._give_back(delivery, message)
            delivery.process_queue.done(message)

    def _work_on(self, message: ReceivedMessage) -> ConsumeContext:
        group = unwrap(self.namespace, self.group)
        return ConsumeContext(
            group=group, messages=[message], began_at=time.time(), in_iteration=True
        )

    def _give_back(self, delivery: _Delivery, message: ReceivedMessage) -> None:
        """Let the next iteration start with this message unless it is consumed: its task was
        cancelled or left the loop."""
        if not self._ended and not delivery.records.is_done(message):
            again = _Delivery(delivery.process_queue, delivery.records, iter([message]))
            self._backlog.appendleft(again)
            self._arrived.set()

    async def arrow_batches(
        self, columns: Iterable[str] | None = None, *, max_rows: int = BATCH_ROWS
    ) -> "AsyncIterator[pa.RecordBatch]":
        """Yield arriving messages as Arrow record batches; no message becomes a Python object.

        `columns` are names of records.arrow.TYPES, all of them by default. A batch holds
        buffered messages of one topic and broker, at least one row and about `max_rows` at most. It
        counts as consumed when the program requests the next one. This needs the extra `arrow`.

        Raises RecordError when a column is unknown.
        """
        from congreve.client.pull.arrow import ArrowBatches

        batches = ArrowBatches(columns, max_rows, self.subscriptions, self.namespace)
        while await self._wait_for_delivery():
            taken = batches.take_from(self._unread_pulls())
            if taken:
                yield batches.batch()
                for process_queue, records in taken:
                    process_queue.done_pull(records)
                    self.stats.consumed(process_queue.queue.topic, len(records), 0, 0.0)

    def _unread_pulls(self) -> Iterator[tuple[ProcessQueue, PulledRecords]]:
        """Yield pulls in order; a pull counts as taken when the caller requests the next one."""
        while self._backlog:
            delivery = self._backlog[0]
            if not delivery.process_queue.dropped:
                yield delivery.process_queue, delivery.records
            self._backlog.popleft()

    async def _wait_for_delivery(self) -> bool:
        if not self._ended:
            self.check_running()
        while not self._backlog:
            if self._ended:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return True

    def done(self, message: ReceivedMessage) -> None:
        """Mark a message as consumed. Idempotent."""
        if message.source is not None and message.source.owner is not None:
            message.source.owner.done(message)

    async def send_back(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Let the broker deliver a message to the group again later; here it counts as consumed.

        Level 0 increases the delay with each attempt; after 16 attempts the message goes to the
        dead letter queue, with level -1 at once. Raises CongreveError when no broker accepts it.
        """
        await self._sending_back.send(message, delay_level)
        self.done(message)

    async def consume_directly(self, message: ReceivedMessage) -> str | None:
        """See GroupMember.consume_directly()."""
        if self._listening is None:
            return "this consumer has no listener"
        failures = await self._listening.run([message], in_order=True)
        return failures[0].reason if failures else None

    # --- called by GroupMember

    def _deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        if self._consumption is not None:
            self._consumption.deliver(process_queue, records)
        else:
            self._backlog.append(_Delivery(process_queue, records))
            self._arrived.set()

    def _acquired(self, process_queue: ProcessQueue) -> None:
        if self._consumption is not None:
            self._consumption.acquire(process_queue)

    def _released(self, process_queue: ProcessQueue) -> None:
        if self._consumption is not None:
            self._consumption.release(process_queue)

    async def _leave(self) -> None:
        try:
            if self._consumption is not None:
                await self._consumption.stop()
        finally:
            await super()._leave()
            self._ended = True
            self._backlog.clear()
            self._arrived.set()


class SyncPushConsumer(SyncClient[PushConsumer]):
    """A PushConsumer for programs without an event loop: the listener runs in threads.

    ``with SyncPushConsumer("host:9876", group="g", topics={"T": "*"}, listener=work): ...``;
    arguments and errors are those of PushConsumer. (RocketMQ: DefaultMQPushConsumer.)
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        **options: Unpack[MemberOptions],
    ) -> None:
        check_options(self, options, MemberOptions)

        def make() -> PushConsumer:
            return PushConsumer(
                namesrv,
                group=group,
                topics=topics,
                listener=listener,
                batch_listener=batch_listener,
                **options,
            )

        super().__init__("push consumer", make)
