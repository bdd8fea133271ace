"""Messages whose invisible time is over: copies in the group's retry or dead-letter topic.

The copy comes first, then the entry of the journal that settles the message. A start finds the
copies behind the journal's end, which a kill left without that entry: each has the physical offset
of its message + 1 as its prepared offset. broker/pop/copies.pyx copies ordinary messages.
(RocketMQ: PopReviveService.)
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec
from numpy import int64
from numpy.typing import NDArray

from congreve.broker.config_parts import PopConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offsets import Place
from congreve.broker.pop.copies import RetryCopies
from congreve.broker.requests.settings import host_bytes
from congreve.broker.send.retries import dead_letter
from congreve.engine.pop.in_flight import InFlight, PopWindow
from congreve.engine.pop.results import Answer
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message.fitting import fitting
from congreve.records.message.message import Host, Record, one_more
from congreve.records.message.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    FIRST_POP_TIME,
    LITE_TOPIC,
    ORIGIN_GROUP,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    UNIQ_KEY,
)
from congreve.records.message.topics import (
    dlq_topic,
    is_light,
    light_topic,
    pop_retry_prefixes,
    popped_topic,
    retry_topic,
)
from congreve.records.record import decode_record, offset_message_id

logger = logging.getLogger(__name__)

CLAIMED_MS = 1_001
"""When a message is due again whose copy the store has refused; clients hardly ask for it."""
ROWS = 100_000
"""Messages that a start looks at together."""
_NEVER_MS = 1 << 62


class PopRedelivery:
    """Copies messages of one store for their groups. (RocketMQ: PopReviveService.)"""

    def __init__(
        self,
        config: PopConfig,
        metadata: Metadata,
        store: MessageStore,
        in_flight: InFlight,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store = store
        self._stats = stats
        self._copies = RetryCopies(store.log, in_flight)
        self.again_counts: Counter[tuple[str, str, int]] = Counter()
        """Messages that came again since the start, by group, topic and queue."""
        self.dead_counts: Counter[tuple[str, str, int]] = Counter()
        """Those that became dead letters."""
        self.stopping = False
        """The broker closes all connections, also those of clients that have their messages."""

    def give_back(self, window: PopWindow, offsets: Sequence[int], pop_ms: int, now: int) -> None:
        """Let messages of a pop come again now, whose client was gone when it was answered."""
        if not self.stopping:
            for offset in offsets:
                window.extend(offset, pop_ms, now, 0)

    def again_ordinary(
        self,
        window: PopWindow,
        rows: NDArray[int64],
        host: Host,
        *,
        topic: str,
        until_ns: int,
    ) -> int:
        """again() for the first of the `rows` of a Due, until `until_ns` of the monotonic clock.

        Returns for how many: it ends before one that is not ordinary.
        """
        if topic == retry_topic(window.group) != window.topic:  # its copies say more
            return 0
        queue_id = self._queue_of(window, topic)
        self._topics.create_internal(topic, queue_id + 1)
        target = self._store.queues.get(topic, queue_id)
        count = self._copies.copy(
            window,
            rows,
            self._store.queues.find(window.topic, window.queue_id),
            target,
            host=host_bytes(host),
            attempts=self.attempts(window.group),
            until_ns=until_ns,
        )
        if count:
            self._store.after_append(self._copies.end, [target] if target.watchers else [])
            self._count(window, count, is_dead=False)
        return count

    def again(
        self,
        window: PopWindow,
        offset: int,
        pop_ms: int,
        host: Host,
        *,
        topic: str,
        moved: bool = False,
    ) -> bool:
        """Give the group a message again, from `topic`, and settle it; False if the store refuses
        the copy.

        One that is only `moved` there was not delivered.
        """
        record = self.stored(window.topic, window.queue_id, offset)
        if record is None:  # it has expired
            window.settle(offset, pop_ms)
            return True
        if not moved and record.reconsume_times >= self.attempts(window.group):
            return self.bury(window, record, pop_ms)
        copy = fitting(_copy(record, window.group, topic, host, None if moved else pop_ms))
        if copy is None:
            logger.error(
                "message %s of group %s is a dead letter: its properties leave no room for a retry",
                record.properties.get(UNIQ_KEY),
                window.group,
            )
            return self.bury(window, record, pop_ms)
        copy.queue_id = self._queue_of(window, topic)
        self._topics.create_internal(copy.topic, copy.queue_id + 1)
        return self._put(copy, window, record, pop_ms)

    def _queue_of(self, window: PopWindow, topic: str) -> int:
        """The queue of `topic` from which the group gets messages of a window again."""
        plain = retry_topic(window.group)
        separate = self._config.use_separate_retry_queue
        return window.queue_id if separate and plain not in (topic, window.topic) else 0

    def bury(self, window: PopWindow, record: Record, pop_ms: int) -> bool:
        """Put a message into the group's dead-letter topic, and settle it; as again()."""
        self._topics.create_internal(dlq_topic(window.group), 1)
        return self._put(dead_letter_of(record, window.group), window, record, pop_ms)

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Forget the counts of a group or topic that is gone."""
        for counts in (self.again_counts, self.dead_counts):
            for key in list(counts):
                if key[0] == group or topic in (key[1], popped_topic(*key[:2])):
                    del counts[key]

    def attempts(self, group: str) -> int:
        """How often a group may get a message again."""
        known = self._groups.table.get(group)
        return 0 if known is None else known.retry_max_times

    def stored(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """The record at an offset of a queue; None if it has expired."""
        queue = self._store.queues.find(topic, queue_id)
        place = None if queue is None else self._store.place_of(queue, offset)
        found = None if place is None else self._store.read(place)
        return None if found is None else decode_record(found, physical_offset=place)

    def settle_copied(self, in_flight: InFlight, journal_end: int) -> None:
        """Settle the messages with a copy behind the end of the journal, or behind their claim.

        A lane may write the journal between a copy and its settling.
        """
        claimed_ms = _first_claim_ms(in_flight)
        topics = sorted(self._store.queues.topics())
        for group in {window.group for window in in_flight.all_windows() if window.out}:
            names = [
                name for each in pop_retry_prefixes(group) for name in _beginning(topics, each)
            ]
            for name in (*names, retry_topic(group), dlq_topic(group)):
                known = self._topics.table.get(name)
                for queue_id in range(1 if known is None else known.write_queue_nums):
                    place = group, name, queue_id
                    self._settle_copied(in_flight, place, journal_end, claimed_ms)

    def _settle_copied(
        self, in_flight: InFlight, copies: Place, begin: int, claimed_ms: int
    ) -> None:
        group, topic, queue_id = copies
        offset = self._store.max_offset(topic, queue_id) - 1
        while copy := self.stored(topic, queue_id, offset):
            copied_ms = copy.store_timestamp
            if copy.physical_offset >= begin:
                copied_ms = _NEVER_MS
            elif copied_ms < claimed_ms - 1:
                break
            offset -= 1
            if copy.properties.get(ORIGIN_GROUP, group) != group:  # its name begins as this one's
                continue
            place = copy.prepared_offset - 1
            source = self._store.record_at(place) if place >= 0 else None
            if source is not None:
                record = decode_record(source)
                window = in_flight.find(group, record.topic, record.queue_id)
                lite = record.properties.get(LITE_TOPIC)
                if lite is not None:
                    light = light_topic(record.topic, lite)
                    window = in_flight.find(group, light, record.queue_id) or window
                if window is not None:
                    _settle_copied(window, record.queue_offset, copied_ms)

    def _put(self, copy: Record, window: PopWindow, record: Record, pop_ms: int) -> bool:
        # A lane may acknowledge the message meanwhile: with another pop time it cannot.
        claimed_ms = max(self._store.clock.now(), pop_ms + 1)
        offset = record.queue_offset
        if window.extend(offset, pop_ms, claimed_ms, CLAIMED_MS) is not Answer.DONE:
            return True
        copy.prepared_offset = record.physical_offset + 1
        put = self._store.put(copy, is_copy=True)
        if put.status is not PutStatus.PUT_OK:
            logger.error("%s takes no copy of a message: %s", copy.topic, put.refusal)
            return False
        window.settle(offset, claimed_ms)
        self._count(window, 1, is_dead=copy.topic == dlq_topic(window.group))
        return True

    def _count(self, window: PopWindow, count: int, *, is_dead: bool) -> None:
        topic = popped_topic(window.group, window.topic)
        self._stats.sent_back(window.group, topic, count, is_dead=is_dead)
        counts = self.dead_counts if is_dead else self.again_counts
        counted = topic if is_light(window.topic) else window.topic
        counts[window.group, counted, window.queue_id] += count


def _beginning(names: list[str], prefix: str) -> list[str]:
    """Those of some sorted names that begin so."""
    first = bisect_left(names, prefix)
    return list(takewhile(lambda name: name.startswith(prefix), islice(names, first, None)))


def _first_claim_ms(in_flight: InFlight) -> int:
    """When the first message that is out was claimed for a copy, `_NEVER_MS` if none was."""
    first = _NEVER_MS
    for window in [window for window in in_flight.all_windows() if window.out]:
        offset = window.begin
        while len(rows := window.messages_out(offset, ROWS)):
            offset = int(rows[-1, 0]) + 1
            claims = rows[rows[:, 2] == CLAIMED_MS, 1]
            if len(claims):
                first = min(first, int(claims.min()))
    return first


def _settle_copied(window: PopWindow, offset: int, copied_ms: int) -> None:
    """Settle a message that was claimed before it was copied, in the ms before at the latest."""
    for out, pop_ms, *_ in window.messages_out(offset, 1).tolist():
        if out == offset and pop_ms - 1 <= copied_ms:
            window.settle(offset, pop_ms)


def _copy(record: Record, group: str, topic: str, host: Host, pop_ms: int | None) -> Record:
    """The copy in a retry topic; without `pop_ms` it is that of a message that was not popped."""
    kept = dict(record.properties)
    times = record.reconsume_times
    if pop_ms is not None:
        if times == 0:
            kept.pop(FIRST_POP_TIME, None)
        kept.setdefault(FIRST_POP_TIME, str(pop_ms))
    kept[ORIGIN_GROUP] = group
    if record.topic != topic == retry_topic(group):  # as of a message that a consumer sends back
        message_id = offset_message_id(record.store_host, record.physical_offset)
        kept.setdefault(RETRY_TOPIC, popped_topic(group, record.topic))
        kept.setdefault(ORIGIN_MESSAGE_ID, message_id)
    return Record(
        topic=topic,
        body=record.body,
        properties=kept,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=host,
        store_host=host,
        reconsume_times=times if pop_ms is None else one_more(times),
    )


def dead_letter_of(record: Record, group: str) -> Record:
    """The dead letter of a message that a group did not acknowledge after its last attempt."""
    kept = dict(record.properties)
    topic = popped_topic(group, record.topic)
    message_id = offset_message_id(record.store_host, record.physical_offset)
    kept.setdefault(RETRY_TOPIC, topic)
    kept.setdefault(ORIGIN_MESSAGE_ID, message_id)
    kept[DLQ_ORIGIN_TOPIC] = topic
    kept[DLQ_ORIGIN_MESSAGE_ID] = kept.get(UNIQ_KEY, message_id)
    letter = msgspec.structs.replace(
        record, properties=kept, reconsume_times=one_more(record.reconsume_times)
    )
    return dead_letter(letter, group)
