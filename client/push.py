"""Reads as a member of a group (RocketMQ: DefaultMQPushConsumer)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from congreve.client.checks import check_type
from congreve.client.concurrent import ConcurrentConsumption
from congreve.client.errors import ClientStateError, InvalidSettingError, InvalidSubscriptionError
from congreve.client.hooks import ConsumeHook
from congreve.client.listening import BatchListener, Listener, Listening
from congreve.client.loopthread import LoopThread
from congreve.client.member import GroupMember
from congreve.client.message import ReceivedMessage
from congreve.client.namespace import unwrap
from congreve.client.orderly import OrderlyConsumption
from congreve.client.processqueue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.sendback import SendBack
from congreve.client.settings import ConsumeFrom, MessageModel
from congreve.client.subscription import Sql

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ConsumeFrom", "PushConsumer", "SyncPushConsumer"]

BATCH_ROWS = 32_768


class _Delivery:
    """A pull that nobody has iterated over yet, or that somebody is at."""

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
    """A member of a consumer group, which shares the queues of its topics among its members::

        async def listener(message): ...

        async with PushConsumer("host:9876", group="g", topics={"T": "*"}, listener=listener):
            await asyncio.Event().wait()

    or, without a listener::

        async with PushConsumer("host:9876", group="g", topics={"T": "A || B"}) as consumer:
            async for message in consumer:
                ...

    All members must have the same `topics`. A listener may be ``async def`` or ``def``, which runs
    in threads; one that raises, or returns ConsumeResult.LATER, gets its message again later. With
    `orderly` each queue's messages come one after the other, and a failing one holds up the rest.
    `batch_listener` gets lists of up to settings.consume_batch messages. In an iteration a message
    is done with when the next one is asked for, or by done(); one that is not, because its task was
    cancelled or left the loop, comes again, to this member or another. Several tasks may iterate.
    `hooks` see each call of the listener. Other arguments are GroupMember's.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        hooks: Sequence[ConsumeHook] = (),
        **more: Any,
    ) -> None:
        super().__init__(namesrv, group=group, topics=topics, **more)
        if not topics:
            raise InvalidSubscriptionError(f"consumer of group {group} has no topics to read")
        if listener is not None and batch_listener is not None:
            raise ClientStateError("a consumer has one listener: for messages or for batches")
        if self.orderly and listener is None and batch_listener is None:
            raise ClientStateError("an orderly consumer needs a listener")
        for call in (listener, batch_listener):
            if call is not None and not callable(call):
                raise InvalidSettingError(f"listener is {call!r}: a function is needed")
        if hooks and listener is None and batch_listener is None:
            raise ClientStateError("hooks see calls of a listener, and there is none")
        check_type("hooks", hooks, Sequence)
        for hook in hooks:
            check_type("hook", hook, ConsumeHook)
        self.hooks = tuple(hooks)
        self._listener = listener
        self._batch_listener = batch_listener
        self._listening: Listening | None = None
        self._sending_back = SendBack(self, self.settings.attempts(orderly=self.orderly))
        self._consumption: ConcurrentConsumption | OrderlyConsumption | None = None
        self._backlog: deque[_Delivery] = deque()
        self._arrived = asyncio.Event()
        self._ended = False

    async def start(self) -> None:
        """See GroupMember.start()."""
        for hook in self.hooks:
            await hook.start()
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

    # ---- without a listener --------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        while await self._wait_for_delivery():
            delivery = self._backlog[0]
            message = delivery.next()
            if message is None:
                self._backlog.popleft()
                continue
            asked_for_next = False
            try:
                yield message
                asked_for_next = True
            finally:
                if not asked_for_next:
                    self._give_back(delivery, message)
            delivery.process_queue.done(message)

    def _give_back(self, delivery: _Delivery, message: ReceivedMessage) -> None:
        """Who had the message was cancelled, or left the loop: the next iteration begins with it,
        unless it is done with."""
        if not self._ended and not delivery.records.is_done(message):
            again = _Delivery(delivery.process_queue, delivery.records, iter([message]))
            self._backlog.appendleft(again)
            self._arrived.set()

    async def arrow_batches(
        self, columns: Iterable[str] | None = None, *, max_rows: int = BATCH_ROWS
    ) -> "AsyncIterator[pa.RecordBatch]":
        """What arrives as Arrow record batches; no message becomes a Python object.

        `columns` are names of records.arrow.TYPES, all of them by default. A batch holds what is
        there, at least one row and about `max_rows` at most, of one topic and broker. It is done
        with when the next one is asked for. Raises RecordError for an unknown column; needs the
        extra `arrow`.
        """
        from congreve.client.arrow import ArrowBatches

        batches = ArrowBatches(columns, max_rows, self.subscriptions, self.namespace)
        while await self._wait_for_delivery():
            taken = batches.take_from(self._unread_pulls())
            if taken:
                yield batches.batch()
                for process_queue, records in taken:
                    process_queue.done_pull(records)
                    self.stats.consumed(process_queue.queue.topic, len(records), 0, 0.0)

    def _unread_pulls(self) -> Iterator[tuple[ProcessQueue, PulledRecords]]:
        """Pulls in their order; each is taken by asking for the one behind it."""
        while self._backlog:
            delivery = self._backlog[0]
            if not delivery.process_queue.dropped:
                yield delivery.process_queue, delivery.records
            self._backlog.popleft()

    async def _wait_for_delivery(self) -> bool:
        while not self._backlog:
            if self._ended:
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return True

    def done(self, message: ReceivedMessage) -> None:
        """The message needs no more work; a second time does nothing."""
        if message.source is not None and message.source.owner is not None:
            message.source.owner.done(message)

    async def send_back(self, message: ReceivedMessage, *, delay_level: int = 0) -> None:
        """Have the group get a message again later, and be done with it for now.

        Level 0 waits longer each time; after 16 times the message goes to the dead letters, with
        level -1 at once.
        """
        await self._sending_back.send(message, delay_level)
        self.done(message)

    async def consume_directly(self, message: ReceivedMessage) -> str | None:
        """See GroupMember."""
        if self._listening is None:
            return "this consumer has no listener"
        failures = await self._listening.run([message], in_order=True)
        return failures[0].reason if failures else None

    # ---- what GroupMember calls ----------------------------------------------------------------

    def _deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        if self._consumption is not None:
            self._consumption.deliver(process_queue, records)
        else:
            self._backlog.append(_Delivery(process_queue, records))
            self._arrived.set()

    def _taken_up(self, process_queue: ProcessQueue) -> None:
        if self._consumption is not None:
            self._consumption.take_up(process_queue)

    def _given_up(self, process_queue: ProcessQueue) -> None:
        if self._consumption is not None:
            self._consumption.give_up(process_queue)

    async def _leave(self) -> None:
        try:
            if self._consumption is not None:
                await self._consumption.stop()
        finally:
            await super()._leave()
            self._ended = True
            self._backlog.clear()
            self._arrived.set()
            for hook in self.hooks:
                await hook.stop()


class SyncPushConsumer:
    """A PushConsumer for programs without an event loop: the listener runs in threads.

    ``with SyncPushConsumer("host:9876", group="g", topics={"T": "*"}, listener=work): ...``;
    arguments and errors are PushConsumer's.
    """

    def __init__(self, namesrv: str, **settings: Any) -> None:
        self._thread = LoopThread("push consumer", lambda: PushConsumer(namesrv, **settings))

    def start(self) -> None:
        """See PushConsumer.start()."""
        self._thread.start()

    def stop(self) -> None:
        """Commit, leave the group, end the thread."""
        self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
