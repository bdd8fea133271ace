"""Polls messages as a member of a group or from assigned queues (RocketMQ:
DefaultLitePullConsumer)."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Unpack

from congreve.client.consumer.filter_check import check_filters
from congreve.client.consumer.member import GroupMember, MemberOptions
from congreve.client.errors import ClientStateError, InvalidSettingError
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.namespace import wrap_queue
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumerSettings
from congreve.client.subscription import Sql, subscribe
from congreve.client.transport.client_thread import SyncClient, blocking, in_loop
from congreve.client.transport.options import check_options

POLL_COUNT = 10
POLL_S = 5.0


class LitePullConsumer(GroupMember):
    """Returns messages when the program asks for them (RocketMQ: DefaultLitePullConsumer)::

        async with LitePullConsumer("host:9876", group="g", topics={"T": "*"}) as consumer:
            messages = await consumer.poll()

    With `topics` the members of the group share the queues, as push consumers do. Without `topics`
    the consumer reads the queues that assign() names, whatever other members read. The messages of
    a poll count as consumed at the next poll or at commit_polled(); with `auto_commit` offsets are
    committed every settings.commit_s seconds. `hooks` see each poll. Other arguments are those of
    GroupMember.
    """

    consume_type = "CONSUME_ACTIVELY"
    is_lite = True

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql] | None = None,
        auto_commit: bool = True,
        **options: Unpack[MemberOptions],
    ) -> None:
        if options.get("settings") is None:
            options["settings"] = ConsumerSettings(carry_subscription=True)
        super().__init__(namesrv, group=group, topics=topics or {}, **options)
        if self.orderly:
            raise InvalidSettingError("a pull consumer has no listener, so it cannot be orderly")
        self.auto_commit = auto_commit
        self._assigns = not topics
        self._arrived: dict[ProcessQueue, list[ReceivedMessage]] = {}
        self._news = asyncio.Event()
        self._polled: list[tuple[ProcessQueue, list[ReceivedMessage]]] = []

    # --- assignment

    async def assign(self, queues: Iterable[MessageQueue], *, expression: str | Sql = "*") -> None:
        """Read these queues only, from the group's offsets on.

        Raises ClientStateError when the consumer has topics, InvalidSubscriptionError when a broker
        refuses the filter, BrokerError, another ClientError or a RemotingError when the offsets
        cannot be read.
        """
        self.check_running()
        if not self._assigns:
            raise ClientStateError("this consumer subscribes to topics: assign() is not available")
        wanted = {wrap_queue(self.namespace, queue) for queue in queues}
        filters = {topic: subscribe(topic, expression) for topic in {each.topic for each in wanted}}
        for topic in filters:
            await self.routes.find(topic)
        await check_filters(self, filters.values(), self.version_ms)
        self.subscriptions.update(filters)
        async with self._balancing:
            for queue in set(self.process_queues) - wanted:
                await self._release(queue)
            for queue in sorted(wanted - set(self.process_queues)):
                await self._acquire(queue)
        await self.heartbeat()

    async def rebalance(self) -> None:
        """Divide the queues among the members; does nothing when queues are assigned."""
        if not self._assigns:
            await super().rebalance()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset; messages pulled from the queue and not yet polled are dropped.

        Raises ClientStateError when the consumer does not read the queue, InvalidSettingError when
        the offset is outside the queue, BrokerError or a RemotingError when the broker cannot be
        asked.
        """
        queue = wrap_queue(self.namespace, queue)
        low, high = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not low <= offset <= high:
            raise InvalidSettingError(f"{queue} has offsets {low} to {high}, not {offset}")
        async with self._balancing:
            self._own(queue)
            await self._drop(self.process_queues[queue])
            process_queue = ProcessQueue(queue, offset, self.settings.limits)
            self._begin(process_queue)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message of the queue. Raises as seek() does."""
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue at the next message to arrive. Raises as seek() does."""
        await self.seek(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling and polling these queues. Raises ClientStateError when the consumer does
        not read one of them."""
        for queue in queues:
            self._own(queue).pause(True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull and poll these queues again. Raises ClientStateError when the consumer does not
        read one of them."""
        for queue in queues:
            self._own(queue).pause(False)
        self._news.set()

    def position(self, queue: MessageQueue) -> int:
        """Offset at which the next poll of the queue continues. Raises ClientStateError when the
        consumer does not read the queue."""
        process_queue = self._own(queue)
        waiting = self._arrived.get(process_queue)
        return waiting[0].queue_offset if waiting else process_queue.next_offset

    def _own(self, queue: MessageQueue) -> ProcessQueue:
        self.check_running()
        process_queue = self.process_queues.get(wrap_queue(self.namespace, queue))
        if process_queue is None:
            raise ClientStateError(f"this consumer does not read {queue}")
        return process_queue

    # --- messages

    async def poll(
        self, timeout_s: float = POLL_S, max_count: int = POLL_COUNT
    ) -> list[ReceivedMessage]:
        """Return up to `max_count` messages of one queue, an empty list when none arrives in
        `timeout_s` seconds.

        The messages of the previous poll count as consumed. Raises ClientStateError when the
        consumer is not running.
        """
        self.check_running()
        self._finish_polled()
        begin = time.monotonic()
        deadline = begin + timeout_s
        while not (messages := self._take_arrived(max_count)):
            self._news.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._news.wait()
            except TimeoutError:
                return []
        self._note_received(messages, begin)
        return messages

    def _take_arrived(self, max_count: int) -> list[ReceivedMessage]:
        for process_queue, waiting in self._arrived.items():
            if process_queue.paused:
                continue
            messages, rest = waiting[:max_count], waiting[max_count:]
            # To the end, so that queues take turns.
            del self._arrived[process_queue]
            if rest:
                self._arrived[process_queue] = rest
            self._polled.append((process_queue, messages))
            return messages
        return []

    def _finish_polled(self) -> None:
        for process_queue, messages in self._polled:
            for message in messages:
                process_queue.done(message)
            topic = process_queue.queue.topic
            self.stats.consumed(topic, len(messages), 0, 0.0)
        self._polled.clear()

    async def commit_polled(self) -> None:
        """Mark the messages of the last poll as consumed and commit the offsets of all queues."""
        self.check_running()
        self._finish_polled()
        await super().commit_all()

    async def commit_all(self) -> None:
        """See GroupMember.commit_all(); without `auto_commit` only commit_polled() commits."""
        if self.auto_commit:
            await super().commit_all()

    # --- called by GroupMember

    def _deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        messages = records.messages(process_queue.queue)
        self._arrived.setdefault(process_queue, []).extend(messages)
        self._news.set()

    def _released(self, process_queue: ProcessQueue) -> None:
        self._arrived.pop(process_queue, None)

    def _commits_at_end(self) -> bool:
        return self.auto_commit


class SyncLitePullConsumer(SyncClient[LitePullConsumer]):
    """A LitePullConsumer for programs without an event loop.

    ``with SyncLitePullConsumer("host:9876", group="g", topics={"T": "*"}) as consumer``; arguments,
    results and errors are those of LitePullConsumer. (RocketMQ: DefaultLitePullConsumer.)
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql] | None = None,
        auto_commit: bool = True,
        **options: Unpack[MemberOptions],
    ) -> None:
        check_options(self, options, MemberOptions)

        def make() -> LitePullConsumer:
            return LitePullConsumer(
                namesrv, group=group, topics=topics, auto_commit=auto_commit, **options
            )

        super().__init__("lite consumer", make)

    queues = blocking(LitePullConsumer.queues)
    assign = blocking(LitePullConsumer.assign)
    seek = blocking(LitePullConsumer.seek)
    seek_to_begin = blocking(LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(LitePullConsumer.seek_to_end)
    pause = in_loop(LitePullConsumer.pause)
    resume = in_loop(LitePullConsumer.resume)
    position = in_loop(LitePullConsumer.position)
    poll = blocking(LitePullConsumer.poll)
    commit_polled = blocking(LitePullConsumer.commit_polled)
