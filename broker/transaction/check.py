"""Transaction checks: asks producers how transactions ended (TransactionalMessageCheckService).

Each round reads all open half messages. The reference copies each of them to the end of the half
queue at every check; this broker copies one only when it would hold back the queue's offset for too
long or is in a segment that may be deleted.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from congreve.base.clock import Clock
from congreve.base.errors import CongreveError
from congreve.base.numbers import java_integer
from congreve.broker.config import BrokerConfig
from congreve.broker.group.broker_to_client import check_transaction_state
from congreve.broker.group.producers import ProducerManager
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.transaction.service import TransactionService
from congreve.engine.readable_store import DamagedEntryError
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message import half_messages, properties
from congreve.records.message.message import Record
from congreve.records.message.topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.remoting.loop.background import BackgroundTask

logger = logging.getLogger(__name__)

ROUND_MAX_S = 60
LOOKS_AT_ONCE = 32  # half messages to check in one turn of the loop
WINDOW_MAX = 4_000_000  # half messages after an open one, from which on it is copied
HOUR_MS = 3_600_000


class TransactionCheckService:
    """Runs one round every transactionCheckInterval; owned by one event loop.

    The service counts for each half offset how often a producer got a check (D21): a message that
    is too young, or has no connected producer, loses none of its transactionCheckMax checks.
    (RocketMQ: TransactionalMessageCheckService.)
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        producers: ProducerManager,
        store: MessageStore,
        service: TransactionService,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._topics = topics
        self._producers = producers
        self._store = store
        self._service = service
        self._clock = clock
        self._monotonic = monotonic
        self._asked = service.asked
        self._unasked: Counter[str] = Counter()  # by group, in this round
        self._task = BackgroundTask("the rounds of transaction checks", self._rounds, logger)

    def start(self) -> None:
        """Create the half topic, and start the rounds."""
        self._topics.create_internal(TRANS_HALF_TOPIC, 1)
        self._task.start()

    async def stop(self) -> None:
        """Stop the rounds; the next start continues with open transactions."""
        await self._task.stop()

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(self._config.transaction_check_interval / 1000)
            await self.check()

    async def check(self) -> None:
        """Run one round over all open half messages, oldest first."""
        begin = self._clock.now()
        self._service.write_missing_op_records()
        open_offsets = self._service.open_offsets()
        still_open = set(open_offsets)
        for offset in [offset for offset in self._asked if offset not in still_open]:
            del self._asked[offset]
        self._unasked.clear()
        shown_end = self._store.max_offset(TRANS_HALF_TOPIC, TRANS_QUEUE_ID)
        await self._look_at_all([each for each in open_offsets if each < shown_end], begin)
        for group, count in self._unasked.items():
            logger.warning(
                "no producer of group %s is connected to check %d half messages", group, count
            )

    async def _look_at_all(self, offsets: list[int], begin: int) -> None:
        end = self._monotonic() + ROUND_MAX_S
        for number, offset in enumerate(offsets):
            if number % LOOKS_AT_ONCE == LOOKS_AT_ONCE - 1:
                await asyncio.sleep(0)
                if self._monotonic() > end:
                    left = len(offsets) - number
                    logger.warning("%d half messages wait for the next round", left)
                    return
            if not self._service.window.contains(offset):
                try:
                    self._look_at(offset, begin)
                except DamagedEntryError as damage:
                    await self._recheck(damage, begin)

    async def _recheck(self, damage: DamagedEntryError, begin: int) -> None:
        """Look at the half message after a repair; when that fails it waits for the next round."""
        try:
            await asyncio.wrap_future(self._store.repairs.start(damage.queue, damage.offset))
            if not self._service.window.contains(damage.offset):
                self._look_at(damage.offset, begin)
        except CongreveError as error:
            logger.error("half message %d waits for the next round: %s", damage.offset, error)

    def _look_at(self, offset: int, begin: int) -> None:
        half = self._service.half_at(offset, repair=False)
        if half is None:
            logger.error("half message %d has expired, its transaction is lost", offset)
            self._service.settle_lost(offset)
            return
        # Stored in this round; one of the future was stored while the clock was ahead.
        if begin <= half.store_timestamp <= self._clock.now():
            return
        times = self._asked.get(offset, half_messages.check_times(half))
        age = begin - half.born_timestamp
        if (
            not half_messages.has_target(half)
            or times >= self._config.transaction_check_max
            or age > self._store.config.file_reserved_time * HOUR_MS
        ):
            self._give_up(half, offset, times)
            return
        if self._must_move(half, offset):
            moved = self._moved(half, offset, times)
            if moved is None:
                return
            half, offset = moved, moved.queue_offset
        if age < 0 or age >= self._immunity_ms(half):
            self._ask(half, offset, times)

    def _immunity_ms(self, half: Record) -> int:
        """The age in ms from which on a half message is checked."""
        text = half.properties.get(properties.CHECK_IMMUNITY_TIME, "")
        seconds = java_integer(text, bits=64)
        if seconds is None or seconds == -1:
            return self._config.transaction_time_out
        return seconds * 1000

    def _ask(self, half: Record, offset: int, times: int) -> None:
        group = half.properties.get(properties.PRODUCER_GROUP, "")
        topic = half.properties.get(properties.REAL_TOPIC, "")
        producer = self._producers.available(group, topic)
        if producer is None:
            self._unasked[group] += 1
            return
        check_transaction_state(producer, half_messages.checked(half, times + 1))
        self._asked[offset] = times + 1

    def _give_up(self, half: Record, offset: int, times: int) -> None:
        self._topics.create_internal(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        put = self._service.give_up(half, offset, times)
        if put is None:
            return
        if put.status is not PutStatus.PUT_OK:
            logger.error("cannot give up half message %d: %s", offset, put.status.name)
            return
        self._asked.pop(offset, None)
        logger.error(
            "half message %d (%s of group %s) had %d checks and is now in %s as %s",
            offset,
            half.properties.get(properties.UNIQ_KEY),
            half.properties.get(properties.PRODUCER_GROUP),
            times,
            TRANS_CHECK_MAX_TIME_TOPIC,
            put.message_ids,
        )

    def _must_move(self, half: Record, offset: int) -> bool:
        end = self._store.max_offset(TRANS_HALF_TOPIC, TRANS_QUEUE_ID)
        segments = self._store.log.segments
        return end - offset > WINDOW_MAX or half.physical_offset < segments[-1].base_offset

    def _moved(self, half: Record, offset: int, times: int) -> Record | None:
        put = self._service.put_back(half, offset, times)
        if put is None:
            return None
        if put.status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
            self._give_up(half, offset, times)
            return None
        if put.status is not PutStatus.PUT_OK:
            logger.error("cannot copy half message %d: %s", offset, put.status.name)
            return None
        if offset in self._asked:
            self._asked[put.queue_offset] = self._asked.pop(offset)
        return msgspec.structs.replace(
            half, queue_offset=put.queue_offset, physical_offset=put.physical_offset
        )
