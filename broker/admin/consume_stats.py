"""Progress of consumer groups for administrators (RocketMQ: AdminBrokerProcessor)."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from itertools import chain
from typing import NamedTuple

from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.pop.progress import PopProgress
from congreve.engine.store import MessageStore
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from congreve.remoting.messages.bodies import TopicConfig
from congreve.remoting.messages.body import MessageQueue

Popped = Callable[[str, str, int], PopProgress | None]
"""How far the pops of a group are in a queue, None in one that it does not pop."""


class GroupConsumeStats:
    """Offsets and lag of one group (RocketMQ: AdminBrokerProcessor.getConsumeStats)."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        consumers: ConsumerManager,
        store: MessageStore,
        stats: BrokerStats,
        popped: Popped,
    ) -> None:
        self._popped = popped
        self._config = config
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats

    def steps(
        self, group: str, topics: Iterable[str], *, write_queues: bool, with_pops: bool = False
    ) -> Generator[None, None, ConsumeStats]:
        """The group's offset and lag on each queue of these topics, in steps, also what its pops
        have taken of it.

        Topics that it does not subscribe to any more are left out.
        """
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in topics:
            config, topic_tps = self.depends_on(group, topic)
            if config is None:
                yield
                continue
            queues = config.write_queue_nums if write_queues else config.read_queue_nums
            for queue_id in range(queues):
                queue = MessageQueue(
                    topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
                )
                table[queue] = progress = self._progress(group, topic, queue_id)
                if with_pops and (pops := self._popped(group, topic, queue_id)) is not None:
                    progress.pull_offset, progress.in_flight = pops.next_offset, pops.out
                    progress.in_flight_age = pops.oldest_ms
                    progress.redelivered, progress.dead_letters = pops.came_again, pops.dead_letters
                    progress.without_order = pops.without_order or None
                yield
            tps += topic_tps
        return ConsumeStats(consume_tps=tps, offset_table=table)

    def depends_on(self, group: str, topic: str) -> tuple[TopicConfig | None, float]:
        """The topic's settings, None if it is left out, and the group's rate of pulls from it."""
        online = self._consumers.groups.get(group)
        if online is not None and online.subscriptions and topic not in online.subscriptions:
            return None, 0.0
        return self._topics.get(topic), self._stats.group_get_tps(group, topic)

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = max(self._offsets.query(group, topic, queue_id), 0)
        consumed_time = self._store.store_time(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=max(self._store.max_offset(topic, queue_id), 0),
            consumer_offset=consumed,
            last_timestamp=max(consumed_time, 0),
        )


class _TopicStats(NamedTuple):
    """A group's encoded ConsumeStats of one topic."""

    of: tuple[object, ...]
    """What the text depends on, except for the ends of the topic's queues."""
    text: bytes
    lag: int


class _GroupStats(NamedTuple):
    """A group's part of the answer."""

    topics: dict[str, _TopicStats]
    text: list[bytes]
    """The part in pieces."""
    lag: int


class BrokerConsumeStats:
    """Offsets and lag of all groups; only what has changed since the last answer is encoded again.

    RocketMQ: AdminBrokerProcessor.fetchAllConsumeStatsInBroker.
    """

    def __init__(
        self,
        of_group: GroupConsumeStats,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        pieces: Pieces,
    ) -> None:
        self._of_group = of_group
        self._config = config
        self._groups = metadata.groups
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._store = store
        self._pieces = pieces
        self._turn = asyncio.Lock()
        self._known: dict[str, _GroupStats] = {}
        self._known_of: object = None  # the state of the store that all of them depend on
        self._ends: dict[str, bytes] = {}  # of the queues of each topic

    async def get(self, *, only_ordered: bool) -> bytes:
        """The encoded ConsumeStatsList, no older than this call.

        Raises BodyError if it is longer than a frame may be.
        """
        async with self._turn:
            return await self._pieces.run(self._steps(only_ordered))

    def _steps(self, only_ordered: bool) -> Generator[None, None, bytes]:
        yield from self._refresh()
        groups = self._known
        if only_ordered:
            is_ordered = self._topics.is_order_topic
            groups = {
                name: _joined(name, {t: known for t, known in of.topics.items() if is_ordered(t)})
                for name, of in groups.items()
            }
        address = f"{self._config.broker_ip1}:{self._config.listen_port}"
        lag = sum(group.lag for group in groups.values())
        empty = ConsumeStatsList(broker_addr=address, total_diff=lag).encode()
        before, found, after = empty.partition(b'"consumeStatsList":[')
        texts = [group.text for group in groups.values()]
        return (yield from fastjson.list_steps(before + found, texts, after))

    def _refresh(self) -> Generator[None, None, None]:
        known, self._known = self._known, {}  # a refresh that fails leaves nothing behind
        state = self._store.log.min_offset, self._store.repair.rewritten, self._config.broker_name
        if state != self._known_of:
            known, self._known_of = {}, state
        moved = yield from self._moved()
        fresh: dict[str, _GroupStats] = {}
        # Also those with offsets alone: what they have not consumed counts, too.
        for group in dict.fromkeys((*self._groups.table, *self._offsets.groups())):
            fresh[group] = yield from self._group(group, known.get(group), moved)
        self._known = fresh

    def _moved(self) -> Generator[None, None, frozenset[str]]:
        """The topics whose queues have moved since the last answer."""
        wanted = self._offsets.topics()
        if len(self._ends) > len(wanted):
            self._ends = {topic: self._ends.get(topic, b"") for topic in wanted}
        return frozenset((yield from self._store.queues.moved_steps(wanted, self._ends)))

    def _group(
        self, group: str, known: _GroupStats | None, moved: frozenset[str]
    ) -> Generator[None, None, _GroupStats]:
        topics: dict[str, _TopicStats] = {}
        is_same = known is not None
        kept = {} if known is None else known.topics
        for topic, offsets in self._offsets.of_group(group).items():
            found = kept.get(topic)
            of = (offsets, *self._of_group.depends_on(group, topic))
            if found is None or topic in moved or found.of != of:
                is_same = False
                of = (dict(offsets), *of[1:])
                stats = yield from self._of_group.steps(group, [topic], write_queues=True)
                found = _TopicStats(of, (yield from stats.encode_steps()), _lag(stats))
            topics[topic] = found
            yield
        if known is not None and is_same and list(topics) == list(kept):
            return known
        return _joined(group, topics)


def _joined(group: str, topics: dict[str, _TopicStats]) -> _GroupStats:
    before = fastjson.dumps({group: []}).encode().removesuffix(b"]}")
    texts = chain.from_iterable((b",", topic.text) for topic in topics.values())
    return _GroupStats(
        topics, [before, *list(texts)[1:], b"]}"], sum(topic.lag for topic in topics.values())
    )


def _lag(stats: ConsumeStats) -> int:
    return sum(o.broker_offset - o.consumer_offset for o in stats.offset_table.values())
