"""Progress of consumer groups for administrators (RocketMQ: AdminBrokerProcessor)."""

import asyncio
from collections.abc import Generator, Iterable
from itertools import chain
from typing import NamedTuple

from congreve.broker.admin.stats import BrokerStats
from congreve.broker.config import BrokerConfig
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.engine.store import MessageStore
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
)
from congreve.remoting.transport.pieces import Pieces


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
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._consumers = consumers
        self._store = store
        self._stats = stats

    def steps(
        self, group: str, topics: Iterable[str], *, write_queues: bool
    ) -> Generator[None, None, ConsumeStats]:
        """The group's offset and lag on each queue of these topics, in steps.

        Topics that it does not subscribe to any more are left out.
        """
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        online = self._consumers.groups.get(group)
        for topic in topics:
            config = self._topics.get(topic)
            left = online is not None and online.subscriptions and topic not in online.subscriptions
            if config is None or left:
                yield
                continue
            queues = config.write_queue_nums if write_queues else config.read_queue_nums
            for queue_id in range(queues):
                queue = MessageQueue(
                    topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
                )
                table[queue] = self._progress(group, topic, queue_id)
                yield
            tps += self._stats.group_get_tps(group, topic)
        return ConsumeStats(consume_tps=tps, offset_table=table)

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = max(self._offsets.query(group, topic, queue_id), 0)
        consumed_time = self._store.store_time(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=max(self._store.max_offset(topic, queue_id), 0),
            consumer_offset=consumed,
            last_timestamp=max(consumed_time, 0),
        )


class _Encoded(NamedTuple):
    """A group's part of the answer."""

    topics: dict[str, tuple[bytes, int]]
    """The encoded ConsumeStats of each topic, and its lag."""
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
        consumers: ConsumerManager,
        store: MessageStore,
        stats: BrokerStats,
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
        self._known: dict[str, _Encoded] = {}
        self._known_of: object = None  # the state of the store that all of them depend on
        self._ends: dict[str, bytes] = {}  # of the queues of each topic
        # What has changed since the last answer.
        self._changed_keys: set[str] = set()  # topic@group
        self._changed_topics: set[str] = set()
        self._changed_groups: set[str] = set()
        self._offsets.listen(self._changed_keys.add)
        stats.listen(self._changed_keys.add)
        metadata.topics.listen(lambda topic, _: self._changed_topics.add(topic))
        consumers.listen(self._changed_groups.add)

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
                name: _encoded(name, {t: known for t, known in of.topics.items() if is_ordered(t)})
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
        store = self._store
        state = store.log.min_offset, store.repair.rewritten, self._config.broker_name
        if state != self._known_of:
            known, self._known_of = {}, state
        changed = yield from self._changed()
        fresh: dict[str, _Encoded] = {}
        for group in list(self._groups.table):
            stale = changed.get(group)
            if group not in known or stale is not None:
                kept = known[group].topics if group in known else {}
                fresh[group] = yield from self._encode(group, kept, stale or set())
            else:
                fresh[group] = known[group]
                yield
        self._known = fresh

    def _changed(self) -> Generator[None, None, dict[str, set[str]]]:
        """The changed topics of each group."""
        wanted = self._offsets.topics()  # with all commits so far, which mark their keys
        changed: dict[str, set[str]] = {}
        for key in _taken(self._changed_keys):
            topic, _, group = key.partition("@")
            changed.setdefault(group, set()).add(topic)
            yield
        for group in _taken(self._changed_groups):
            changed.setdefault(group, set()).update(self._offsets.topics_of(group))
            yield
        topics = _taken(self._changed_topics)
        if len(self._ends) > len(wanted):
            self._ends = {topic: self._ends.get(topic, b"") for topic in wanted}
        topics.update((yield from self._store.queues.moved_steps(wanted, self._ends)))
        for topic in topics:
            for group in self._offsets.groups_of(topic):
                changed.setdefault(group, set()).add(topic)
            yield
        return changed

    def _encode(
        self, group: str, kept: dict[str, tuple[bytes, int]], stale: set[str]
    ) -> Generator[None, None, _Encoded]:
        topics: dict[str, tuple[bytes, int]] = {}
        for topic in self._offsets.topics_of(group):
            known = None if topic in stale else kept.get(topic)
            if known is None:
                stats = yield from self._of_group.steps(group, [topic], write_queues=True)
                known = (yield from stats.encode_steps()), _lag(stats)
            topics[topic] = known
            yield
        return _encoded(group, topics)


def _encoded(group: str, topics: dict[str, tuple[bytes, int]]) -> _Encoded:
    before = fastjson.dumps({group: []}).encode().removesuffix(b"]}")
    texts = chain.from_iterable((b",", text) for text, _ in topics.values())
    return _Encoded(
        topics, [before, *list(texts)[1:], b"]}"], sum(lag for _, lag in topics.values())
    )


def _taken(names: set[str]) -> set[str]:
    taken = set(names)
    names.clear()
    return taken


def _lag(stats: ConsumeStats) -> int:
    return sum(o.broker_offset - o.consumer_offset for o in stats.offset_table.values())
