"""Typed headers that administrators' tools, name servers and brokers among themselves use.

Each follows the RocketMQ class of its name; the codes that use it are in its docstring.
"""

import msgspec

from congreve.remoting.messages.header import Header, Int32, Int64


class CreateTopicRequestHeader(Header):
    """UPDATE_AND_CREATE_TOPIC; `order` is sent by every client, and ignored by brokers.

    `attributes` is of RocketMQ 5: changes as ``+key=value,-key``.
    """

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None


class GetTopicConfigRequestHeader(Header):
    """GET_TOPIC_CONFIG."""

    topic: str


class GetSubscriptionGroupConfigRequestHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class DeleteTopicRequestHeader(Header):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(Header):
    """DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class DeleteSubscriptionGroupRequestHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP; RocketMQ 5 names `remove_offset` `clean_offset`."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False


class GetTopicStatsInfoRequestHeader(Header):
    """GET_TOPIC_STATS_INFO."""

    topic: str


class GetConsumerConnectionListRequestHeader(Header):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class GetConsumeStatsRequestHeader(Header):
    """GET_CONSUME_STATS; without topic: all topics with a committed offset."""

    consumer_group: str
    topic: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool


class QueryTopicConsumeByWhoRequestHeader(Header):
    """QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class QueryConsumeTimeSpanRequestHeader(Header):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET, RESET_CONSUMER_CLIENT_OFFSET; timestamp -1: to the end.

    RocketMQ 5 may name one queue, and an offset of it.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


class GetConsumerStatusRequestHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GET_CONSUMER_STATUS_FROM_CLIENT."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(Header):
    """GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY; `msg_id` is the offset id."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


class CloneGroupOffsetRequestHeader(Header):
    """CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class RecallMessageRequestHeader(Header):
    """RECALL_MESSAGE; the handle is base64 of ``v1 topic broker-name due-ms message-id``."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(Header):
    """Answer to RECALL_MESSAGE."""

    msg_id: str


class DelayedMessagesRequestHeader(Header):
    """COUNT_DELAYED_MESSAGES, LIST_DELAYED_MESSAGES: those due in [begin_ms, end_ms).

    Without a topic those of all topics; `topic` and `count` are for LIST_DELAYED_MESSAGES.
    """

    begin_ms: Int64 = 0
    end_ms: Int64 = (1 << 63) - 1
    count: Int32 = 100
    topic: str | None = None


class QueryCorrectionOffsetHeader(Header):
    """QUERY_CORRECTION_OFFSET; `filter_groups` with commas between."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class QueryConsumeQueueRequestHeader(Header):
    """QUERY_CONSUME_QUEUE."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE; `msg_id` is the offset id of the half message."""

    msg_id: str | None = None


class GetRouteInfoRequestHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool = False


class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER; `body_crc32` is of the body as sent, 0 if it is not to be checked.

    `advertised_listeners` has the broker's further addresses (listeners.py). `unchanged`: the body
    has the data version alone, and the topics are those that came with it before; False from a
    broker that can say so. RocketMQ knows neither field.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = msgspec.field(default=0, name="bodyCrc32")
    advertised_listeners: str | None = None
    unchanged: bool | None = None


class RegisterBrokerResponseHeader(Header):
    """Answer to REGISTER_BROKER; a slave learns its master's addresses.

    `topics_wanted`, for a broker that sends `unchanged`: the name server lacks topics, and has
    taken nothing of this registration.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    topics_wanted: bool | None = None


class UnregisterBrokerRequestHeader(Header):
    """UNREGISTER_BROKER (RocketMQ: UnRegisterBrokerRequestHeader)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(UnregisterBrokerRequestHeader):
    """QUERY_DATA_VERSION."""


class QueryDataVersionResponseHeader(Header):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool


class GetTopicsByClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class WipeWritePermOfBrokerRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    """Answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerResponseHeader(Header):
    """Answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    """GET_KV_CONFIG, DELETE_KV_CONFIG."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    """Answer to GET_KV_CONFIG."""

    value: str | None = None


class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class CreateAccessConfigRequestHeader(Header):
    """UPDATE_AND_CREATE_ACL_CONFIG; lists are written with commas between."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(Header):
    """DELETE_ACL_CONFIG."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG; the addresses with commas between."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(Header):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO; the versions are JSON."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None
