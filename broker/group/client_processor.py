"""Heartbeats and the end of clients (RocketMQ: ClientManageProcessor)."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

from congreve.base.table_limit import TableFullError
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError, check_body_size
from congreve.broker.group.clients import CLIENT_ID_MAX, ClientChannel
from congreve.broker.group.members import Members
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.name_rules import retries_fault
from congreve.broker.requests.checks import SYS_FLAG_UNIT_SUB
from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.kinds import is_on_tags
from congreve.records.message.names import GROUP_NAME_MAX
from congreve.records.message.topics import retry_topic
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_headers import GetRouteInfoRequestHeader
from congreve.remoting.messages.bodies import (
    BrokerData,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    QueueData,
    TopicRouteData,
)
from congreve.remoting.messages.codes import VERSION, RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import UnregisterClientRequestHeader
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

HEARTBEAT_MAX = 192 * 1024
"""Bytes of a heartbeat: some six hundred subscriptions, unless a filter is long."""

ROUTE_WAIT_S = 1.0
"""How long a group's first heartbeat waits until name servers have its retry topic, in seconds: its
consumer then requests the route from them."""


class ClientManageProcessor:
    """HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG, and routes if answerRouteRequests=true.

    `announced` waits until name servers have the topics. (RocketMQ: ClientManageProcessor.)
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: Metadata,
        members: Members,
        announced: Callable[[float], Awaitable[None]],
        pieces: Pieces,
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._members = members
        self._consumers = members.consumers
        self._producers = members.producers
        self._filters = metadata.filters
        self._metadata = metadata
        self._announced = announced
        self._pieces = pieces

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        handlers: dict[int, Handler] = {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }
        if self._config.answer_route_requests:
            handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self.get_route
        return handlers

    def get_route(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The route that a name server would give if this were the only broker."""
        header = GetRouteInfoRequestHeader.read(request)
        topic = self._topics.announced(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"this broker has no topic {header.topic}"
            )
        config = self._config
        queues = QueueData(
            broker_name=config.broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )
        address = config.advertised.get(connection.listener, config.address)
        broker = BrokerData(
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_addrs={config.broker_id: address},
        )
        route = TopicRouteData(queue_datas=[queues], broker_datas=[broker])
        body = route.encode_for(request.version, standard_only=header.accept_standard_json_only)
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def heart_beat(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer when new groups and their retry topics are on disk and have a route.

        A client of RocketMQ 5 learns that it may leave out its subscriptions as long as their hash
        stays the same, and whether it has to send them again.
        """
        check_body_size(request, HEARTBEAT_MAX)
        data = await self._pieces.run(_heartbeat(request), connection)
        client = ClientChannel(
            connection,
            data.client_id,
            request.language.name,
            request.version,
            access_key=self._members.account_of(request),
        )
        if not connection.closed:
            self._members.ids.hear(client)
        if self._config.election.ha_mode != "classic":
            connection.heartbeat = request  # for the next master
        full: list[TableFullError] = []
        changed = not data.heartbeat_fingerprint
        for consumer in data.consumer_data_set:
            if data.heartbeat_fingerprint:
                known = self._consumers.groups.get(consumer.group_name)
                if data.without_sub:
                    if known is None:  # this broker has started since: it needs them
                        changed = True
                        continue
                    consumer.subscription_data_set = list(known.subscriptions.values())
                changed |= known is not None and known.fingerprint != data.heartbeat_fingerprint
            try:
                await self._pieces.run(self._consumer(consumer, client), connection)
                if not data.without_sub:
                    self._note_fingerprint(consumer.group_name, data.heartbeat_fingerprint or 0)
                await self._filters.register(consumer.group_name, consumer.subscription_data_set)
            except TableFullError as error:  # the client's other groups may fit
                full.append(error)
        try:
            await self._pieces.run(self._produce(data.producer_data_set, client), connection)
        except TableFullError as error:
            full.append(error)
        if full:
            raise full[0]
        missing = [
            wait
            for group in {consumer.group_name for consumer in data.consumer_data_set}
            if (wait := self._metadata.missing(topics=(retry_topic(group),), group=group))
            is not None
        ]
        if missing:
            await asyncio.gather(*missing, self._announced(ROUTE_WAIT_S))
        answer = request.reply(ResponseCode.SUCCESS)
        if request.version > VERSION:
            answer.ext_fields = {
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if changed else "false",
            }
        return answer

    def _note_fingerprint(self, group: str, fingerprint: int) -> None:
        online = self._consumers.groups.get(group)
        if online is not None:
            online.fingerprint = fingerprint

    def _produce(
        self, producers: Iterable[ProducerData], client: ClientChannel
    ) -> Generator[None, None, None]:
        for producer in producers:
            if client.connection.closed:  # its memberships are removed already
                break
            self._producers.register(producer.group_name, client)
            yield

    def _consumer(
        self, consumer: ConsumerData, client: ClientChannel
    ) -> Generator[None, None, None]:
        if client.connection.closed:
            return
        group = self._groups.find(consumer.group_name)
        if group is not None and retries_fault(group.group_name) is None:
            self._topics.create_internal(
                retry_topic(group.group_name),
                group.retry_queue_nums,
                sys_flag=SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
            )
        notify = group is None or group.notify_consumer_ids_changed_enable
        self._consumers.register(consumer, client, notify)
        yield

    def unregister_client(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Remove a client from its groups."""
        header = UnregisterClientRequestHeader.read(request)
        if header.producer_group:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            group = self._groups.table.get(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            account = self._members.account_of(request)
            self._members.locks.leave(header.consumer_group, header.client_id, account)
            self._consumers.unregister(header.consumer_group, connection, notify)
        return request.reply(ResponseCode.SUCCESS)

    async def check_client_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Raises RefusedError when a subscription has a filter that does not compile."""
        body = CheckClientRequestBody.decode(request.body)
        subscription = body.subscription_data
        if subscription is not None and not is_on_tags(subscription.expression_type):
            if not self._config.enable_property_filter:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    "The broker does not support consumer to filter message by "
                    f"{subscription.expression_type}",
                )
            try:
                await self._filters.compile(subscription.sub_string, subscription.expression_type)
            except FilterSyntaxError as error:
                raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return request.reply(ResponseCode.SUCCESS)


def _heartbeat(request: RemotingCommand) -> Generator[None, None, HeartbeatData]:
    """Raises BodyError, and RefusedError for names that are too long to store."""
    data = HeartbeatData.decode(request.body)
    yield
    groups = [consumer.group_name for consumer in data.consumer_data_set]
    groups += [producer.group_name for producer in data.producer_data_set]
    group_max = max(map(len, groups), default=0)
    if len(data.client_id) > CLIENT_ID_MAX or group_max > GROUP_NAME_MAX:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"a client id of {len(data.client_id)} characters and a group name of {group_max}: "
            f"use at most {CLIENT_ID_MAX} and {GROUP_NAME_MAX}",
        )
    return data


def is_heartbeat(request: RemotingCommand) -> bool:
    """Whether the request only says that a client is there."""
    return request.code == RequestCode.HEART_BEAT
