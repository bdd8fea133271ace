"""Runs listeners concurrently, in any order of messages (RocketMQ:
ConsumeMessageConcurrentlyService)."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from congreve.base.errors import CongreveError
from congreve.client.consumer.consume_stats import ConsumeStats
from congreve.client.consumer.listening import Failure, Listening
from congreve.client.logs import Log
from congreve.client.message import ReceivedMessage
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumerSettings

log = Log(__name__)

PORTION_S = 0.001
PORTION_MAX = 256
"""Target duration in seconds of one worker turn, and the most messages in it. Fast listeners get
many messages in a turn, because each turn has a cost; slow ones get one, because other workers
could take the next."""
EXPIRED_LEVEL = 3

SendBack = Callable[[ReceivedMessage, int], Awaitable[None]]


class _Delivery:
    """Messages of one pull that no worker has taken yet."""

    __slots__ = ("at", "messages", "process_queue")

    def __init__(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self.process_queue = process_queue
        self.messages = messages
        self.at = 0


class ConcurrentConsumption:
    """A fixed number of workers (RocketMQ: ConsumeMessageConcurrentlyService). With `send_back`
    None, failed messages are not retried."""

    def __init__(
        self,
        settings: ConsumerSettings,
        listening: Listening,
        stats: ConsumeStats,
        send_back: SendBack | None,
    ) -> None:
        self._settings = settings
        self._listening = listening
        self._stats = stats
        self._send_back = send_back
        self._backlog: deque[_Delivery] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._workers: list[asyncio.Task[None]] = []
        self._running: dict[int, tuple[float, ProcessQueue, list[ReceivedMessage]]] = {}
        self._retries: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._portion = 1

    def start(self) -> None:
        """Start the workers."""
        self._workers = [
            asyncio.create_task(self._work(number)) for number in range(self._settings.concurrency)
        ]

    async def stop(self) -> None:
        """Deliver no more messages and wait up to `stop_wait_s` for running listeners."""
        self._stopping = True
        self._backlog.clear()
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=self._settings.stop_wait_s)
            if late:
                log.warning("listeners are still running after the wait", count=len(late))
        for task in (*self._workers, *self._retries):
            task.cancel()
        await asyncio.gather(*self._workers, *self._retries, return_exceptions=True)
        self._listening.close()

    def acquire(self, process_queue: ProcessQueue) -> None:
        """Do nothing: workers serve all queues."""

    def release(self, process_queue: ProcessQueue) -> None:
        """Do nothing: workers check `dropped`."""

    def deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        """Queue the messages of a pull for the workers."""
        self._enqueue(process_queue, records.messages(process_queue.queue))

    def _enqueue(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._backlog.append(_Delivery(process_queue, messages))
        self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    async def _work(self, number: int) -> None:
        while not self._stopping:
            if not self._backlog:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
                continue
            process_queue, messages = self._next()
            if self._backlog:
                self._wake_one()
            if not process_queue.dropped:
                self._running[number] = (time.monotonic(), process_queue, messages)
                try:
                    await self._consume(process_queue, messages)
                except Exception:
                    log.exception("messages are delivered again", messages=messages)
                    for message in messages:
                        self._repeat_here(process_queue, message)
                finally:
                    del self._running[number]
            # A listener that never suspends must not block the answers of pulls.
            await asyncio.sleep(0)

    def _next(self) -> tuple[ProcessQueue, list[ReceivedMessage]]:
        delivery = self._backlog[0]
        size = max(self._portion, self._settings.consume_batch)
        messages = delivery.messages[delivery.at : delivery.at + size]
        delivery.at += size
        if delivery.at >= len(delivery.messages):
            self._backlog.popleft()
        return delivery.process_queue, messages

    async def _consume(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        began = time.perf_counter()
        failures = await self._listening.run(messages, in_order=False)
        elapsed = time.perf_counter() - began
        self._portion = max(1, min(PORTION_MAX, int(PORTION_S * len(messages) / (elapsed + 1e-9))))
        process_queue.consumed_at = time.time()
        failed = 0
        if failures:
            retried = [message for each in failures for message in each.messages]
            failed = len(retried)
            await self._repeat_later(process_queue, failures)
            messages = [message for message in messages if message not in retried]
        process_queue.done_all(messages)
        self._stats.consumed(process_queue.queue.topic, len(messages), failed, elapsed)

    async def _repeat_later(self, process_queue: ProcessQueue, failures: list[Failure]) -> None:
        for failure in failures:
            for message in failure.messages:
                if self._send_back is None:
                    log.warning("broadcast message failed, not retried", message=message)
                    process_queue.done(message)
                    continue
                try:
                    await self._send_back(message, failure.delay_level)
                except CongreveError as error:
                    log.warning("message retried locally", message=message, error=error)
                    self._repeat_here(process_queue, message)
                else:
                    process_queue.done(message)

    def _repeat_here(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        async def later() -> None:
            await asyncio.sleep(self._settings.retry_local_s)
            self._enqueue(process_queue, [message])

        task = asyncio.create_task(later())
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    async def send_back_expired(self) -> None:
        """Send back the messages whose listeners exceed the consume timeout (RocketMQ:
        cleanExpireMsg)."""
        if self._send_back is None:
            return
        for began, process_queue, messages in list(self._running.values()):
            if time.monotonic() - began <= self._settings.consume_timeout_s:
                continue
            for message in messages:
                await self._send_back(message, EXPIRED_LEVEL)
                process_queue.done(message)
