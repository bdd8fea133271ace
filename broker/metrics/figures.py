"""The figures of topics and groups at one moment, collected in steps."""

from collections.abc import Callable, Generator, Mapping
from typing import Self, TypeVar

import msgspec

from congreve.base.clock import Clock
from congreve.broker.figures.stats import (
    GROUP_GET_SIZE,
    GROUP_SEND_BACK_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStats,
)
from congreve.broker.group.consumers import ConsumerGroup, ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metrics.store_times import StoreTimes
from congreve.engine.store import MessageStore

OTHER = "other"
"""The label of what does not fit into metricsMaxSeries."""
CLUSTERING = "CLUSTERING"
QUEUES_OF_STEP = 32


class TopicFigures(msgspec.Struct, gc=False):
    """One topic: offsets and counts in messages, rates a second."""

    topic: str
    is_system: bool = False
    queues: int = 0
    end: int = 0  # the sum of the ends of all queues
    stored: int = 0  # messages that did not expire
    put_size: int = 0  # bytes of records since the start
    put_tps: float = 0.0
    put_size_tps: float = 0.0

    def absorb(self, other: Self) -> None:
        """Add another topic's figures."""
        self.queues += other.queues
        self.end += other.end
        self.stored += other.stored
        self.put_size += other.put_size
        self.put_tps += other.put_tps
        self.put_size_tps += other.put_size_tps


class GroupFigures(msgspec.Struct, gc=False):
    """A group on a topic: offsets and counts in messages, rates a second."""

    group: str
    topic: str
    model: str = CLUSTERING
    members: int = 0
    is_system: bool = False
    consumed: int = 0  # the sum of the committed offsets
    end: int = 0  # the sum of the ends of all queues
    lag: int = 0  # messages that the group may still get
    lag_ms: int = 0  # the store time of the oldest of them
    messages: int = 0  # in answers to pulls since the start
    size: int = 0  # their bytes
    get_tps: float = 0.0
    get_size_tps: float = 0.0
    send_back_tps: float = 0.0

    def absorb(self, other: Self) -> None:
        """Add another group's figures; the lag in time is the longer one."""
        self.lag_ms = max(self.lag_ms, other.lag_ms)
        counts = ("members", "consumed", "end", "lag", "messages", "size")
        for field in (*counts, "get_tps", "get_size_tps", "send_back_tps"):
            setattr(self, field, getattr(self, field) + getattr(other, field))


Row = TypeVar("Row", TopicFigures, GroupFigures)


class Figures(msgspec.Struct):
    """What one collection found; `folded` topics and groups are in the rows named `other`."""

    topics: list[TopicFigures]
    groups: list[GroupFigures]
    topic_count: int
    folded: int


class FigureCollector:
    """Collects the figures of topics and groups; the event loop calls it.

    There are rows for `max_rows()` topics and groups together, of which topics take half at most.
    The first ones in the broker's tables keep rows of their own, so that a series does not come and
    go from one collection to the next.
    """

    def __init__(
        self,
        metadata: Metadata,
        consumers: ConsumerManager,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
        max_rows: Callable[[], int],
    ) -> None:
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats
        self._clock = clock
        self._max_rows = max_rows
        self._times = StoreTimes(store)

    def steps(self) -> Generator[None, None, Figures]:
        """The figures now, in steps."""
        max_rows = self._max_rows()
        topics: dict[str, TopicFigures] = {}
        for name in list(self._topics.table):
            topics[name] = self._topic(name)
            yield
        kept_topics, folded_topics = yield from _folded(
            list(topics.values()), max_rows // 2, TopicFigures(OTHER)
        )
        groups: list[GroupFigures] = []
        self._offsets.changes  # noqa: B018 - it takes the commits of other threads
        for key, offsets in list(self._offsets.table.items()):
            topic, _, group = key.partition("@")
            if topic in topics and not self._has_left(group, topic):
                row = yield from self._group(group, topic, offsets)
                row.is_system = topics[topic].is_system
                groups.append(row)
            yield
        self._times.end_round()
        kept_groups, folded_groups = yield from _folded(
            groups, max_rows - len(kept_topics), GroupFigures(OTHER, OTHER)
        )
        return Figures(kept_topics, kept_groups, len(topics), folded_topics + folded_groups)

    def _topic(self, name: str) -> TopicFigures:
        queues = list(self._store.queues.of_topic(name))
        ends = expired = put_size = 0
        for queue in queues:
            ends += self._store.log.end_of(queue)
            expired += queue.min
            put_size += queue.put_bytes
        return TopicFigures(
            name,
            self._topics.is_system_topic(name),
            queues=len(queues),
            end=ends,
            stored=ends - expired,
            put_size=put_size,
            put_tps=self._stats.minute_rate(TOPIC_PUT_NUMS, name),
            put_size_tps=self._stats.minute_rate(TOPIC_PUT_SIZE, name),
        )

    def _online(self, group: str) -> ConsumerGroup | None:
        return self._consumers.groups.get(group)

    def _has_left(self, group: str, topic: str) -> bool:
        """Whether the group has members, but none of them subscribes to the topic any more."""
        online = self._online(group)
        return (
            online is not None
            and bool(online.subscriptions)
            and (topic not in online.subscriptions)
        )

    def _group(
        self, group: str, topic: str, offsets: Mapping[int, int]
    ) -> Generator[None, None, GroupFigures]:
        online, stats = self._online(group), self._stats
        key = f"{topic}@{group}"
        row = GroupFigures(
            group,
            topic,
            get_tps=stats.group_get_tps(group, topic),
            get_size_tps=stats.minute_rate(GROUP_GET_SIZE, key),
            send_back_tps=stats.minute_rate(GROUP_SEND_BACK_NUMS, key),
        )
        row.messages, row.size = stats.pulled(group, topic)
        if online is not None:
            row.members, row.model = len(online.channels), online.message_model
        oldest = now = self._clock.now()
        for number, queue in enumerate(list(self._store.queues.of_topic(topic))):
            queue_id, first, end = queue.queue_id, queue.min, self._store.log.end_of(queue)
            offset = offsets.get(queue_id, 0)
            row.consumed += offset
            row.end += end
            waiting = offset if offset > first else first
            if waiting < end:
                row.lag += end - waiting
                oldest = min(oldest, self._times.of(topic, queue_id, waiting, now))
            if number % QUEUES_OF_STEP == QUEUES_OF_STEP - 1:
                yield
        row.lag_ms = max(now - oldest, 0)
        return row


def _folded(
    rows: list[Row], max_rows: int, other: Row
) -> Generator[None, None, tuple[list[Row], int]]:
    """At most `max_rows` rows, of which the last is the sum of the rest, and the length of that."""
    if len(rows) <= max_rows:
        return rows, 0
    rest = rows[max_rows - 1 :]
    for row in rest:
        other.absorb(row)
        yield
    kept = rows[: max_rows - 1]
    kept.append(other)
    return kept, len(rest)
