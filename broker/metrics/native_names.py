"""The metrics of RocketMQ 5, under its names and labels (RocketMQ: BrokerMetricsConstant).

Metrics of what this broker does not have (pop, tiered storage, RocksDB) are left out. A counter of
messages counts since its topic was created, all others since the broker started.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import product
from operator import attrgetter

from congreve.base.steps import portions
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.message_counts import (
    COMMIT_BOUNDS_S,
    DELAY_BOUNDS_S,
    SIZE_BOUNDS,
    TYPES,
    TopicCounts,
)
from congreve.broker.figures.put_times import COMPILED, RPC_BOUNDS_MS, PutTimes
from congreve.broker.figures.rpc_times import RpcKind, RpcTime
from congreve.broker.group.clients import Channel, ClientChannel
from congreve.broker.group.consumers import ConsumerGroup
from congreve.broker.metrics.exposition import (
    Families,
    Family,
    Kind,
    escaped,
    histogram,
    histogram_block,
    histogram_template,
    label_text,
    labels_of,
)
from congreve.broker.metrics.figures import OTHER, Figures, GroupFigures, TopicFigures
from congreve.engine.results import StoreStats
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.codes import RequestCode, ResponseCode

GAUGE, COUNTER, HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM
REMOTING, GRPC = "remoting", "grpc"
MESSAGE_HISTOGRAMS = (
    ("message_size", "Bytes of stored records"),
    ("finish_message_latency", "Seconds from half messages to commits"),
    ("delay_message_latency", "Seconds of delay of timed messages"),
)
SIZES = histogram_template("rocketmq_message_size", SIZE_BOUNDS)
COMMITS = histogram_template("rocketmq_finish_message_latency", COMMIT_BOUNDS_S)
DELAYS = histogram_template("rocketmq_delay_message_latency", DELAY_BOUNDS_S)

Sample = tuple[str, float]
Counted = tuple[list[int], int]


class NativeNames:
    """The families of RocketMQ 5 for one broker (RocketMQ: BrokerMetricsManager)."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        cluster, broker = escaped(config.broker_cluster_name), escaped(config.broker_name)
        self._node = f'cluster="{cluster}",node_type="broker",node_id="{broker}"'

    def of_topics(self, figures: Figures) -> Families:
        """Messages and bytes that topics got."""
        labels = yield from labels_of(figures.topics, self._topic_labels)
        yield self._one("topic_number", "Topics", figures.topic_count)
        for name, text, field in (
            ("messages", "Messages stored in a topic", "end"),
            ("throughput", "Bytes of records stored in a topic since the start", "put_size"),
        ):
            samples = _column(labels, figures.topics, field)
            yield Family(f"rocketmq_{name}_in_total", COUNTER, text, samples)

    def _topic_labels(self, row: TopicFigures) -> str:
        return f'{{{self._node},topic="{escaped(row.topic)}",is_system="{_bool(row.is_system)}"}}'

    def of_groups(self, figures: Figures, group_count: int) -> Families:
        """Messages and bytes that groups got, and their lag."""
        labels = yield from labels_of(figures.groups, self._group_labels)
        yield self._one("consumer_group_number", "Consumer groups", group_count)
        for name, kind, text, field in (
            ("messages_out_total", COUNTER, "Messages in answers to pulls", "messages"),
            ("throughput_out_total", COUNTER, "Bytes of records in answers to pulls", "size"),
            ("consumer_lag_messages", GAUGE, "Messages that a group may still get", "lag"),
            ("consumer_ready_messages", GAUGE, "The same: all of them can be pulled", "lag"),
            (
                "consumer_lag_latency",
                GAUGE,
                "Milliseconds since the oldest of them was stored",
                "lag_ms",
            ),
            ("consumer_queueing_latency", GAUGE, "The same", "lag_ms"),
        ):
            samples = _column(labels, figures.groups, field)
            yield Family(f"rocketmq_{name}", kind, text, samples)

    def _group_labels(self, row: GroupFigures) -> str:
        return (
            f'{{{self._node},consumer_group="{escaped(row.group)}",topic="{escaped(row.topic)}"'
            f',is_retry="{_bool(row.topic.startswith(RETRY_PREFIX))}"'
            f',is_system="{_bool(row.is_system)}"}}'
        )

    def of_dead_letters(self, counts: Mapping[tuple[str, str], int]) -> Families:
        """Messages that went to dead-letter topics; `counts` are by topic and group."""
        samples = [
            (label_text(self._node, consumer_group=group, topic=topic), float(count))
            for (topic, group), count in list(counts.items())
        ]
        yield Family(
            "rocketmq_send_to_dlq_messages_total", COUNTER, "Messages given up by a group", samples
        )

    def of_messages(self, figures: Figures, counts: Mapping[str, TopicCounts]) -> Families:
        """What topics got by type, and ends of transactions; the rest of `counts` is `other`."""
        blocks: dict[str, list[str]] = {name: [] for name, _ in MESSAGE_HISTOGRAMS}
        ended: dict[str, list[Sample]] = {"commit": [], "rollback": []}
        kept = {row.topic for row in figures.topics} if figures.folded else set()
        for part in portions(figures.topics):
            for row in part:
                found = [counts[row.topic]] if row.topic in counts else []
                if row.topic == OTHER and figures.folded:
                    found += [each for topic, each in counts.items() if topic not in kept]
                if not found:
                    continue
                topic = f'{self._node},topic="{escaped(row.topic)}"'
                sizes, commits, delays, rollbacks = _together(found)
                for kind, size in sizes.items():
                    block = histogram_block(SIZES, f'{topic},message_type="{kind}"', *size)
                    blocks["message_size"].append(block)
                if commits:
                    block = histogram_block(COMMITS, topic, *commits)
                    blocks["finish_message_latency"].append(block)
                    ended["commit"].append((f"{{{topic}}}", sum(commits[0])))
                if delays:
                    blocks["delay_message_latency"].append(histogram_block(DELAYS, topic, *delays))
                if rollbacks:
                    ended["rollback"].append((f"{{{topic}}}", rollbacks))
            yield None
        for name, text in MESSAGE_HISTOGRAMS:
            yield Family(f"rocketmq_{name}", HISTOGRAM, text, [], blocks[name])
        for name, text in (("commit", "Committed"), ("rollback", "Rolled back")):
            yield Family(
                f"rocketmq_{name}_messages_total", COUNTER, f"{text} transactions", ended[name]
            )

    def of_requests(
        self, times: Sequence[PutTimes], handled: Mapping[RpcKind, RpcTime]
    ) -> Families:
        """Milliseconds from requests to answers: of the compiled paths by thread, and of handlers
        by request and response code."""
        found = {kind: [time] for kind, time in handled.items()}
        kinds = product((False, True), COMPILED)
        for kind, (by_grpc, (compiled, waited)) in enumerate(kinds):
            found.setdefault(RpcKind(compiled, ResponseCode.SUCCESS, waited, by_grpc), []).extend(
                RpcTime(each.rpc_counts[kind], each.rpc_sums_ns[kind] / 1e6) for each in times
            )
        samples: list[Sample] = []
        for kind_of, parts in found.items():
            counts = [sum(bucket) for bucket in zip(*(part.counts for part in parts), strict=True)]
            if any(counts):
                labels = self._of_request(kind_of)
                total = sum(part.sum_ms for part in parts)
                samples += histogram(labels, RPC_BOUNDS_MS, counts, total)
            yield None
        yield Family(
            "rocketmq_rpc_latency", HISTOGRAM, "Milliseconds from requests to answers", samples
        )

    def _of_request(self, kind: RpcKind) -> str:
        return self._text(
            protocol_type=GRPC if kind.by_grpc else REMOTING,
            request_code=_name(RequestCode, kind.code),
            response_code=_name(ResponseCode, kind.answered),
            is_long_polling=_bool(kind.waited),
            result="success",
        )

    def _text(self, **labels: str) -> str:
        """Labels as a text without braces."""
        return label_text(self._node, **labels)[1:-1]

    def of_clients(
        self,
        consumers: Mapping[str, ConsumerGroup],
        producers: Mapping[str, Mapping[Channel, ClientChannel]],
    ) -> Families:
        """Connections by language and version; a consumer's also by group."""
        found: Counter[str] = Counter()
        for group, online in list(consumers.items()):
            for member in list(online.channels.values()):
                found[self._client_labels(member, f'consumer_group="{escaped(group)}"')] += 1
                yield None
        yield _counted("rocketmq_consumer_connections", "Connections of consumers", found)
        sending: Counter[str] = Counter()
        for members in list(producers.values()):
            for member in list(members.values()):
                sending[self._client_labels(member)] += 1
                yield None
        yield _counted("rocketmq_producer_connections", "Connections of producers", sending)

    def _client_labels(self, client: ClientChannel, more: str = "") -> str:
        return label_text(
            f"{self._node},{more}" if more else self._node,
            language=client.language.lower(),
            version=str(client.version),
            protocol_type=GRPC if client.is_grpc else REMOTING,
        )

    def of_store(self, seen: StoreStats, reserve_ms: int) -> Iterator[Family]:
        """The log: size, what is not flushed, and the age of its first message."""
        labels = label_text(self._node, storage_type="local", storage_medium="disk")
        for name, text, value in (
            ("size", "Bytes of the commit log", seen.log_end - seen.log_begin),
            ("flush_behind_bytes", "Bytes not on disk", seen.unflushed),
            ("dispatch_behind_bytes", "Bytes without queue entries", 0),
            ("message_reserve_time", "Milliseconds since the first message", reserve_ms),
        ):
            yield Family(f"rocketmq_storage_{name}", GAUGE, text, [(labels, value)])

    def of_broker(
        self, waiting: tuple[int, int], half_messages: int, timed: int
    ) -> Iterator[Family]:
        """Numbers of waiting answers, pulls, half messages and timed messages."""
        yield self._one("broker_permission", "4 read, 2 write", self._config.broker_permission)
        yield Family(
            "rocketmq_processor_watermark",
            GAUGE,
            "Requests that wait: sends for the disk, pulls for messages",
            [
                (label_text(self._node, processor=name), float(count))
                for name, count in zip(("send", "pull"), waiting, strict=True)
            ],
        )
        yield self._one("half_messages", "Open transactions", half_messages)
        yield self._one("timing_messages", "Messages with a delivery time", timed)

    def _one(self, name: str, text: str, value: float) -> Family:
        return Family(f"rocketmq_{name}", GAUGE, text, [(label_text(self._node), value)])


def _column(labels: Iterable[str], rows: Iterable[object], field: str) -> list[Sample]:
    return list(zip(labels, map(attrgetter(field), rows), strict=True))


def _counted(name: str, text: str, counts: Mapping[str, int]) -> Family:
    return Family(name, GAUGE, text, [(labels, float(count)) for labels, count in counts.items()])


def _together(
    found: Sequence[TopicCounts],
) -> tuple[dict[str, Counted], Counted | None, Counted | None, int]:
    """The sums over all topics: sizes by type, commits, delays, rollbacks."""
    if len(found) == 1:
        (one,) = found
        return one.sizes, one.commits, one.delays, one.rollbacks
    sizes = [each.sizes for each in found]
    merged = {kind: _merged([each.get(kind) for each in sizes]) for kind in TYPES}
    return (
        {kind: size for kind, size in merged.items() if size is not None},
        _merged([each.commits for each in found]),
        _merged([each.delays for each in found]),
        sum(each.rollbacks for each in found),
    )


def _merged(found: Sequence[Counted | None]) -> Counted | None:
    """The sum of these histograms: counts by bucket, and the sum of all values."""
    present = [each for each in found if each is not None]
    if len(present) <= 1:
        return present[0] if present else None
    counts, sums = zip(*present, strict=True)
    return [sum(bucket) for bucket in zip(*counts, strict=True)], sum(sums)


def _name(codes: type[IntEnum], code: int) -> str:
    """RocketMQ's name of a code in lower case; the number of a code that it does not have."""
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)


def _bool(value: bool) -> str:
    return "true" if value else "false"
