"""Runs a listener on popped messages (RocketMQ 5: ConsumeMessagePopConcurrentlyService)."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from congreve.base.errors import CongreveError
from congreve.client.consumer.consume_stats import ConsumeStats
from congreve.client.consumer.listening import Failure, Listening
from congreve.client.consumer.send_back import DEAD_LETTER
from congreve.client.logs import Log
from congreve.client.message import ReceivedMessage
from congreve.client.receipt import Receipt
from congreve.client.share.in_flight import InFlight
from congreve.client.share.settings import ShareSettings
from congreve.client.share.settling import Settling

log = Log(__name__)

Bury = Callable[[ReceivedMessage], Awaitable[None]]


class Workers:
    """A fixed number of workers; while a message waits for one, or its listener runs, it is
    extended. `bury` sends a message to the dead letter queue.

    (RocketMQ 5: ConsumeMessagePopConcurrentlyService.)
    """

    def __init__(
        self,
        settings: ShareSettings,
        listening: Listening,
        in_flight: InFlight,
        settling: Settling,
        stats: ConsumeStats,
        bury: Bury,
    ) -> None:
        self._settings = settings
        self._listening = listening
        self._in_flight = in_flight
        self._settling = settling
        self._stats = stats
        self._bury = bury
        self._backlog: deque[ReceivedMessage] = deque()
        self._news = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        """Start the workers."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._settings.concurrency)]

    async def stop(self) -> None:
        """Wait up to `stop_wait_s` for running listeners; what waits for one is given back."""
        self._stopping = True
        waiting = receipts_of(list(self._backlog))
        self._backlog.clear()
        async with self._news:
            self._news.notify_all()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._settings.stop_wait_s)
            if late:
                log.warning("listeners are still running after the wait", count=len(late))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listening.close()
        self._in_flight.discard(waiting)
        with suppress(CongreveError):
            await self._settling.extend_all(waiting, 0.0, settles=True)

    async def wait_for_room(self) -> None:
        """Wait until few messages wait for a worker: others in the group could take them."""
        async with self._news:
            await self._news.wait_for(lambda: len(self._backlog) < self._settings.concurrency)

    async def deliver(self, messages: list[ReceivedMessage]) -> None:
        """Queue messages for the workers."""
        self._in_flight.keep(receipts_of(messages))
        self._backlog.extend(messages)
        async with self._news:
            self._news.notify(len(messages))

    async def _work(self) -> None:
        while not self._stopping:
            async with self._news:
                await self._news.wait_for(lambda: self._backlog or self._stopping)
                messages = self._next()
                self._news.notify_all()
            if messages:
                try:
                    await self._consume(messages)
                except Exception:
                    log.exception("messages are delivered again", messages=messages)
                finally:
                    self._in_flight.discard(receipts_of(messages))
            # A listener that never suspends must not block the answers of pops.
            await asyncio.sleep(0)

    def _next(self) -> list[ReceivedMessage]:
        count = min(self._settings.consume_batch, len(self._backlog))
        return [self._backlog.popleft() for _ in range(count)]

    async def _consume(self, messages: list[ReceivedMessage]) -> None:
        began = time.perf_counter()
        failures = await self._listening.run(messages, in_order=False)
        elapsed = time.perf_counter() - began
        failed = {id(message) for failure in failures for message in failure.messages}
        good = [message for message in messages if id(message) not in failed]
        self._stats.consumed(messages[0].topic, len(good), len(failed), elapsed)
        try:
            await self._settling.ack(receipts_of(good))
            for failure in failures:
                await self._repeat_later(failure)
        except CongreveError as error:
            log.warning("messages are delivered again", messages=messages, error=error)

    async def _repeat_later(self, failure: Failure) -> None:
        settings, level = self._settings, failure.delay_level
        for message in failure.messages:
            times = message.reconsume_times
            if level == DEAD_LETTER or times >= settings.attempts:
                await self._bury(message)
                continue
            delay_s = settings.delay_s(level, times)
            await self._settling.extend_all(receipts_of([message]), delay_s, settles=True)


def receipts_of(messages: list[ReceivedMessage]) -> list[Receipt]:
    """The receipts of messages that have one."""
    return [each.receipt for each in messages if each.receipt is not None]
