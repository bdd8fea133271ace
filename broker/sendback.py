"""Messages that a consumer could not handle (RocketMQ: SendMessageProcessor, code 36)."""

import random
from collections.abc import Callable, Mapping

from congreve.broker.config import PERM_WRITE, BrokerConfig
from congreve.broker.delay import park_for_level
from congreve.broker.durability import DurabilityGate
from congreve.broker.errors import RefusedError
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.send import MAX_RECONSUME_TIMES_VERSION
from congreve.broker.sendchecks import SYS_FLAG_UNIT_SUB
from congreve.broker.topics import TopicConfigManager, dlq_topic, retry_topic
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records import properties
from congreve.records.message import Record
from congreve.records.record import decode_record, offset_message_id
from congreve.remoting.bodies import SubscriptionGroupConfig
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import ConsumerSendMsgBackRequestHeader

FIRST_RETRY_LEVEL = 3


class SendBackProcessor:
    """CONSUMER_SEND_MSG_BACK: into the group's retry topic, or its dead-letter topic."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        store: MessageStore,
        gate: DurabilityGate,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._store = store
        self._gate = gate
        self._pick = pick

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """None while the answer waits to be durable: its consumer forgets the message then."""
        header = ConsumerSendMsgBackRequestHeader.read(request)
        group = self._checked_group(header)
        if group.retry_queue_nums <= 0:
            return request.reply(ResponseCode.SUCCESS)
        sys_flag = SYS_FLAG_UNIT_SUB if header.unit_mode else 0
        target = self._topics.create_internal(
            retry_topic(header.group), group.retry_queue_nums, sys_flag=sys_flag
        )
        if not target.perm & PERM_WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{target.topic_name}] sending message is forbidden (perm {target.perm})",
            )
        record = self._stored(header.offset)
        attempts = group.retry_max_times
        if (
            request.version >= MAX_RECONSUME_TIMES_VERSION
            and header.max_reconsume_times is not None
        ):
            attempts = header.max_reconsume_times
        if record.reconsume_times >= attempts or header.delay_level < 0:
            target, level = self._topics.create_internal(dlq_topic(header.group), 1), 0
            queue_id = 0
        else:
            level = header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
            queue_id = self._pick(group.retry_queue_nums)
        again = _again(record, target.topic_name, queue_id, level)
        put = self._store.put(park_for_level(again, self._store.config))
        if put.status is not PutStatus.PUT_OK:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, put.refusal)
        answer = request.reply(ResponseCode.SUCCESS)
        if self._store.config.sync_flush and not request.is_oneway:
            self._gate.park(connection, answer.encode(), put.end)
            return None
        return answer

    def _checked_group(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig:
        group = self._groups.find(header.group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {header.group}",
            )
        if not self._config.writable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden"
                f" (brokerPermission {self._config.broker_permission})",
            )
        return group

    def _stored(self, physical_offset: int) -> Record:
        found = self._store.read(physical_offset)
        if found is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}"
            )
        return decode_record(found, physical_offset=physical_offset)


def _again(record: Record, topic: str, queue_id: int, level: int) -> Record:
    kept = dict(record.properties)
    kept.setdefault(properties.RETRY_TOPIC, record.topic)
    kept.setdefault(
        properties.ORIGIN_MESSAGE_ID, offset_message_id(record.store_host, record.physical_offset)
    )
    kept[properties.WAIT] = "false"
    kept[properties.DELAY] = str(level)
    return Record(
        topic=topic,
        body=record.body,
        properties=kept,
        queue_id=queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times + 1,
    )
