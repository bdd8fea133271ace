"""The checks of a pull (RocketMQ: PullMessageProcessor)."""

from congreve.broker.config import PERM_READ, BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.subscription import MessageFilter
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.pull.subscriptions import PullSubscriptions
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.headers import PullMessageRequestHeader
from congreve.remoting.transport.connection import Connection


class PullChecks:
    """Checks a pull's header; creates its group where that is allowed.

    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(
        self, config: BrokerConfig, metadata: Metadata, subscriptions: PullSubscriptions
    ) -> None:
        self._config = config
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._subscriptions = subscriptions

    def check(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> tuple[SubscriptionGroupConfig, MessageFilter]:
        """The group of a pull, and the messages that it wants.

        Raises RefusedError with the code and remark of the first check that fails, TableFullError
        for one group too many, NotCompiledError for a filter that must be compiled first.
        """
        config = self._config
        if not config.readable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden"
                f" (brokerPermission {config.broker_permission})",
            )
        group = consuming_group(self._groups, header.consumer_group)
        topic = known_topic(self._topics, header.topic)
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
        return group, self._subscriptions.filter_of(header, group)


def consuming_group(groups: SubscriptionGroupManager, name: str) -> SubscriptionGroupConfig:
    """A group that may consume, created where that is allowed. Raises RefusedError."""
    group = groups.find(name)
    if group is None:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{name}] does not exist",
        )
    if not group.consume_enable:
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"subscription group no permission, {name} (consumeEnable false)",
        )
    return group


def known_topic(topics: TopicConfigManager, name: str) -> TopicConfig:
    """A topic that exists. Raises RefusedError."""
    topic = topics.get(name)
    if topic is None:
        raise RefusedError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
        )
    return topic
