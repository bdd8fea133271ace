"""The answer to GET_BROKER_CONSUME_STATS: with kept texts as without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.base.steps import at_once
from congreve.broker.admin.consume_stats import BrokerConsumeStats, GroupConsumeStats
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import SAMPLE_INTERVAL_S, BrokerStats
from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_bodies import ConsumeStatsList, SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData, SubscriptionGroupConfig, TopicConfig

HOUR = 3_600_000
CONFIG = BrokerConfig(broker_name="b")
numbers = count()


class Progress(GroupConsumeStats):
    """Notes what is computed."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.computed: list[tuple[str, ...]] = []

    def steps(self, group: str, topics: Any, *, write_queues: bool) -> Any:
        self.computed.append((group, *topics))
        return super().steps(group, topics, write_queues=write_queues)


class Cluster:
    """The tables of a broker with topics of its own in a common store, and both answers."""

    def __init__(self, store: MessageStore) -> None:
        number = next(numbers)
        self.store = store
        self.clock = ManualClock(1_700_000_000_000)
        self.topics = [f"T{number}", f"U{number}"]
        self.client = ClientChannel(object(), "c", "JAVA", 401)  # type: ignore[arg-type]
        self.metadata = Metadata(CONFIG, self.clock, Pieces())
        self.consumers = ConsumerManager(CONFIG, lambda *_: None)
        self.stats = BrokerStats(self.clock, lambda: store.queues, lambda: self.clock.now() / 1000)
        self.stats.sample()
        parts: dict[str, Any] = {"config": CONFIG, "metadata": self.metadata, "store": store}
        self.progress = Progress(
            **parts, consumers=self.consumers, stats=self.stats, popped=lambda *_: None
        )
        self.kept = BrokerConsumeStats(self.progress, **parts, pieces=Pieces())

    async def ask(self, *, only_ordered: bool = False) -> list[tuple[str, ...]]:
        """Compare both answers; returns what was computed for the kept one."""
        self.progress.computed.clear()
        answer = await self.kept.get(only_ordered=only_ordered)
        computed = list(self.progress.computed)
        assert answer == self.from_scratch(only_ordered)
        return computed

    def from_scratch(self, only_ordered: bool) -> bytes:
        listed, lag = [], 0
        known = (*self.metadata.groups.table, *self.metadata.offsets.groups())
        for group in dict.fromkeys(known):
            stats = [
                at_once(self.progress.steps(group, [topic], write_queues=True))
                for topic in self.metadata.offsets.topics_of(group)
                if not only_ordered or self.metadata.topics.is_order_topic(topic)
            ]
            listed.append({group: stats})
            offsets = [each for of_topic in stats for each in of_topic.offset_table.values()]
            lag += sum(each.broker_offset - each.consumer_offset for each in offsets)
        address = f"{CONFIG.broker_ip1}:{CONFIG.listen_port}"
        return ConsumeStatsList(
            consume_stats_list=listed, broker_addr=address, total_diff=lag
        ).encode()

    # --- changes

    def send(self, topic: int, queue_id: int) -> None:
        self.store.put(Record(topic=self.topics[topic], queue_id=queue_id, body=bytes(500)))

    def commit(self, group: str, topic: int, queue_id: int, offset: int) -> None:
        self.metadata.offsets.commit(group, self.topics[topic], queue_id, offset)

    def clone(self, source: str, target: str, topic: int) -> None:
        self.metadata.offsets.clone(source, target, self.topics[topic])

    def forget_offsets(self, group: str) -> None:
        self.metadata.offsets.remove_group(group)

    def forget_topic_offsets(self, topic: int) -> None:
        at_once(self.metadata.offsets.remove_topic_steps(self.topics[topic]))

    def set_topic(self, topic: int, queues: int, order: bool) -> None:
        self.metadata.topics.update(
            TopicConfig(
                topic_name=self.topics[topic],
                read_queue_nums=queues,
                write_queue_nums=queues,
                order=order,
            )
        )

    def delete_topic(self, topic: int) -> None:
        self.metadata.topics.delete(self.topics[topic])

    def remove_queues(self, topic: int) -> None:
        self.store.remove_topic(self.topics[topic])

    def empty_queues(self, topic: int) -> None:
        self.store.drop_queues_before(self.topics[topic], self.store.log.max_offset)

    def remove_segments(self) -> None:
        self.store.clock.advance(100 * HOUR)  # type: ignore[attr-defined]
        self.store._housekeeping._retention.request_manually()
        self.store._housekeeping.clean()

    def set_group(self, group: str) -> None:
        self.metadata.groups.update(SubscriptionGroupConfig(group_name=group))

    def delete_group(self, group: str) -> None:
        self.metadata.groups.delete(group)

    def join(self, group: str, topics: list[int]) -> None:
        data = ConsumerData(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[SubscriptionData(topic=self.topics[i]) for i in topics],
        )
        self.consumers.register(data, self.client, notify=False)

    def leave(self, group: str) -> None:
        self.consumers.unregister(group, self.client.connection, notify=False)

    def pull(self, group: str, topic: int, messages: int) -> None:
        self.stats.pull_counter(group, self.topics[topic]).add(messages, 100 * messages)

    def forget_pulls(self, topic: int) -> None:
        at_once(self.stats.forget_topic_steps(self.topics[topic]))

    def sample(self) -> None:
        self.clock.advance(SAMPLE_INTERVAL_S * 1000)
        self.stats.sample()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    config = StoreConfig(
        root_dir=str(tmp_path_factory.mktemp("store")),
        flush_disk_type="ASYNC_FLUSH",
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=400,
        delete_commit_log_files_interval=0,
        message_index_enable=False,
    )
    with MessageStore(config, clock=ManualClock(1_700_000_000_000)) as opened:
        yield opened


groups = st.sampled_from(("G", "H"))
topics = st.sampled_from((0, 1))
queue_ids = st.sampled_from((0, 1))


def change(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


CHANGES = st.one_of(
    change("send", topics, queue_ids),
    change("commit", groups, topics, queue_ids, st.integers(0, 4)),
    change("clone", groups, groups, topics),
    change("forget_offsets", groups),
    change("forget_topic_offsets", topics),
    change("set_topic", topics, st.integers(0, 3), st.booleans()),
    change("delete_topic", topics),
    change("remove_queues", topics),
    change("empty_queues", topics),
    change("remove_segments"),
    change("set_group", groups),
    change("delete_group", groups),
    change("join", groups, st.lists(topics, max_size=2)),
    change("leave", groups),
    change("pull", groups, topics, st.integers(1, 9)),
    change("forget_pulls", topics),
    change("sample"),
)


@given(st.lists(CHANGES, max_size=12), st.booleans())
def test_the_kept_answer_equals_one_computed_from_scratch(
    store: MessageStore, changes: list[tuple[Any, ...]], only_ordered: bool
) -> None:
    cluster = Cluster(store)
    for group in ("G", "H"):
        cluster.set_group(group)
        for topic in (0, 1):
            cluster.set_topic(topic, 2, order=topic == 0)
            cluster.commit(group, topic, 0, 1)

    async def compare() -> None:
        await cluster.ask()
        for name, *arguments in changes:
            getattr(cluster, name)(*arguments)
            await cluster.ask(only_ordered=only_ordered)

    asyncio.run(compare())


async def test_only_what_has_changed_is_computed_again(store: MessageStore) -> None:
    cluster = Cluster(store)
    first, second = cluster.topics
    for group in ("G", "H"):
        cluster.set_group(group)
        for topic in (0, 1):
            cluster.set_topic(topic, 2, order=False)
            cluster.commit(group, topic, 0, 1)
    assert len(await cluster.ask()) == 4
    assert await cluster.ask() == []
    cluster.commit("G", 0, 1, 5)
    assert await cluster.ask() == [("G", first)]
    cluster.send(1, 0)
    assert await cluster.ask() == [("G", second), ("H", second)]
    cluster.pull("H", 1, 3)
    cluster.sample()
    assert await cluster.ask() == [("H", second)]
    cluster.delete_group("G")
    assert await cluster.ask() == []


async def test_an_answer_that_was_cancelled_loses_no_change(store: MessageStore) -> None:
    cluster = Cluster(store)
    cluster.set_group("G")
    cluster.set_topic(0, 2, order=False)
    cluster.commit("G", 0, 0, 1)
    await cluster.ask()
    cluster.commit("G", 0, 0, 2)
    cluster.progress.computed.clear()
    steps = cluster.kept._steps(False)
    while not cluster.progress.computed:
        next(steps)
    steps.close()
    assert await cluster.ask() == [("G", cluster.topics[0])]


async def test_names_that_came_and_went_take_no_memory(store: MessageStore) -> None:
    cluster = Cluster(store)
    await cluster.ask()
    for number in range(100):
        cluster.topics[0] = f"short-lived-{number}"
        group = f"G{number}"
        cluster.set_topic(0, 1, order=False)
        cluster.join(group, [0])
        cluster.commit(group, 0, 0, 1)
        cluster.pull(group, 0, 1)
        cluster.sample()
        cluster.leave(group)
        cluster.forget_offsets(group)
        cluster.forget_pulls(0)
        cluster.delete_topic(0)
    kept = [held for held in vars(cluster.kept).values() if isinstance(held, set | dict | list)]
    assert sum(map(len, kept)) < 10
