"""Pulls, with every check (RocketMQ: PullMessageProcessor)."""

import logging
from collections.abc import Mapping

from congreve.broker.coldpulls import ColdPulls
from congreve.broker.config import PERM_READ, BrokerConfig
from congreve.broker.consumers import ConsumerManager
from congreve.broker.errors import RefusedError
from congreve.broker.filters import ConsumerFilterManager
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.heldpull import HeldPull, PullWaker
from congreve.broker.hold import PullRequestHold
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.pullpath import PullPath
from congreve.broker.pulltickets import PullTicket, PullTickets
from congreve.broker.stats import BrokerStats
from congreve.broker.subscription import MessageFilter, is_tag_type, tag_codes_of
from congreve.broker.topics import OFFSET_MOVED_EVENT_TOPIC, TopicConfigManager
from congreve.engine.clock import Clock
from congreve.engine.reader import GetResult, GetStatus, TagFilter
from congreve.engine.store import MessageStore
from congreve.records import properties
from congreve.records.errors import FilterSyntaxError
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
        filters: ConsumerFilterManager,
        offsets: ConsumerOffsetManager,
        store: MessageStore,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._filters = filters
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._clock = clock
        self.tickets = PullTickets(
            config=config,
            offsets=offsets,
            groups=groups.table,
            topics=topics.table,
            consumers=consumers.groups,
        )
        self.cold = ColdPulls(
            fetch=store.cold_reads.fetch, answer=self._answer_cold, dismiss=self._dismiss
        )
        self.waker = PullWaker(
            tickets=self.tickets,
            store=store,
            resume=self._resume,
            wait_for_disk=self.cold.suspend,
        )
        self.hold = PullRequestHold(
            wake=self.waker.wake, resume=self._resume, dismiss=self._dismiss
        )
        self.path = PullPath(store, self)

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    def pull(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """The first execution; None when the pull is held."""
        header = PullMessageRequestHeader.read(request)
        group, wanted = self._check(header, connection)
        found = self._get(header, wanted)
        code = pull_code(found.status, header.queue_offset)
        answer: RemotingCommand | None = None
        suspended = (
            code is ResponseCode.PULL_NOT_FOUND
            and header.sys_flag & FLAG_SUSPEND
            and not request.is_oneway
            and self._hold(request, header, connection, self._ticket(header, group, wanted))
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
            group, wanted = self._check(header, connection)
        except (RefusedError, HeaderError):
            return None
        return self._ticket(header, group, wanted)

    def _ticket(
        self,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        wanted: MessageFilter,
    ) -> PullTicket:
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
            tags=None if wanted.tag_codes is None else TagFilter(wanted.tag_codes),
            records=wanted.records,
            counter=self._stats.pull_counter(group.group_name, header.topic),
        )

    def _resume(self, held: HeldPull) -> None:
        """Execute a held pull once more and answer it, whatever comes out."""
        request = RemotingCommand.decode(held.frame)
        try:
            header = PullMessageRequestHeader.read(request)
            group, wanted = self._check(header, held.connection)
            found = self._get(header, wanted)
            code = pull_code(found.status, header.queue_offset)
            answer = self._answer(request, header, group, found, code)
        except RefusedError as refused:
            answer = request.reply(refused.code, str(refused))
        held.connection.send(answer)

    def _answer_cold(self, held: HeldPull) -> None:
        """Its messages are in memory now. A filter may have refused all: the client asks again."""
        if not self.waker.wake(held):
            self._resume(held)

    def _dismiss(self, held: HeldPull) -> None:
        """An error, at which clients wait for a while: by then the connection is closed."""
        request = RemotingCommand.decode(held.frame)
        remark = f"the broker[{self._config.broker_name}] is stopping"
        held.connection.send(request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark))

    def _check(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> tuple[SubscriptionGroupConfig, MessageFilter]:
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
            return group, self._filter(header.subscription, header.expression_type)
        return group, self._registered(header, group)

    def _registered(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> MessageFilter:
        """What the group's heartbeats asked for."""
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
        if is_tag_type(subscription.expression_type):
            return self._filter(subscription.sub_string, subscription.expression_type)
        registered = self._filters.find(header.topic, name)
        if registered is None:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                f" group[{name}] topic[{header.topic}]: {subscription.sub_string}",
            )
        if registered.client_version < header.sub_version:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the consumer's consumer filter data not latest: {registered.client_version}"
                f" here, {header.sub_version} asked for",
            )
        return self._filter(registered.expression, registered.expression_type)

    def _filter(self, expression: str | None, expression_type: str | None) -> MessageFilter:
        try:
            if is_tag_type(expression_type):
                return MessageFilter(tag_codes=tag_codes_of(expression))
            if self._config.enable_property_filter:
                return MessageFilter(
                    records=self._filters.compile(expression or "", expression_type)
                )
        except (ValueError, FilterSyntaxError) as error:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from error
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )

    def _get(self, header: PullMessageRequestHeader, wanted: MessageFilter) -> GetResult:
        topic, queue_id, count = header.topic, header.queue_id, max(header.max_msg_nums, 1)
        return self._store.get(topic, queue_id, header.queue_offset, count, *wanted)

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

    def _hold(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        connection: Connection,
        ticket: PullTicket,
    ) -> bool:
        held = HeldPull(
            connection,
            request.encode(),
            ticket,
            offset=header.queue_offset,
            max_count=header.max_msg_nums,
            serialize_type=request.serialize_type,
            opaque=request.opaque,
        )
        return self.suspend(held, header.suspend_timeout_millis)

    def suspend(self, held: HeldPull, timeout_ms: int) -> bool:
        """Let a pull wait; False where too many wait already."""
        if not self._config.long_polling_enable:
            timeout_ms = self._config.short_polling_time_mills
        return self.hold.suspend(held, max(timeout_ms, 0) / 1000)

    def stop(self) -> None:
        """Nobody waits any more; the connections of those who did are closed next."""
        self.hold.stop()
        self.cold.stop()

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
