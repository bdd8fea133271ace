"""The topics and groups of a cluster with their lag, from three requests to each broker."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from congreve.client.admin.reports import BrokerReports
from congreve.console.topic_kinds import kind_of
from congreve.remoting.errors import BodyError
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import OffsetWrapper
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig


class Lag(msgspec.Struct, gc=False):
    """How far a group is behind on a topic.

    `lag` is in messages; `since_ms` is the store time of the message that the slowest queue
    consumed last, 0 if it is unknown or nothing is behind.
    """

    group: str
    topic: str
    lag: int = 0
    since_ms: int = 0
    end: int = 0
    tps: float = 0.0

    def plus(self, other: "Lag") -> "Lag":
        """The progress on this broker and on another one together."""
        since_ms = earliest(self.since_ms, other.since_ms)
        lag, end, tps = self.lag + other.lag, self.end + other.end, self.tps + other.tps
        return Lag(self.group, self.topic, lag, since_ms, end, tps)


class TopicRow(msgspec.Struct):
    """A topic on all brokers; `perm` is 4 for reading plus 2 for writing.

    `lag` are the messages that groups have not consumed, of all groups together.
    """

    name: str
    kind: str
    brokers: list[str]
    read_queues: int
    write_queues: int
    perm: int
    ordered: bool
    groups: list[Lag]
    lag: int = 0


class GroupRow(msgspec.Struct, gc=False):
    """A group on all brokers; `is_enabled` and `retries_max` are settings on the first broker, None
    of a group that has offsets alone.

    `lag` counts the messages of all topics that it has not consumed. `since_ms` is the oldest
    time of the topics that are behind, 0 if none is. `slowest` is the topic with the most
    messages that are not consumed.
    """

    name: str
    is_enabled: bool
    retries_max: int | None
    topics: list[Lag]
    lag: int = 0
    since_ms: int = 0
    slowest: Lag | None = None

    def add(self, row: Lag) -> None:
        """Add the progress on one topic."""
        self.topics.append(row)
        self.lag += row.lag
        self.since_ms = earliest(self.since_ms, row.since_ms)
        if self.slowest is None or row.lag > self.slowest.lag:
            self.slowest = row


class Snapshot(msgspec.Struct):
    """What the lists show; `at_ms` is when it was taken. `failures` has brokers' errors.

    `lag` are the messages that groups have not consumed. The first one after a start has no lag:
    `has_lag` says so.
    """

    has_lag: bool
    at_ms: int
    topics: dict[str, TopicRow]
    groups: dict[str, GroupRow]
    failures: dict[str, str]
    lag: int


class BrokerTables(msgspec.Struct):
    """The answers of one broker."""

    broker_name: str
    topics: dict[str, TopicConfig]
    groups: dict[str, SubscriptionGroupConfig]


async def read_tables(broker_name: str, reports: BrokerReports) -> BrokerTables:
    """Read a broker's topics and groups, without their progress. Raises CongreveError."""
    topics, groups = await asyncio.gather(reports.topics(), reports.groups())
    return BrokerTables(broker_name, topics, groups)


async def read_lags(broker_name: str, reports: BrokerReports) -> list[Lag]:
    """The progress of all groups on a broker. Raises CongreveError."""
    text = await reports.consume_stats_text()
    # In a thread, because it takes long for thousands of groups.
    return await asyncio.to_thread(parse_lags, text)


class _Stats(msgspec.Struct, rename="camel", gc=False):
    """ConsumeStats. Its keys, which are queues, stay text: many groups have the same ones, so that
    each is parsed only once."""

    offset_table: dict[str, OffsetWrapper] = {}
    consume_tps: float = 0.0


class _StatsList(msgspec.Struct, rename="camel"):
    """ConsumeStatsList."""

    consume_stats_list: list[msgspec.Raw] = []


class _Queue(msgspec.Struct):
    """The part of a MessageQueue that counts here."""

    topic: str


def parse_lags(text: bytes) -> list[Lag]:
    """A row for each group and topic of the answer to GET_BROKER_CONSUME_STATS.

    Raises BodyError if it cannot be read.
    """
    topics: dict[str, str] = {}
    rows: list[Lag] = []
    try:
        standard = fastjson.standard(text.decode("utf-8", "replace"))
        decoded = msgspec.json.decode(standard, type=_StatsList)
        # One by one: a call for all would hold the interpreter's lock for too long.
        read = msgspec.json.Decoder(dict[str, list[_Stats]]).decode
        for entry in decoded.consume_stats_list:
            for group, tables in read(entry).items():
                for stats in tables:
                    rows += _lags_of(group, stats, topics)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BodyError(f"ConsumeStatsList: {error}") from error
    return rows


def _lags_of(group: str, stats: _Stats, topics: dict[str, str]) -> list[Lag]:
    by_topic: dict[str, Lag] = {}
    for queue, offsets in stats.offset_table.items():
        topic = topics.get(queue)
        if topic is None:
            topic = topics[queue] = msgspec.json.decode(queue, type=_Queue).topic
        row = by_topic.get(topic)
        if row is None:
            row = by_topic[topic] = Lag(group, topic, tps=stats.consume_tps)
        row.end += offsets.broker_offset
        behind = offsets.broker_offset - offsets.consumer_offset
        if behind > 0:
            row.lag += behind
            row.since_ms = earliest(row.since_ms, offsets.last_timestamp)
    return list(by_topic.values())


def combine(
    tables: Iterable[BrokerTables],
    lags_by_broker: Mapping[str, list[Lag]],
    failures: Mapping[str, str],
) -> Snapshot:
    """One snapshot of all brokers' answers."""
    topics: dict[str, TopicRow] = {}
    groups: dict[str, GroupRow] = {}
    lags: dict[tuple[str, str], Lag] = {}
    for table in tables:
        for name, config in table.topics.items():
            _add_topic(topics, name, config, table.broker_name)
        for name, settings in table.groups.items():
            if name not in groups:
                is_enabled, retries_max = settings.consume_enable, settings.retry_max_times
                groups[name] = GroupRow(name, is_enabled, retries_max, [])
    for row in chain.from_iterable(lags_by_broker.values()):
        key = (row.group, row.topic)
        lags[key] = row.plus(lags[key]) if key in lags else row
    by_topic: dict[str, list[Lag]] = defaultdict(list)
    for (group, topic), row in lags.items():
        by_topic[topic].append(row)
        if group not in groups:
            groups[group] = GroupRow(group, True, None, [])
        groups[group].add(row)
    for topic, rows in by_topic.items():
        if topic in topics:
            topics[topic].groups = sorted(rows, key=lambda row: (-row.lag, row.group))
            topics[topic].lag = sum(row.lag for row in rows)
    has_lag = bool(lags_by_broker)
    lag = sum(group.lag for group in groups.values())
    return Snapshot(has_lag, int(time.time() * 1000), topics, groups, dict(failures), lag)


def _add_topic(
    topics: dict[str, TopicRow], name: str, config: TopicConfig, broker_name: str
) -> None:
    row = topics.get(name)
    if row is None:
        row = TopicRow(name, kind_of(name, config.perm), [], 0, 0, config.perm, config.order, [])
        topics[name] = row
    row.brokers.append(broker_name)
    row.read_queues += config.read_queue_nums
    row.write_queues += config.write_queue_nums


def earliest(first_ms: int, second_ms: int) -> int:
    """The earlier of two times, where 0 is unknown."""
    return min(first_ms or second_ms, second_ms or first_ms)
