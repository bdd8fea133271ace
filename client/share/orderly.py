"""Runs a listener on the popped messages of each queue in their order (RocketMQ 5:
FifoConsumeService)."""

import asyncio
import time
from contextlib import suppress

from congreve.base.errors import CongreveError
from congreve.client.consumer.listening import Failure
from congreve.client.consumer.send_back import DEAD_LETTER
from congreve.client.logs import Log
from congreve.client.message import ReceivedMessage
from congreve.client.share.workers import Workers, receipts_of

log = Log(__name__)


class OrderlyWorkers(Workers):
    """Workers each of which has what was popped of one queue: the broker hands out no more of that
    queue meanwhile.

    A message that the listener fails on is tried again here, with those behind it, and all of them
    are extended until then. (RocketMQ 5: FifoConsumeService.)
    """

    def _next(self) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        while self._backlog and (not messages or self._backlog[0].queue == messages[0].queue):
            messages.append(self._backlog.popleft())
        return messages

    async def _consume(self, messages: list[ReceivedMessage]) -> None:
        left = messages
        try:
            while left and not self._stopping:
                left = await self._consume_first(left)
        except CongreveError as error:
            log.warning("messages are delivered again", messages=left, error=error)
        finally:
            self._in_flight.discard(receipts_of(messages))
        with suppress(CongreveError):
            await self._settling.extend_all(receipts_of(left), 0.0, settles=True)

    async def _consume_first(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Call the listener for the first messages; returns those that are left."""
        portion = messages[: self._settings.consume_batch]
        began = time.perf_counter()
        failures = await self._listening.run(portion, in_order=True)
        elapsed = time.perf_counter() - began
        failed = failures[0].messages if failures else []
        done = portion.index(failed[0]) if failed else len(portion)
        self._stats.consumed(messages[0].topic, done, len(failed), elapsed)
        await self._settling.ack(receipts_of(portion[:done]))
        left = messages[done:]
        return await self._after_failure(failures[0], left) if failures else left

    async def _after_failure(
        self, failure: Failure, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Wait, and return what is still to be consumed; without the first message if it was its
        last attempt."""
        settings, first, level = self._settings, messages[0], failure.delay_level
        if level == DEAD_LETTER or first.reconsume_times >= settings.attempts:
            await self._bury(first)
            return messages[1:]
        delay_s = settings.delay_s(level, first.reconsume_times)
        first.count_attempt()
        receipts = receipts_of(messages)
        self._in_flight.release(receipts)
        self._in_flight.keep(receipts)  # for one more settings.consume_timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout(min(delay_s, settings.consume_timeout_s / 2)), self._news:
                await self._news.wait_for(lambda: self._stopping)
        return messages
