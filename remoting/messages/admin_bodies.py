"""Typed bodies that administrators' tools read and write. Each follows the RocketMQ class of its
name. Times are milliseconds since 1970, offsets those of a queue, addresses ``ip:port``.
"""

from datetime import datetime

import msgspec

from congreve.base.fields import Fields
from congreve.remoting.messages.body import Body, MessageQueue
from congreve.remoting.messages.header import Int32, Int64


class TopicList(Body):
    """Names of topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupList(Body):
    """Names of consumer groups."""

    group_list: list[str] = []


class TopicOffset(Body):
    """The offsets of a queue and its last update."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body):
    """Answer to GET_TOPIC_STATS_INFO."""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class OffsetWrapper(Body):
    """The offsets of a group in a queue."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 | None = None
    """RocketMQ 5: the first message that the group has not got; here only of pops."""
    in_flight: Int64 | None = None
    """Congreve: how many of the messages before it are out."""
    in_flight_age: Int64 | None = None
    """Congreve: the age of the oldest of those in ms."""
    redelivered: Int64 | None = None
    """Congreve: messages of the queue that came again since the broker's start."""
    dead_letters: Int64 | None = None
    """Congreve: those that became dead letters."""
    without_order: bool | None = None
    """Congreve: they are popped without an order, which the topic's type says that they have."""


class ConsumeStats(Body):
    """Answer to GET_CONSUME_STATS; `consume_tps` in messages a second."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ConsumeStatsList(Body):
    """Answer to GET_BROKER_CONSUME_STATS; `total_diff` in messages."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: Int64 = 0


class ResetOffsetBody(Body):
    """The offsets to continue from, for all clients but those of C++."""

    offset_table: dict[MessageQueue, Int64] = {}


class ResetOffsetBodyForC(Body):
    """The same for C++ clients: brokerName, offset, queueId and topic of each queue."""

    offset_table: list[dict[str, str | Int64]] = []


class GetConsumerStatusBody(Body):
    """Offsets of clients: a client's own answer, and a broker's collection by client id."""

    message_queue_table: dict[MessageQueue, Int64] = {}
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class Connection(Body):
    """A client as GET_CONSUMER_CONNECTION_LIST and GET_PRODUCER_CONNECTION_LIST show it.

    Congreve: `protocol` is `grpc` for clients of RocketMQ 5.
    """

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: Int32 = 0
    protocol: str | None = None


class SubscriptionData(Body):
    """A group's subscription to a topic; `sub_version` in milliseconds, `code_set` the tags'
    hashes."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[Int32] = []
    sub_version: Int64 = 0
    class_filter_mode: bool = False
    expression_type: str = "TAG"


class ProducerConnection(Body):
    """Answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[Connection] = []


class ConsumerConnection(Body):
    """Answer to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class ProducerInfo(Body):
    """One client of a producer group."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str = "JAVA"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body):
    """Answer to GET_ALL_PRODUCER_INFO, by group."""

    data: dict[str, list[ProducerInfo]] = {}


class ProcessQueueInfo(Body):
    """What a consumer has cached of a queue."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int32 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PopProcessQueueInfo(Body):
    """A queue that a consumer pops; queue id -1 stands for all of a broker."""

    wait_ack_count: Int32 = 0
    droped: bool = False
    last_pop_timestamp: Int64 = 0


class ConsumeStatus(Body):
    """A consumer's rates for a topic: times in milliseconds, rates a second."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body):
    """Answer to GET_CONSUMER_RUNNING_INFO."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class ConsumeMessageDirectlyResult(Body):
    """Answer to CONSUME_MESSAGE_DIRECTLY; `spent_time_mills` in milliseconds."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    remark: str | None = None
    spent_time_mills: Int64 = 0


class QueueTimeSpan(Body):
    """Store times of a queue's first, last and consumed record; texts are made of the numbers."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str = ""
    max_time_stamp_str: str = ""
    consume_time_stamp_str: str = ""

    def __post_init__(self) -> None:
        self.min_time_stamp_str = _time_text(self.min_time_stamp)
        self.max_time_stamp_str = _time_text(self.max_time_stamp)
        self.consume_time_stamp_str = _time_text(self.consume_time_stamp)


def _time_text(milliseconds: int) -> str:
    time = datetime.fromtimestamp(milliseconds // 1000)
    return f"{time:%Y-%m-%d#%H:%M:%S}:{milliseconds % 1000:03}"


class QueryConsumeTimeSpanBody(Body):
    """Answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = []


class DelayedCount(Fields, Body):
    """The messages of a delay level (0: with a delivery time) that are due in the hour from
    `hour_ms` on."""

    hour_ms: Int64
    level: Int32
    count: Int64


class DelayedCounts(Fields, Body):
    """Answer to COUNT_DELAYED_MESSAGES; `is_complete` is false where there are too many."""

    counts: list[DelayedCount] = []
    is_complete: bool = True


class DelayedMessage(Fields, Body):
    """A delayed message: its topic, ids and due time, and its parked record."""

    topic: str
    msg_id: str
    keys: str
    due_ms: Int64
    level: Int32
    store_timestamp: Int64
    physic_offset: Int64
    body_size: Int32
    recall_handle: str


class DelayedMessages(Fields, Body):
    """Answer to LIST_DELAYED_MESSAGES, in the order of due times."""

    messages: list[DelayedMessage] = []
    is_complete: bool = True


class QueryCorrectionOffsetBody(Body):
    """Answer to QUERY_CORRECTION_OFFSET, by queue id."""

    correction_offsets: dict[Int32, Int64] = {}


class ConsumeQueueData(Body):
    """One entry of a consume queue."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Answer to QUERY_CONSUME_QUEUE."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = []
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


class BrokerStatsItem(Body):
    """Sum of a time span, its rate a second, and the average of each event."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body):
    """Answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


DISABLED = "disable"
"""The status of an account that may do nothing (RocketMQ 5: UserStatus)."""


class PlainAccessConfig(Body):
    """Rights of one access key; None is what is not set. Only files of Congreve have `status`."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None
    status: str | None = None


class AclConfig(Body):
    """Answer to GET_BROKER_CLUSTER_ACL_CONFIG."""

    global_white_addrs: list[str] = []
    plain_access_configs: list[PlainAccessConfig] = []


class HAConnectionRuntimeInfo(Body):
    """A slave at its master; offsets are physical. Congreve: `broker_id`, `lag_millis`."""

    addr: str = ""
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0
    broker_id: Int64 = -1
    lag_millis: Int64 = 0


class HAClientRuntimeInfo(Body):
    """The master of a slave; offsets are physical."""

    master_addr: str = ""
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0
    activated: bool = False


class HARuntimeInfo(Body):
    """Answer to GET_BROKER_HA_STATUS. Congreve: `lease_millis`, of an elected master."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)
    lease_millis: Int64 = 0


class EpochEntry(Body):
    """One master's part of the log, in physical offsets; the newest ends at Long.MAX_VALUE."""

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = (1 << 63) - 1


class EpochEntryCache(Body):
    """Answer to GET_BROKER_EPOCH_CACHE; `broker_id` is 0 for a master."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = 0
    epoch_list: list[EpochEntry] = []
    max_offset: Int64 = 0
