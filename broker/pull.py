"""Pulls, with every check (RocketMQ: PullMessageProcessor)."""

import logging
from collections.abc import Mapping

from congreve.broker.config import PERM_READ, BrokerConfig
from congreve.broker.consumers import ConsumerManager
from congreve.broker.errors import RefusedError
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.hold import HeldPull, PullRequestHold
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.pulltickets import PullTicket, PullTickets
from congreve.broker.stats import BrokerStats
from congreve.broker.subscription import is_tag_type, tag_codes_of
from congreve.broker.topics import OFFSET_MOVED_EVENT_TOPIC, TopicConfigManager
from congreve.engine.clock import Clock
from congreve.engine.reader import GetResult, GetStatus, TagFilter
from congreve.engine.store import MessageStore
from congreve.records import properties
from congreve.records.message import Record
from congreve.remoting.bodies import (
    MessageQueue,
    OffsetMovedEvent,
    SubscriptionGroupConfig,
)
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.errors import HeaderError
from congreve.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader

logger = logging.getLogger(__name__)

FLAG_COMMIT_OFFSET = 1
FLAG_SUSPEND = 2
FLAG_SUBSCRIPTION = 4
BROADCASTING = "BROADCASTING"

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def pull_code(status: GetStatus, offset: int) -> ResponseCode:
    """The answer to a pull at `offset` for which the store said `status`."""
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[status]


class PullMessageProcessor:
    """PULL_MESSAGE and LITE_PULL_MESSAGE; holds pulls that find nothing."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._clock = clock
        self.hold = PullRequestHold(self._has_match, self._resume)
        self.tickets = PullTickets(
            config=config,
            offsets=offsets,
            groups=groups.table,
            topics=topics.table,
            consumers=consumers.groups,
        )

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """The first execution; None when the pull is held."""
        header = PullMessageRequestHeader.read(request)
        group, tag_codes = self._check(header, connection)
        found = self._get(header, tag_codes)
        code = pull_code(found.status, header.queue_offset)
        answer: RemotingCommand | None = None
        suspended = (
            code is ResponseCode.PULL_NOT_FOUND
            and header.sys_flag & FLAG_SUSPEND
            and not request.is_oneway
            and self._suspend(request, header, connection, tag_codes)
        )
        if not suspended:
            answer = self._answer(request, header, group, found, code)
        if header.sys_flag & FLAG_COMMIT_OFFSET and not self._config.is_slave:
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        return answer

    def ticket(self, frame: bytes, connection: Connection) -> PullTicket | None:
        """What compiled code may keep of this pull's checks; None: pull() has to answer."""
        try:
            header = PullMessageRequestHeader.read(RemotingCommand.decode(frame))
            group, codes = self._check(header, connection)
        except (RefusedError, HeaderError):
            return None
        online = self._consumers.groups.get(group.group_name)
        registered = not header.sys_flag & FLAG_SUBSCRIPTION
        return PullTicket(
            group=group,
            topic=self._topics.table[header.topic],
            subscription=(
                self._consumers.find_subscription(group.group_name, header.topic)
                if registered
                else None
            ),
            message_model=online.message_model if online and registered else "",
            queue=self._store.queues.get(header.topic, header.queue_id),
            tags=None if codes is None else TagFilter(codes),
            counter=self._stats.pull_counter(group.group_name, header.topic),
        )

    def _resume(self, held: HeldPull) -> None:
        """Execute a held pull once more and answer it, whatever comes out."""
        request = held.request
        try:
            header = PullMessageRequestHeader.read(request)
            group, tag_codes = self._check(header, held.connection)
            found = self._get(header, tag_codes)
            code = pull_code(found.status, header.queue_offset)
            answer = self._answer(request, header, group, found, code)
        except RefusedError as refused:
            answer = request.reply(refused.code, str(refused))
        held.connection.send(answer)

    def _check(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> tuple[SubscriptionGroupConfig, frozenset[int] | None]:
        config = self._config
        if not config.readable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden"
                f" (brokerPermission {config.broker_permission})",
            )
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group} (consumeEnable false)",
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        if not topic.perm & PERM_READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden (perm {topic.perm})",
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
                f" consumer:[{connection.peer[0]}:{connection.peer[1]}]",
            )
        if header.sys_flag & FLAG_SUBSCRIPTION:
            expression, expression_type = header.subscription, header.expression_type
        else:
            expression, expression_type = self._registered(header, group)
        return group, self._tag_codes(expression, expression_type)

    def _registered(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> tuple[str | None, str | None]:
        """The expression that the group's heartbeats told."""
        name = header.consumer_group
        online = self._consumers.groups.get(name)
        if online is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, group[{name}] is not online",
            )
        if not group.consume_broadcast_enable and online.message_model == BROADCASTING:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist, group[{name}] topic[{header.topic}]",
            )
        if subscription.sub_version < header.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {subscription.sub_version} here,"
                f" {header.sub_version} asked for",
            )
        if not is_tag_type(subscription.expression_type) and self._config.enable_property_filter:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        return subscription.sub_string, subscription.expression_type

    def _tag_codes(
        self, expression: str | None, expression_type: str | None
    ) -> frozenset[int] | None:
        if not is_tag_type(expression_type):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )
        try:
            return tag_codes_of(expression)
        except ValueError as error:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from error

    def _get(self, header: PullMessageRequestHeader, codes: frozenset[int] | None) -> GetResult:
        return self._store.get(
            header.topic, header.queue_id, header.queue_offset, max(header.max_msg_nums, 1), codes
        )

    def _answer(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        found: GetResult,
        code: ResponseCode,
    ) -> RemotingCommand:
        suggested = 0
        if self._config.slave_read_enable:
            slow = found.suggest_slave
            suggested = group.which_broker_when_consume_slowly if slow else group.broker_id
        if code is ResponseCode.PULL_OFFSET_MOVED:
            self._offset_moved(header, found)
        elif code is ResponseCode.SUCCESS:
            counter = self._stats.pull_counter(header.consumer_group, header.topic)
            counter.add(found.count, found.size)
        else:
            self._stats.missed()
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=suggested,
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
        ).fields()
        body = b"".join(found.buffers) if code is ResponseCode.SUCCESS else b""
        return request.reply(code, found.status.name, fields, body)

    def _suspend(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        connection: Connection,
        tag_codes: frozenset[int] | None,
    ) -> bool:
        timeout_ms = header.suspend_timeout_millis
        if not self._config.long_polling_enable:
            timeout_ms = self._config.short_polling_time_mills
        queue = self._store.queues.get(header.topic, header.queue_id)
        held = HeldPull(connection, request, queue, header.queue_offset, tag_codes)
        return self.hold.suspend(held, max(timeout_ms, 0) / 1000)

    def _has_match(self, held: HeldPull) -> bool:
        """True when the queue has something for it, or its offset became wrong."""
        topic, queue_id = held.queue.topic, held.queue.queue_id
        newest = self._store.max_offset(topic, queue_id)
        while held.offset < newest:
            if held.tag_codes is None:
                return True
            found = self._store.get(topic, queue_id, held.offset, 1, held.tag_codes)
            if found.status is not GetStatus.NO_MATCHED_MESSAGE:
                return True
            held.offset = found.next_offset
        return False

    def _offset_moved(self, header: PullMessageRequestHeader, found: GetResult) -> None:
        """Leave an OFFSET_MOVED_EVENT message for whoever watches that topic."""
        queue = MessageQueue(
            topic=header.topic, broker_name=self._config.broker_name, queue_id=header.queue_id
        )
        event = OffsetMovedEvent(
            consumer_group=header.consumer_group,
            message_queue=queue,
            offset_request=header.queue_offset,
            offset_new=found.next_offset,
        )
        logger.warning("offset of %s corrected: %s", header.consumer_group, event)
        record = Record(
            topic=OFFSET_MOVED_EVENT_TOPIC,
            body=event.encode(),
            properties={
                properties.TAGS: header.consumer_group,
                properties.KEYS: header.consumer_group,
            },
            born_timestamp=self._clock.now(),
            born_host=self._config.store_host,
            store_host=self._config.store_host,
        )
        put = self._store.put(record)
        logger.debug("offset moved event: %s", put.status)
