"""The subscription of a pull: its own, or the one of its group's heartbeats."""

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.metadata.filters import ConsumerFilterManager, NotCompiledError
from congreve.broker.metadata.subscription import MessageFilter, tag_codes_of
from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.kinds import is_on_tags
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.headers import PullMessageRequestHeader

FLAG_SUBSCRIPTION = 4
BROADCASTING = "BROADCASTING"


class PullSubscriptions:
    """Checks the subscription of a pull, and returns the filter for its messages.

    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(
        self, config: BrokerConfig, consumers: ConsumerManager, filters: ConsumerFilterManager
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._filters = filters

    def filter_of(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> MessageFilter:
        """The filter of a pull.

        Raises RefusedError when the subscription cannot be used, NotCompiledError when compile()
        has to run first.
        """
        if header.sys_flag & FLAG_SUBSCRIPTION:
            return self.filter_of_expression(header.subscription, header.expression_type)
        return self._registered(header, group)

    async def compile(self, missing: NotCompiledError) -> None:
        """Compile the filter that is missing. Raises RefusedError when it is not valid."""
        try:
            await self._filters.compile(missing.expression, missing.kind)
        except FilterSyntaxError as error:
            raise _refused(error) from error

    def _registered(
        self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> MessageFilter:
        """The filter of the subscription in the group's heartbeats."""
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
            # Java's client 5.5 may take the newer one for sent, and never send it again.
            online.fingerprint = 0
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: {subscription.sub_version} here,"
                f" {header.sub_version} asked for",
            )
        if is_on_tags(subscription.expression_type):
            return self.filter_of_expression(subscription.sub_string, subscription.expression_type)
        registered = self._filters.find(header.topic, name)
        if registered is None:
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                f" group[{name}] topic[{header.topic}]: {subscription.sub_string}",
            )
        if registered.client_version < header.sub_version:
            online.fingerprint = 0
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the consumer's consumer filter data not latest: {registered.client_version}"
                f" here, {header.sub_version} asked for",
            )
        return self.filter_of_expression(registered.expression, registered.expression_type)

    def filter_of_expression(
        self, expression: str | None, expression_type: str | None
    ) -> MessageFilter:
        """The filter of an expression; raises as filter_of()."""
        try:
            if is_on_tags(expression_type):
                return MessageFilter(tag_codes=tag_codes_of(expression))
            if self._config.enable_property_filter:
                return MessageFilter(
                    records=self._filters.program(expression or "", expression_type)
                )
        except (ValueError, FilterSyntaxError) as error:
            raise _refused(error) from error
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


def _refused(error: Exception) -> RefusedError:
    return RefusedError(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {error}",
    )
