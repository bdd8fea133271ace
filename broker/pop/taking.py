"""What a pop takes from the queues of a topic (RocketMQ: PopMessageProcessor.popMsgFromQueue)."""

import random
from collections.abc import Callable

import msgspec
import numpy
from numpy import int64
from numpy.typing import NDArray

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.attributes import MESSAGE_TYPE, PRIORITY, PRIORITY_FACTOR
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.pop.redelivery import PopRedelivery
from congreve.broker.pop.service import Pops
from congreve.engine.errors import PopFullError
from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.read.reader import GetStatus
from congreve.engine.store import MessageStore
from congreve.records.message.pop_handle import PopHandle, PoppedFrom
from congreve.records.message.properties import ORIGIN_GROUP, POP_CK
from congreve.records.message.topics import (
    pop_retry_topic_v2,
    retry_topic,
    stored_pop_retry_topic,
)
from congreve.records.record import decode_records, encode_record, queue_offsets
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

SCANS_MAX = 64
"""Reads of one queue by one pop, each of which found no message that its filter wants."""
REVIVE_QUEUE_ID = 0
"""In handles: any of the eight queues of a RocketMQ broker."""
_NOTHING: NDArray[int64] = numpy.empty(0, int64)


class Asked(msgspec.Struct, frozen=True):
    """A pop whose checks have passed; `queue_ids` are those it may take from, times are in ms.

    (RocketMQ: PopMessageRequestHeader.)
    """

    group: str
    topic: str
    queue_ids: tuple[int, ...]
    most: int
    invisible_ms: int
    wanted: MessageFilter
    from_end: bool = False
    ordered: bool = False
    attempt_id: str | None = None


class Taken(msgspec.Struct):
    """The messages that a pop took from one queue; `attempts` are how often each came in place.

    (RocketMQ: PopCheckPoint.)
    """

    window: PopWindow
    kind: PoppedFrom
    offsets: list[int]
    attempts: list[int]
    body: bytes


class PopResult(msgspec.Struct):
    """All that a pop took, and how many messages its queues have left.

    (RocketMQ: PopMessageResponseHeader.)
    """

    pop_ms: int
    taken: list[Taken] = []
    count: int = 0
    left: int = 0
    full: bool = False


class PopTaking:
    """Takes messages from queues for groups; one event loop owns it.

    `pick(n)` is a random number below n. (RocketMQ: PopMessageProcessor.)
    """

    def __init__(
        self,
        metadata: Metadata,
        store: MessageStore,
        stats: BrokerStats,
        pops: Pops,
        clock: Clock,
        config: BrokerConfig,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store = store
        self._stats = stats
        self._pops = pops
        self._redelivery: PopRedelivery = pops.redelivery
        self._clock = clock
        self._config = config
        self._pick = pick

    def take(self, asked: Asked) -> PopResult:
        """Take up to `most` messages; none is given to another pop before its time is over."""
        result = PopResult(pop_ms=self._clock.now(), taken=[])
        self._pops.note_pop((asked.group, asked.topic), ordered=asked.ordered)
        by_priority = self._is_by_priority(asked)
        retry_first = self._pick(100) < self._retries_first(by_priority)
        if retry_first and not asked.ordered:
            self._take_retries(asked, result, by_priority)
        for queue_id in self._in_turn(asked.queue_ids, by_priority):
            window = self._pops.window(asked.group, asked.topic, queue_id, asked.from_end)
            self._take_from(asked, window, asked.wanted, PoppedFrom.TOPIC, result)
        if not retry_first and not asked.ordered:
            self._take_retries(asked, result, by_priority)
        if result.taken:
            self._pops.changed()
        return result

    def _is_by_priority(self, asked: Asked) -> bool:
        """Whether a pop takes the highest priority first: a group may have that for some pops."""
        topic, group = self._topics.table[asked.topic], self._groups.table[asked.group]
        percent = 0 if asked.ordered else by_priority_percent(topic, group)
        return percent > 0 and self._pick(100) < percent

    def _retries_first(self, by_priority: bool) -> int:
        pops = self._config.pops
        if by_priority:
            return pops.pop_from_retry_probability_for_priority
        return pops.pop_from_retry_probability

    def _in_turn(self, queue_ids: tuple[int, ...], by_priority: bool) -> tuple[int, ...]:
        if by_priority:
            return queue_ids[::-1] if self._config.pops.priority_order_asc else queue_ids
        start = self._pick(len(queue_ids))
        return queue_ids[start:] + queue_ids[:start]

    def give_back(self, result: PopResult) -> None:
        """Let the messages of a pop whose answer was lost come again now."""
        now = self._clock.now()
        for taken in result.taken:
            self._pops.redelivery.give_back(taken.window, taken.offsets, result.pop_ms, now)
        self._pops.changed()

    def has_messages(self, asked: Asked) -> bool:
        """Whether a pop would find messages that no pop has taken."""
        now = self._clock.now()
        return any(
            self._left(window) > 0
            for window in self._windows(asked)
            if not self._is_blocked(asked, window, now)
        )

    def left(self, asked: Asked) -> int:
        """How many messages of its queues no pop has taken."""
        return sum(max(self._left(window), 0) for window in self._windows(asked))

    # --- queues

    def _windows(self, asked: Asked) -> list[PopWindow]:
        windows = [
            self._pops.window(asked.group, asked.topic, queue_id, asked.from_end)
            for queue_id in asked.queue_ids
        ]
        return windows if asked.ordered else [*windows, *self._retries(asked, True)]

    def _retries(self, asked: Asked, by_priority: bool) -> list[PopWindow]:
        """Those of the group's retry topics, the second one only if a broker of RocketMQ 5 has
        written it."""
        self._pops.take_over_retries(asked.group, asked.topic)
        topics = [stored_pop_retry_topic(asked.group, asked.topic)]
        if (second := pop_retry_topic_v2(asked.group, asked.topic)) in self._topics.table:
            topics.append(second)
        return [
            self._pops.window(asked.group, topic, queue_id, False)
            for topic in topics
            for queue_id in self._retry_queues(topic, by_priority)
        ]

    def _retry_queues(self, topic: str, by_priority: bool) -> tuple[int, ...]:
        known = self._topics.table.get(topic)
        if known is None or known.read_queue_nums <= 1:
            return (0,)
        return self._in_turn(tuple(range(known.read_queue_nums)), by_priority)

    def _take_retries(self, asked: Asked, result: PopResult, by_priority: bool) -> None:
        for window in self._retries(asked, by_priority):
            kind = PoppedFrom.of(window.topic)
            self._take_from(asked, window, MessageFilter(), kind, result)

    def _take_from(
        self,
        asked: Asked,
        window: PopWindow,
        wanted: MessageFilter,
        kind: PoppedFrom,
        result: PopResult,
    ) -> None:
        most = asked.most - result.count
        taken = None
        if most > 0:
            if asked.ordered and window.out:
                taken = self._take_batch(asked, window, wanted, most, result)
            else:
                taken = self._take_new(asked, window, wanted, most, kind, result)
        if taken is not None and taken.offsets:
            result.taken.append(taken)
            result.count += len(taken.offsets)
            counter = self._stats.pull_counter(asked.group, asked.topic)
            counter.add(len(taken.offsets), len(taken.body))
        result.left += max(self._left(window), 0)
        self._pops.commit(window)

    def _left(self, window: PopWindow) -> int:
        return self._store.max_offset(window.topic, window.queue_id) - window.next

    def _take_new(
        self,
        asked: Asked,
        window: PopWindow,
        wanted: MessageFilter,
        most: int,
        kind: PoppedFrom,
        result: PopResult,
    ) -> Taken | None:
        most = min(most, window.room)
        if most <= 0:
            result.full = True
            return None
        for _ in range(SCANS_MAX):
            if not self._pops.is_readable(window):
                return None
            found = self._store.get(window.topic, window.queue_id, window.next, most, *wanted)
            if found.status is GetStatus.FOUND:
                body = b"".join(found.buffers)
                if kind is PoppedFrom.TOPIC:
                    offsets = queue_offsets(body)
                else:
                    body, offsets = self._as_original(body, asked, window, kind, result.pop_ms)
                try:
                    is_taken = window.take(
                        numpy.array(offsets, int64),
                        found.next_offset,
                        result.pop_ms,
                        asked.invisible_ms,
                        asked.ordered,
                    )
                except PopFullError:
                    result.full = True
                    return None
                if not is_taken:  # a lane was first
                    continue
                if not offsets:
                    continue
                if asked.ordered:
                    self._pops.ordered.begin(window, asked.attempt_id)
                return Taken(window, kind, offsets, [0] * len(offsets), body)
            if found.next_offset <= window.next or found.status is GetStatus.NO_MESSAGE_IN_QUEUE:
                return None
            window.take(_NOTHING, found.next_offset, result.pop_ms, asked.invisible_ms)
            if found.next_offset >= found.max_offset:
                return None
        self._pops.waiting.wake((asked.group, asked.topic))  # its scan continues then
        return None

    def _as_original(
        self, body: bytes, asked: Asked, window: PopWindow, kind: PoppedFrom, pop_ms: int
    ) -> tuple[bytes, list[int]]:
        """Records of the retry topic as those of the topic that the client asked for, and their
        offsets, without those of a group and a topic whose names make the same retry topic."""
        shared = window.topic != retry_topic(asked.group)
        records = [
            record
            for record in decode_records(body)
            if not shared or record.properties.get(ORIGIN_GROUP, asked.group) == asked.group
        ]
        pieces = []
        for record in records:
            handle = PopHandle(
                start_offset=records[0].queue_offset,
                pop_ms=pop_ms,
                invisible_ms=asked.invisible_ms,
                revive_queue_id=REVIVE_QUEUE_ID,
                kind=kind,
                broker_name=self._config.broker_name,
                queue_id=record.queue_id,
                offset=record.queue_offset,
            )
            record.properties = {POP_CK: handle.encode(), **record.properties}
            record.topic = asked.topic
            pieces.append(encode_record(record))
        return b"".join(pieces), [record.queue_offset for record in records]

    # --- ordered pops

    def _is_blocked(self, asked: Asked, window: PopWindow, now: int) -> bool:
        if not asked.ordered or not window.out or self._repeats(asked, window):
            return False
        rows = window.messages_out(window.begin, window.out)
        return bool((rows[:, 1] + rows[:, 2] > now).any())

    def _repeats(self, asked: Asked, window: PopWindow) -> bool:
        return self._pops.ordered.is_attempt(window, asked.attempt_id)

    def _take_batch(
        self, asked: Asked, window: PopWindow, wanted: MessageFilter, most: int, result: PopResult
    ) -> Taken | None:
        """The batch that is out, if its time is over or its receiver asks again; in the first case
        with new messages behind it."""
        if self._is_blocked(asked, window, result.pop_ms):
            return None
        repeats = self._repeats(asked, window)
        taken = self._take_again(asked, window, most, result.pop_ms, repeats=repeats)
        most -= len(taken.offsets)
        if repeats or most <= 0 or window.out > len(taken.offsets):
            return taken
        new = self._take_new(asked, window, wanted, most, PoppedFrom.TOPIC, result)
        if new is not None:
            taken.offsets += new.offsets
            taken.attempts += new.attempts
            taken.body += new.body
        return taken

    def _take_again(
        self, asked: Asked, window: PopWindow, most: int, pop_ms: int, *, repeats: bool
    ) -> Taken:
        taken = Taken(window, PoppedFrom.TOPIC, [], [], b"")
        pieces = []
        for offset, popped_ms, _, attempts in window.messages_out(window.begin, most).tolist():
            held = self._pops.ordered.is_held(window, offset)
            if repeats and held:
                continue
            record = self._redelivery.stored(window.topic, window.queue_id, offset)
            last = not repeats and attempts >= self._redelivery.attempts(asked.group)
            if record is None or (last and held):
                window.settle(offset, popped_ms)
                continue
            if last:
                self._redelivery.bury(window, record, popped_ms)
                continue
            change = window.extend if repeats else window.take_again
            change(offset, popped_ms, pop_ms, asked.invisible_ms)
            taken.offsets.append(offset)
            taken.attempts.append(attempts + (not repeats))
            found = self._store.read(record.physical_offset)
            pieces.append(b"" if found is None else bytes(found))
        taken.body = b"".join(pieces)
        if not repeats:
            self._pops.ordered.begin(window, asked.attempt_id)
        return taken


def by_priority_percent(topic: TopicConfig, group: SubscriptionGroupConfig) -> int:
    """How many of 100 pops take the highest priority first."""
    if (topic.attributes or {}).get(MESSAGE_TYPE) != PRIORITY:
        return 0
    return int(group.attributes.get(PRIORITY_FACTOR, "100"))
