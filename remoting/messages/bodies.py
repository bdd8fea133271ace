"""Typed bodies that clients, brokers and name servers exchange to send and consume.

Each follows the RocketMQ class of its name. What administrators' tools read and write is in
`admin_bodies`.
"""

import json
from collections.abc import Iterable
from typing import Any, Self

import msgspec

from congreve.base.fields import Fields
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.body import Body, MessageQueue
from congreve.remoting.messages.header import Int32, Int64

_CONSUMER_NAMES = {
    "consumeType": {"0": "CONSUME_ACTIVELY", "1": "CONSUME_PASSIVELY"},
    "messageModel": {"0": "BROADCASTING", "1": "CLUSTERING"},
    "consumeFromWhere": {
        "0": "CONSUME_FROM_LAST_OFFSET",
        "1": "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "2": "CONSUME_FROM_MIN_OFFSET",
        "3": "CONSUME_FROM_MAX_OFFSET",
        "4": "CONSUME_FROM_FIRST_OFFSET",
        "5": "CONSUME_FROM_TIMESTAMP",
    },
}
"""What C++ clients send as numbers."""


# --- routes and registration


class DataVersion(Body):
    """How new a table is; `timestamp` in milliseconds. Two are equal when both fields are."""

    counter: Int64 = 0
    timestamp: Int64 = 0


class QueueData(Body, gc=False):
    """Queues of a topic on one broker name."""

    broker_name: str
    read_queue_nums: Int32 = 4
    write_queue_nums: Int32 = 4
    perm: Int32 = 6
    topic_sys_flag: Int32 = 0


class BrokerData(Fields, Body):
    """Addresses ``ip:port`` of one broker name by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}


FIRST_VERSION_OF_STANDARD_ROUTES = 401
"""MQVersion ordinal of V4_9_4: from it on, routes are standard JSON."""


def is_standard_route(version: int, *, standard_only: bool) -> bool:
    """Whether a client of this MQVersion gets a route as standard JSON."""
    return version >= FIRST_VERSION_OF_STANDARD_ROUTES or standard_only


class TopicRouteData(Body):
    """Answer to GET_ROUTEINFO_BY_TOPIC."""

    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        for queue in _dicts(tree, "queueDatas"):
            if "topicSynFlag" in queue:  # as brokers before 4.9 spell it
                queue.setdefault("topicSysFlag", queue["topicSynFlag"])
        return super().from_tree(tree)

    def encode_for(self, version: int, *, standard_only: bool) -> bytes:
        """encode() for a client of this MQVersion: newer ones get standard JSON."""
        return self.encode_as(standard=is_standard_route(version, standard_only=standard_only))

    def encode_as(self, *, standard: bool) -> bytes:
        """encode(), or standard JSON: it has all keys quoted and sorted, and all characters beyond
        ASCII escaped."""
        if not standard:
            return self.encode()
        tree = msgspec.to_builtins(self, str_keys=True)
        present = {key: value for key, value in tree.items() if value is not None}
        return json.dumps(present, separators=(",", ":"), sort_keys=True).encode()


class ClusterInfo(Fields, Body):
    """Answer to GET_BROKER_CLUSTER_INFO."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicConfig(Body, gc=False):
    """Settings of a topic; `perm` is 4 for reading plus 2 for writing.

    `attributes` are those of RocketMQ 5, None without any.
    """

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class CreateTopicListRequestBody(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST; keys of attributes have signs, as in code 17."""

    topic_config_list: list[TopicConfig] = []


class TopicConfigSerializeWrapper(Body):
    """Answer to GET_ALL_TOPIC_CONFIG, and topics.json."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class RegisterBrokerBody(Body):
    """Body of REGISTER_BROKER."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []


def _dicts(tree: Any, key: str) -> list[dict[str, Any]]:
    items = tree.get(key) if isinstance(tree, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


class SubscriptionGroupConfig(Body):
    """Settings of a consumer group; `further` are the members that RocketMQ 4.9.4 does not have,
    as they came, None without any."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    further: dict[str, Any] | None = None

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        _gather_further([tree])
        return super().from_tree(tree)

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of RocketMQ 5."""
        found = (self.further or {}).get("attributes")
        return {key: str(value) for key, value in found.items()} if type(found) is dict else {}

    def with_attributes(self, attributes: dict[str, str]) -> Self:
        """The same settings with other attributes."""
        if not attributes and "attributes" not in (self.further or {}):
            return self
        further = {**(self.further or {}), "attributes": attributes}
        return msgspec.structs.replace(self, further=further)


_GROUP_MEMBERS = frozenset(SubscriptionGroupConfig.__struct_encode_fields__) - {fastjson.FURTHER}


def _gather_further(groups: Iterable[Any]) -> None:
    for group in groups:
        if isinstance(group, dict) and not group.keys() <= _GROUP_MEMBERS:
            unknown = [key for key in group if key not in _GROUP_MEMBERS]
            group[fastjson.FURTHER] = {key: group.pop(key) for key in unknown}


class SubscriptionGroupWrapper(Body):
    """Answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG, and subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        table = tree.get("subscriptionGroupTable") if isinstance(tree, dict) else None
        _gather_further(table.values() if isinstance(table, dict) else ())
        return super().from_tree(tree)


class SubscriptionGroupList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = []

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        _gather_further(_dicts(tree, "groupConfigList"))
        return super().from_tree(tree)


class ConsumerOffsetSerializeWrapper(Body):
    """Answer to GET_ALL_CONSUMER_OFFSET, and consumerOffset.json: ``topic@group`` -> queue id."""

    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(Body):
    """Answer to GET_ALL_DELAY_OFFSET, and delayOffset.json: delay level -> queue offset."""

    offset_table: dict[Int32, Int64] = {}


class KVTable(Body):
    """Settings or figures as text."""

    table: dict[str, str] = {}


class TableChanges(Body):
    """Answer to AWAIT_TABLE_CHANGE: the newest change of topics and groups.

    `deleted_topics` are topics that were deleted since the slave's last copy, with a physical
    offset: records of the topic before it belong to the deleted one. `topics` are those that have
    changed since, with the version of the whole table; None: the slave copies the tables.
    """

    newest: str
    deleted_topics: dict[str, Int64] = {}
    topics: dict[str, TopicConfig] | None = None
    topics_version: DataVersion | None = None


# --- clients


class ConsumerData(Body):
    """One group of a consumer's heartbeat."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(Body):
    """One group of a producer's heartbeat."""

    group_name: str


class HeartbeatData(Body):
    """Body of HEART_BEAT.

    RocketMQ 5: `heartbeat_fingerprint` is a hash of the subscriptions, 0 or None of clients that
    always send them; with `without_sub` they are left out, and are those of that hash.
    """

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 | None = None
    without_sub: bool | None = None

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        for consumer in _dicts(tree, "consumerDataSet"):
            for field, names in _CONSUMER_NAMES.items():
                value = consumer.get(field)
                if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
                    consumer[field] = names.get(str(value))
        return super().from_tree(tree)


class CheckClientRequestBody(Body):
    """Body of CHECK_CLIENT_CONFIG."""

    client_id: str
    group: str
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class GetConsumerListByGroupResponseBody(Body):
    """Answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = []


class LockBatchRequestBody(Body):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body):
    """Answer to LOCK_BATCH_MQ: the queues that the caller holds now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class OffsetMovedEvent(Body):
    """Body of a message to OFFSET_MOVED_EVENT."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: Int64
    offset_new: Int64
