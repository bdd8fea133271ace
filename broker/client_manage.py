"""Clients come, stay and go (RocketMQ: ClientManageProcessor)."""

from collections.abc import Mapping

from congreve.broker.clients import ClientChannel
from congreve.broker.config import BrokerConfig
from congreve.broker.consumers import ConsumerManager
from congreve.broker.errors import RefusedError
from congreve.broker.filters import ConsumerFilterManager
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.producers import ProducerManager
from congreve.broker.sendchecks import SYS_FLAG_UNIT_SUB
from congreve.broker.subscription import is_tag_type
from congreve.broker.topics import TopicConfigManager, retry_topic
from congreve.records.errors import FilterSyntaxError
from congreve.remoting.bodies import CheckClientRequestBody, ConsumerData, HeartbeatData
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.connection import Connection, Handler
from congreve.remoting.headers import UnregisterClientRequestHeader


class ClientManageProcessor:
    """HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        producers: ProducerManager,
        filters: ConsumerFilterManager,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._filters = filters

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heart_beat(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        data = HeartbeatData.decode(request.body)
        client = ClientChannel(connection, data.client_id, request.language.name, request.version)
        for consumer in data.consumer_data_set:
            self._consumer(consumer, client)
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, client)
        return request.reply(ResponseCode.SUCCESS)

    def _consumer(self, consumer: ConsumerData, client: ClientChannel) -> None:
        group = self._groups.find(consumer.group_name)
        if group is not None:
            self._topics.create_internal(
                retry_topic(group.group_name),
                group.retry_queue_nums,
                sys_flag=SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
            )
        notify = group is None or group.notify_consumer_ids_changed_enable
        self._consumers.register(consumer, client, notify)
        self._filters.register(consumer.group_name, consumer.subscription_data_set)

    def unregister_client(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        header = UnregisterClientRequestHeader.read(request)
        if header.producer_group:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            group = self._groups.table.get(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, connection, notify)
        return request.reply(ResponseCode.SUCCESS)

    def check_client_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        body = CheckClientRequestBody.decode(request.body)
        subscription = body.subscription_data
        if subscription is not None and not is_tag_type(subscription.expression_type):
            if not self._config.enable_property_filter:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    "The broker does not support consumer to filter message by "
                    f"{subscription.expression_type}",
                )
            try:
                self._filters.compile(subscription.sub_string, subscription.expression_type)
            except FilterSyntaxError as error:
                raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return request.reply(ResponseCode.SUCCESS)
