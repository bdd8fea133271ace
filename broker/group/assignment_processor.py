"""The broker's assignment of queues to members (RocketMQ 5: QueryAssignmentProcessor)."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from congreve.broker.config import PERM_READ, BrokerConfig
from congreve.broker.errors import RefusedError, check_body_size
from congreve.broker.group.allocation import STRATEGIES, Queues, popped
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.bodies import TopicRouteData
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_bodies import (
    POP,
    PULL,
    REQUEST_MODES,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

ASSIGNMENT_BODY_MAX = 16 * 1024
"""Bytes of a body with a topic, a group and a client id."""

Route = Callable[[str], Awaitable[TopicRouteData | None]]
"""The route of a topic that name servers have, None for a topic that they do not know; raises
RemotingError if none of them answers."""


class _Known(NamedTuple):
    queues: Queues | None
    at: float


class TopicQueues:
    """The queues of a topic at all brokers that name servers know, for some seconds.

    Without name servers: those of this broker. (RocketMQ 5: TopicRouteInfoManager.)
    """

    FRESH_S = 5.0
    TOPICS_MAX = 10_000

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        route: Route,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._route = route
        self._now = monotonic
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def of(self, topic: str) -> Queues | None:
        """The queues that can be read, in order; None for an absent topic."""
        if not self._config.name_servers:
            return self._own(topic)
        known = self._known.get(topic)
        if known is not None and self._now() - known.at < self.FRESH_S:
            return known.queues
        try:
            route = await self._route(topic)
        except RemotingError:
            return None if known is None else known.queues
        queues = None if route is None else _readable(topic, route)
        self._known[topic] = _Known(queues, self._now())
        self._known.move_to_end(topic)
        if len(self._known) > self.TOPICS_MAX:
            self._known.popitem(last=False)
        return queues

    def _own(self, topic: str) -> Queues | None:
        config = self._topics.announced(topic)
        if config is None:
            return None
        count = config.read_queue_nums if config.perm & PERM_READ else 0
        return [MessageQueue(topic, self._config.broker_name, i) for i in range(count)]


def _readable(topic: str, route: TopicRouteData) -> Queues:
    return sorted(
        MessageQueue(topic, each.broker_name, queue_id)
        for each in route.queue_datas
        if each.perm & PERM_READ
        for queue_id in range(each.read_queue_nums)
    )


class QueryAssignmentProcessor:
    """QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE.

    (RocketMQ 5: QueryAssignmentProcessor, AdminBrokerProcessor.)
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        consumers: ConsumerManager,
        queues: TopicQueues,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._modes = metadata.request_modes
        self._consumers = consumers
        self._queues = queues

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_modes,
        }

    async def query(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The queues of a member; a body without a list lets it keep what it has."""
        check_body_size(request, ASSIGNMENT_BODY_MAX)
        wanted = QueryAssignmentRequestBody.decode(request.body)
        mode = self._mode(wanted.topic, wanted.consumer_group)
        queues = await self._assigned(wanted, mode)
        body = QueryAssignmentResponseBody()
        if queues is not None:
            body.message_queue_assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in queues
            ]
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """The mode that was set, or the default one; retry topics are pulled."""
        if (mode := self._modes.find(topic, group)) is not None:
            return mode
        pops = self._config.pops
        return SetMessageRequestModeRequestBody(
            topic=topic,
            consumer_group=group,
            mode=PULL if topic.startswith(RETRY_PREFIX) else pops.default_message_request_mode,
            pop_share_queue_num=pops.default_pop_share_queue_num,
        )

    async def _assigned(
        self, wanted: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> Queues | None:
        queues = await self._queues.of(wanted.topic)
        if queues is None or wanted.message_model == "BROADCASTING":
            return queues
        online = self._consumers.groups.get(wanted.consumer_group)
        strategy = STRATEGIES.get(wanted.strategy_name or "")
        if online is None or strategy is None or not queues or not wanted.client_id:
            return None
        members: Sequence[str] = sorted(set(online.client_ids()))
        if wanted.client_id not in members:
            return []
        place = members.index(wanted.client_id)
        if mode.mode != POP:
            return strategy(queues, place, len(members))
        return popped(queues, place, len(members), mode.pop_share_queue_num, strategy)

    async def set_mode(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Set how a group reads a topic; the answer waits until that is on disk."""
        check_body_size(request, ASSIGNMENT_BODY_MAX)
        mode = SetMessageRequestModeRequestBody.decode(request.body)
        if self._config.is_slave:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, use its master",
            )
        if mode.topic.startswith(RETRY_PREFIX):
            raise RefusedError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(mode.topic) is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._groups.find(mode.consumer_group) is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        if mode.mode not in REQUEST_MODES:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"mode[{mode.mode[:20]}] is not PULL or POP"
            )
        self._modes.set(mode)
        await self._groups.file.saved()
        await self._modes.file.saved()
        return request.reply(ResponseCode.SUCCESS)

    def get_modes(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All modes."""
        return request.reply(ResponseCode.SUCCESS, body=self._modes.body().encode())
