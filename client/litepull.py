"""Polls for messages, as a member of a group or from chosen queues (RocketMQ:
DefaultLitePullConsumer)."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from congreve.client.errors import ClientStateError, InvalidSettingError
from congreve.client.loopthread import LoopThread
from congreve.client.member import GroupMember
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.namespace import wrap_queue
from congreve.client.processqueue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumerSettings
from congreve.client.subscription import Sql, subscribe

POLL_COUNT = 10
POLL_S = 5.0


class LitePullConsumer(GroupMember):
    """Messages when the program asks for them::

        async with LitePullConsumer("host:9876", group="g", topics={"T": "*"}) as consumer:
            messages = await consumer.poll()

    With `topics` the group's members share the queues, as push consumers do. Without, assign()
    says which queues are read, and no other member is asked. The messages of a poll are done with
    at the next one, or at commit(); with `auto_commit` offsets are committed each
    settings.commit_s. Other arguments are GroupMember's.
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
        settings: ConsumerSettings | None = None,
        **more: Any,
    ) -> None:
        settings = settings or ConsumerSettings(carry_subscription=True)
        super().__init__(namesrv, group=group, topics=topics or {}, settings=settings, **more)
        if self.orderly:
            raise InvalidSettingError("a pull consumer has no listener that could be orderly")
        self.auto_commit = auto_commit
        self._assigns = not topics
        self._arrived: dict[ProcessQueue, list[ReceivedMessage]] = {}
        self._news = asyncio.Event()
        self._polled: list[tuple[ProcessQueue, list[ReceivedMessage]]] = []

    # ---- which queues --------------------------------------------------------------------------

    async def assign(self, queues: Iterable[MessageQueue], *, expression: str | Sql = "*") -> None:
        """Read these queues, and no others, from the group's offsets on.

        Raises ClientStateError where the consumer has topics, BrokerError, another ClientError or a
        RemotingError.
        """
        self.check_running()
        if not self._assigns:
            raise ClientStateError("this consumer's queues are those of its topics: no assign()")
        wanted = {wrap_queue(self.namespace, queue) for queue in queues}
        for queue in sorted(wanted):
            self.subscriptions[queue.topic] = subscribe(queue.topic, expression)
            await self.routes.find(queue.topic)
        async with self._balancing:
            for queue in set(self.process_queues) - wanted:
                await self._give_up(queue)
            for queue in sorted(wanted - set(self.process_queues)):
                await self._take_up(queue)
        await self.heartbeat()

    async def rebalance(self) -> None:
        """Nothing where queues are assigned."""
        if not self._assigns:
            await super().rebalance()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was pulled of the queue and not polled is dropped.

        Raises ClientStateError where the queue is not this consumer's, InvalidSettingError where
        the offset is outside of the queue, BrokerError or a RemotingError.
        """
        queue = wrap_queue(self.namespace, queue)
        low, high = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        if not low <= offset <= high:
            raise InvalidSettingError(f"{queue} has offsets {low} to {high}: no {offset}")
        async with self._balancing:
            self._own(queue)
            await self._drop(self.process_queues[queue])
            process_queue = ProcessQueue(queue, offset, self.settings.limits)
            self._begin(process_queue)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that is still there."""
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on at the next message to come."""
        await self.seek(queue, await self.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor poll these queues. Raises ClientStateError."""
        for queue in queues:
            self._own(queue).pause(True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with them. Raises ClientStateError."""
        for queue in queues:
            self._own(queue).pause(False)
        self._news.set()

    def position(self, queue: MessageQueue) -> int:
        """Where the next poll goes on in a queue. Raises ClientStateError."""
        process_queue = self._own(queue)
        waiting = self._arrived.get(process_queue)
        return waiting[0].queue_offset if waiting else process_queue.next_offset

    def _own(self, queue: MessageQueue) -> ProcessQueue:
        self.check_running()
        process_queue = self.process_queues.get(wrap_queue(self.namespace, queue))
        if process_queue is None:
            raise ClientStateError(f"{queue} is not among the queues of this consumer")
        return process_queue

    # ---- messages ------------------------------------------------------------------------------

    async def poll(
        self, timeout_s: float = POLL_S, max_count: int = POLL_COUNT
    ) -> list[ReceivedMessage]:
        """Up to `max_count` messages of one queue; an empty list after `timeout_s` without any.

        The messages of the poll before are done with. Raises ClientStateError.
        """
        self.check_running()
        self._finish_polled()
        deadline = time.monotonic() + timeout_s
        while not (messages := self._take_arrived(max_count)):
            self._news.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._news.wait()
            except TimeoutError:
                return []
        return messages

    def _take_arrived(self, max_count: int) -> list[ReceivedMessage]:
        for process_queue, waiting in self._arrived.items():
            if process_queue.paused:
                continue
            messages, rest = waiting[:max_count], waiting[max_count:]
            # Behind all others: queues take turns.
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
        """The messages of the last poll are done with; commit that of all queues."""
        self.check_running()
        self._finish_polled()
        await super().commit_all()

    async def commit_all(self) -> None:
        """See GroupMember; without `auto_commit` nothing but commit_polled() commits."""
        if self.auto_commit:
            await super().commit_all()

    # ---- what GroupMember calls ----------------------------------------------------------------

    def _deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        messages = records.messages(process_queue.queue)
        self._arrived.setdefault(process_queue, []).extend(messages)
        self._news.set()

    def _given_up(self, process_queue: ProcessQueue) -> None:
        self._arrived.pop(process_queue, None)

    def _commits_at_end(self) -> bool:
        return self.auto_commit


class SyncLitePullConsumer:
    """A LitePullConsumer for programs without an event loop.

    ``with SyncLitePullConsumer("host:9876", group="g", topics={"T": "*"}) as consumer``; arguments,
    results and errors are LitePullConsumer's.
    """

    def __init__(self, namesrv: str, **settings: Any) -> None:
        self._thread = LoopThread("lite consumer", lambda: LitePullConsumer(namesrv, **settings))

    def start(self) -> None:
        """See GroupMember.start()."""
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

    def queues(self, topic: str) -> list[MessageQueue]:
        """See PullConsumer.queues()."""
        return self._thread.run(self._thread.client.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], *, expression: str | Sql = "*") -> None:
        """See LitePullConsumer.assign()."""
        self._thread.run(self._thread.client.assign(queues, expression=expression))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """See LitePullConsumer.seek()."""
        self._thread.run(self._thread.client.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """See LitePullConsumer.seek_to_begin()."""
        self._thread.run(self._thread.client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """See LitePullConsumer.seek_to_end()."""
        self._thread.run(self._thread.client.seek_to_end(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """See LitePullConsumer.pause()."""
        self._thread.call(lambda: self._thread.client.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """See LitePullConsumer.resume()."""
        self._thread.call(lambda: self._thread.client.resume(queues))

    def position(self, queue: MessageQueue) -> int:
        """See LitePullConsumer.position()."""
        return self._thread.call(lambda: self._thread.client.position(queue))

    def poll(self, timeout_s: float = POLL_S, max_count: int = POLL_COUNT) -> list[ReceivedMessage]:
        """See LitePullConsumer.poll()."""
        return self._thread.run(self._thread.client.poll(timeout_s, max_count))

    def commit_polled(self) -> None:
        """See LitePullConsumer.commit_polled()."""
        self._thread.run(self._thread.client.commit_polled())
