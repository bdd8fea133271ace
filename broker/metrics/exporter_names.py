"""The metrics of rocketmq-exporter, under its names and labels (RocketMQ: RMQMetricsCollector).

The names follow no rule, so each is written out. Dashboards made for the exporter read them.
"""

from collections.abc import Iterator, Mapping, Sequence, Sized
from operator import attrgetter
from typing import NamedTuple

from congreve.base.steps import portions
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.stats import AVERAGES_S
from congreve.broker.group.consumers import ConsumerGroup
from congreve.broker.metrics.clients import ClientFigures
from congreve.broker.metrics.exposition import (
    Families,
    Family,
    Kind,
    escaped,
    label_text,
    labels_of,
)
from congreve.broker.metrics.figures import CLUSTERING, Figures, GroupFigures, TopicFigures
from congreve.engine.results import StoreStats
from congreve.records.message.topics import DLQ_PREFIX, RETRY_PREFIX

Runtime = Mapping[str, object]

RUNTIME = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
}
"""Names of the exporter and of the runtime info that are one number."""

RATES = {
    "getfound_tps": "getFoundTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps",
    "getmiss_tps": "getMissTps",
    "put_tps": "putTps",
}
"""The same with three numbers, over AVERAGES_S."""

PUT_TIME_NAMES = (
    "0ms",
    "0to10ms",
    "10to50ms",
    "50to100ms",
    "100to200ms",
    "200to500ms",
    "500to1s",
    "1to2s",
    "2to3s",
    "3to4s",
    "4to5s",
    "5to10s",
    "10stomore",
)
"""The buckets of PutLatency.distribution()."""


class Column(NamedTuple):
    """A metric of a topic, a group or a client."""

    name: str
    help: str
    field: str  # of its figures


TOPIC_RATES = (
    Column("rocketmq_producer_tps", "Messages a second to a topic", "put_tps"),
    Column("rocketmq_producer_message_size", "Bytes a second to a topic", "put_size_tps"),
)
GROUP_COLUMNS = (
    Column("rocketmq_consumer_tps", "Messages a second to a group", "get_tps"),
    Column("rocketmq_group_consume_tps", "Messages a second to a group", "get_tps"),
    Column("rocketmq_consumer_offset", "Sum of a group's offsets", "consumed"),
    Column("rocketmq_group_consume_total_offset", "Sum of a group's offsets", "consumed"),
    Column("rocketmq_consumer_message_size", "Bytes a second to a group", "get_size_tps"),
    Column("rocketmq_send_back_nums", "Sent back messages a second", "send_back_tps"),
    Column(
        "rocketmq_group_get_latency_by_storetime",
        "Milliseconds since the oldest message that a group waits for was stored",
        "lag_ms",
    ),
)
CLIENT_COLUMNS = (
    Column(
        "rocketmq_client_consume_fail_msg_count",
        "Messages that a member failed to consume in the last hour",
        "status.consume_failed_msgs",
    ),
    Column(
        "rocketmq_client_consume_fail_msg_tps",
        "Messages a second that a member fails to consume",
        "status.consume_failed_tps",
    ),
    Column(
        "rocketmq_client_consume_ok_msg_tps",
        "Messages a second that a member consumes",
        "status.consume_ok_tps",
    ),
    Column(
        "rocketmq_client_consume_rt",
        "Milliseconds in which a member consumes a message",
        "status.consume_rt",
    ),
    Column(
        "rocketmq_client_consumer_pull_rt",
        "Milliseconds that a member's pull takes",
        "status.pull_rt",
    ),
    Column(
        "rocketmq_client_consumer_pull_tps",
        "Messages a second that a member pulls",
        "status.pull_tps",
    ),
)


class ExporterNames:
    """The families of rocketmq-exporter for one broker (RocketMQ: RMQMetricsCollector)."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        cluster, broker = escaped(config.broker_cluster_name), escaped(config.broker_name)
        self._broker = f'cluster="{cluster}",broker="{broker}"'

    def of_broker(
        self,
        runtime: Runtime,
        put_times: list[int],
        disk: tuple[int, int],
        seen: StoreStats,
        behind: int,
    ) -> Iterator[Family]:
        """Figures of the whole broker; `disk` has the bytes in all and free.

        `behind` is the number of bytes that the last slave lacks.

        `put_times` is PutLatency.distribution().
        """
        config = self._config
        labels = label_text(
            cluster=config.broker_cluster_name, brokerIP=config.address, broker=config.broker_name
        )
        put, got = str(runtime["putTps"]).split(), str(runtime["getTransferedTps"]).split()
        yield _gauge("rocketmq_broker_tps", "Messages a second to the broker", labels, put[1])
        yield _gauge("rocketmq_broker_qps", "Messages a second to consumers", labels, got[1])
        yield _gauge("rocketmq_broker_commitlog_diff", "Bytes that slaves lack", labels, behind)
        labels = label_text(
            cluster=config.broker_cluster_name,
            brokerIP=config.address,
            brokerHost=config.broker_name,
            des=str(runtime["brokerVersionDesc"]),
            boottime=str(runtime["bootTimestamp"]),
            broker_version=str(runtime["brokerVersion"]),
        )
        for name, value in (
            *_of_runtime(runtime),
            *((f"pmdt_{name}", n) for name, n in zip(PUT_TIME_NAMES, put_times, strict=True)),
            ("commitlogdir_capacity_total", disk[0]),
            ("commitlogdir_capacity_free", disk[1]),
            ("remain_howmanydata_toflush", seen.unflushed),
        ):
            yield _gauge(f"rocketmq_brokeruntime_{name}", "As in brokerStatus", labels, value)

    def of_topics(self, figures: Figures) -> Families:
        """Rates and ends of topics; retry and dead-letter topics have no rates, as there."""
        usual: list[TopicFigures] = []
        ends: list[tuple[str, float]] = []
        retries: list[tuple[str, float]] = []
        dead: list[tuple[str, float]] = []
        for part in portions(figures.topics):
            for row in part:
                if row.topic.startswith(DLQ_PREFIX):
                    group = escaped(row.topic.removeprefix(DLQ_PREFIX))
                    dead.append((f'{{{self._broker},group="{group}"}}', row.end))
                    continue
                labels = f'{{{self._broker},topic="{escaped(row.topic)}"}}'
                if row.topic.startswith(RETRY_PREFIX):
                    retries.append((labels, row.end))
                else:
                    usual.append(row)
                    ends.append((labels, row.end))
            yield None
        labels_of_usual = [labels for labels, _ in ends]
        yield from _columns(TOPIC_RATES, labels_of_usual, usual)
        yield Family("rocketmq_producer_offset", Kind.GAUGE, "Sum of a topic's ends", ends)
        yield Family("rocketmq_topic_retry_offset", Kind.GAUGE, "Sum of its ends", retries)
        yield Family("rocketmq_topic_dlq_offset", Kind.GAUGE, "End of dead letters", dead)

    def of_groups(self, figures: Figures) -> Families:
        """Rates, offsets and lag of groups."""
        labels = yield from labels_of(figures.groups, self._group_labels)
        yield from _columns(GROUP_COLUMNS, labels, figures.groups)
        diffs: dict[str, list[tuple[str, float]]] = {"diff": [], "retrydiff": [], "dlqdiff": []}
        for part in portions(figures.groups):
            for row in part:
                if row.model == CLUSTERING:
                    diffs[_kind_of(row.topic)].append((_diff_labels(row), row.end - row.consumed))
            yield None
        for kind, samples in diffs.items():
            yield Family(f"rocketmq_group_{kind}", Kind.GAUGE, "Messages of lag", samples)

    def _group_labels(self, row: GroupFigures) -> str:
        return f'{{{self._broker},topic="{escaped(row.topic)}",group="{escaped(row.group)}"}}'

    def of_members(
        self,
        consumers: Mapping[str, ConsumerGroup],
        producers: Mapping[str, Sized],
        clients: list[ClientFigures],
    ) -> Families:
        """Members of groups: addresses of consumers, counts of producers, rates that clients
        report."""
        counts: list[tuple[str, float]] = []
        for name, group in list(consumers.items()):
            found = [client.address for client in group.channels.values()]
            counts.append((label_text(caddr=" ".join(found), localaddr="", group=name), len(found)))
            yield None
        yield Family("rocketmq_group_count", Kind.GAUGE, "Members of a group", counts)
        sizes: list[tuple[str, float]] = []
        for name, members in list(producers.items()):
            sizes.append((label_text(self._broker, group=name), len(members)))
            yield None
        yield Family("rocketmq_producer_count", Kind.GAUGE, "Producers of a group", sizes)
        labels = yield from labels_of(clients, _client_labels)
        yield from _columns(CLIENT_COLUMNS, labels, clients)


def _columns(
    columns: Sequence[Column], labels: Sequence[str], rows: Sequence[object]
) -> Iterator[Family]:
    for name, help_text, field in columns:
        samples = list(zip(labels, map(attrgetter(field), rows), strict=True))
        yield Family(name, Kind.GAUGE, help_text, samples)


def _client_labels(client: ClientFigures) -> str:
    return label_text(
        clientAddr=client.address,
        clientId=client.client_id,
        group=client.group,
        topic=client.topic,
    )


def _of_runtime(runtime: Runtime) -> Iterator[tuple[str, object]]:
    for name, key in RUNTIME.items():
        yield name, runtime[key]
    for name, key in RATES.items():
        for seconds, value in zip(AVERAGES_S, str(runtime[key]).split(), strict=True):
            yield f"{name}{seconds}", value


def _gauge(name: str, help_text: str, labels: str, value: object) -> Family:
    return Family(name, Kind.GAUGE, help_text, [(labels, float(str(value)))])


def _kind_of(topic: str) -> str:
    if topic.startswith(RETRY_PREFIX):
        return "retrydiff"
    return "dlqdiff" if topic.startswith(DLQ_PREFIX) else "diff"


def _diff_labels(row: GroupFigures) -> str:
    return (
        f'{{group="{escaped(row.group)}",topic="{escaped(row.topic)}"'
        f',countOfOnlineConsumers="{row.members}",msgModel="{int(row.model == CLUSTERING)}"}}'
    )
