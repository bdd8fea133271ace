"""Runs one listener at a time for each queue, in the queue's order (RocketMQ:
ConsumeMessageOrderlyService)."""

import asyncio
import time

from congreve.base.errors import CongreveError
from congreve.client.consumer.consume_stats import ConsumeStats
from congreve.client.consumer.listening import Failure, Listening
from congreve.client.consumer.queue_locks import QueueLocks
from congreve.client.consumer.send_back import DEAD_LETTER, SendBack
from congreve.client.logs import Log
from congreve.client.message import ReceivedMessage
from congreve.client.pull.process_queue import ProcessQueue
from congreve.client.received import PulledRecords
from congreve.client.settings import ConsumerSettings

log = Log(__name__)

LOCK_RETRY_S = 0.1
SUSPEND_MIN_S, SUSPEND_MAX_S = 0.01, 30.0
PORTION = 32

_Inbox = asyncio.Queue[list[ReceivedMessage] | None]


class OrderlyConsumption:
    """One task for each queue (RocketMQ: ConsumeMessageOrderlyService). `locks` is None when
    queues are not shared (broadcasting)."""

    def __init__(
        self,
        settings: ConsumerSettings,
        listening: Listening,
        stats: ConsumeStats,
        send_back: SendBack,
        locks: QueueLocks | None,
    ) -> None:
        self._settings = settings
        self._listening = listening
        self._stats = stats
        self._send_back = send_back
        self._locks = locks
        self._attempts = settings.attempts(orderly=True)
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._inboxes: dict[ProcessQueue, _Inbox] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self) -> None:
        """Do nothing: tasks start when queues are acquired."""

    async def stop(self) -> None:
        """Deliver no more messages and wait up to `stop_wait_s` for running listeners."""
        self._stopping = True
        for inbox in self._inboxes.values():
            inbox.put_nowait(None)
        tasks = set(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._settings.stop_wait_s)
            if late:
                log.warning("listeners are still running after the wait", count=len(late))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    def acquire(self, process_queue: ProcessQueue) -> None:
        """Start the task of a queue."""
        self._inboxes[process_queue] = asyncio.Queue()
        task = asyncio.create_task(self._work(process_queue, self._inboxes[process_queue]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def release(self, process_queue: ProcessQueue) -> None:
        """End the task of a queue."""
        inbox = self._inboxes.pop(process_queue, None)
        if inbox is not None:
            inbox.put_nowait(None)

    def deliver(self, process_queue: ProcessQueue, records: PulledRecords) -> None:
        """Wake the task of the pulled queue."""
        inbox = self._inboxes.get(process_queue)
        if inbox is not None:
            inbox.put_nowait(records.messages(process_queue.queue))

    async def send_back_expired(self) -> None:
        """Do nothing: an orderly queue waits for its listener without limit."""

    async def _work(self, process_queue: ProcessQueue, inbox: _Inbox) -> None:
        while (messages := await inbox.get()) is not None:
            while messages and not process_queue.dropped and not self._stopping:
                if not await self._has_lock(process_queue):
                    await asyncio.sleep(LOCK_RETRY_S)
                    continue
                portion = messages[: max(PORTION, self._settings.consume_batch)]
                try:
                    done, failure = await self._consume(process_queue, portion)
                except Exception:
                    log.exception("messages are delivered again", messages=portion)
                    await asyncio.sleep(LOCK_RETRY_S)
                    continue
                messages = messages[done:]
                if failure is not None:
                    messages = await self._after_failure(process_queue, messages, failure)
                else:
                    await asyncio.sleep(0)

    async def _has_lock(self, process_queue: ProcessQueue) -> bool:
        if self._locks is None or process_queue.locked:
            return True
        asked_at = time.monotonic()
        if process_queue.queue in await self._locks.lock([process_queue.queue]):
            process_queue.locked_at = asked_at
        return process_queue.locked

    async def _consume(
        self, process_queue: ProcessQueue, portion: list[ReceivedMessage]
    ) -> tuple[int, Failure | None]:
        """Call the listener; returns how many messages succeeded before the first failure, and
        that failure."""
        async with self._slots, process_queue.lock:
            if process_queue.dropped:
                return 0, None
            began = time.perf_counter()
            failures = await self._listening.run(portion, in_order=True)
            elapsed = time.perf_counter() - began
            process_queue.consumed_at = time.time()
            done = portion.index(failures[0].messages[0]) if failures else len(portion)
            process_queue.done_all(portion[:done])
        failure = failures[0] if failures else None
        failed = len(failure.messages) if failure is not None else 0
        self._stats.consumed(process_queue.queue.topic, done, failed, elapsed)
        return done, failure

    async def _after_failure(
        self, process_queue: ProcessQueue, messages: list[ReceivedMessage], failure: Failure
    ) -> list[ReceivedMessage]:
        """Count an attempt of all that the listener failed on, pause, and return the messages that
        are still to be consumed: without those that have used up their attempts."""
        buried = []
        for failed in failure.messages:
            is_last = failed.reconsume_times >= self._attempts
            if self._locks is None or not (is_last or failure.delay_level == DEAD_LETTER):
                failed.count_attempt()
            elif await self._bury(failed):
                process_queue.done(failed)
                buried.append(failed)
        if len(buried) < len(failure.messages):
            await asyncio.sleep(min(max(self._settings.suspend_s, SUSPEND_MIN_S), SUSPEND_MAX_S))
        return [message for message in messages if message not in buried]

    async def _bury(self, message: ReceivedMessage) -> bool:
        """Whether the message is in the dead letter queue now."""
        try:
            await self._send_back.send_copy(message, max(message.reconsume_times, self._attempts))
        except CongreveError as error:
            log.warning("message not sent to the dead letter queue", message=message, error=error)
            return False
        return True
