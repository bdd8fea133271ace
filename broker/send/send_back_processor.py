"""Messages that a consumer could not handle (RocketMQ: SendMessageProcessor, code 36)."""

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from congreve.broker.after_repair import after_repair
from congreve.broker.commit.group_commit import GroupCommit
from congreve.broker.config import PERM_WRITE, BrokerConfig
from congreve.broker.delay.parking import park_for_level
from congreve.broker.errors import RefusedError
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.name_rules import retries_fault
from congreve.broker.requests.checks import SYS_FLAG_UNIT_SUB, attempts_of
from congreve.broker.requests.new_queues import put_in_turn
from congreve.broker.send.retries import dead_letter, retry_or_dead_letter
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.message import properties
from congreve.records.message.message import RECONSUME_TIMES_MAX, Record, one_more
from congreve.records.message.topics import RETRY_PREFIX, dlq_topic, retry_topic
from congreve.records.record import decode_record, offset_message_id
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import ConsumerSendMsgBackRequestHeader
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

FIRST_RETRY_LEVEL = 3


class SendBackProcessor:
    """CONSUMER_SEND_MSG_BACK: stores into the group's retry or dead-letter topic.

    (RocketMQ: SendMessageProcessor.asyncConsumerSendMsgBack.)
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        store: MessageStore,
        group_commit: GroupCommit,
        stats: BrokerStats,
        pick: Callable[[int], int] = random.randrange,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._store = store
        self._group_commit = group_commit
        self._stats = stats
        self._metadata = metadata
        self._pick = pick

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: after_repair(self._store.repairs, self.send_back)
        }

    def send_back(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        """Store the message again; None when the answer waits for the disk.

        The consumer drops its copy when it gets the answer.
        """
        header = ConsumerSendMsgBackRequestHeader.read(request)
        group = self._checked_group(header)
        if group.retry_queue_nums <= 0:
            return request.reply(ResponseCode.SUCCESS)
        fault = retries_fault(header.group)
        if fault is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, fault)
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
        attempts = attempts_of(group, request, header.max_reconsume_times)
        level = header.delay_level or _level(record.reconsume_times)
        queue_id = self._pick(group.retry_queue_nums)
        again = _again(record, target.topic_name, queue_id, level, self._config.acl_enable)
        origin = again.properties[properties.RETRY_TOPIC]
        if origin not in self._topics.table:  # its producer may have set it
            origin = target.topic_name
        if record.reconsume_times >= attempts or header.delay_level < 0:
            again = dead_letter(again, header.group)
        else:
            again = retry_or_dead_letter(again, header.group, self._store.config)
        if again.topic != target.topic_name:
            self._topics.create_internal(again.topic, 1)
        saved = self._metadata.missing(topics=(again.topic,), group=header.group)
        parked = park_for_level(again, self._store.config)
        put = partial(self._store_one, again, header.group, origin, request, connection)
        return put_in_turn(put, self._store, (parked.topic, parked.queue_id), saved=saved)

    def _store_one(
        self,
        again: Record,
        group: str,
        origin: str,
        request: RemotingCommand,
        connection: Connection,
    ) -> RemotingCommand | None:
        put = self._store.put(park_for_level(again, self._store.config), is_copy=True)
        if put.status is not PutStatus.PUT_OK:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, put.refusal)
        self._stats.sent_back(group, origin, is_dead=again.topic == dlq_topic(group))
        answer = request.reply(ResponseCode.SUCCESS)
        return self._group_commit.answer(request, connection, answer, put.end)

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
        found = self._store.record_at(physical_offset, repair=False)
        if found is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}"
            )
        return decode_record(found, physical_offset=physical_offset)


def _level(attempts: int) -> int:
    return min(FIRST_RETRY_LEVEL + attempts, RECONSUME_TIMES_MAX)


def _again(record: Record, topic: str, queue_id: int, level: int, reserves: bool) -> Record:
    kept = dict(record.properties)
    if reserves and not record.topic.startswith(RETRY_PREFIX):
        # Its producer has set them, before the broker had accounts.
        for name in properties.SET_IN_COPIES:
            kept.pop(name, None)
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
        reconsume_times=one_more(record.reconsume_times),
    )
