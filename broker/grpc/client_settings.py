"""What clients are to do: attempts, pauses, sizes (RocketMQ 5: GrpcClientSettingsManager)."""

from typing import Any

from congreve.broker.config import BrokerConfig
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import LITE_TOPIC_MAX, checked_group, checked_topic
from congreve.broker.lite.rules import client_quota
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.remoting.messages.bodies import SubscriptionGroupConfig

# Of a producer (RocketMQ 5: GrpcClientSettingsManager, ProxyConfig).
SEND_ATTEMPTS = 3
SEND_BACKOFF_MS, SEND_BACKOFF_MAX_MS, SEND_BACKOFF_FACTOR = 10, 1_000, 2.0
# Of a consumer.
BATCH_SIZE = 32
LONG_POLLING_S = 20
RETRY_DELAYS_S = (
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600),
    *(1_200, 1_800, 3_600, 7_200),
)
TOPICS_MAX = 1_000
"""Topics of one client."""
_FURTHER_ORDERLY = "consumeMessageOrderly"


class ClientSettings:
    """Completes what clients say of themselves (RocketMQ 5: GrpcClientSettingsManager)."""

    def __init__(self, config: BrokerConfig, groups: SubscriptionGroupManager) -> None:
        self._config = config
        self._groups = groups

    def complete(self, settings: Any) -> None:
        """Set in the Settings that a client sent what it is to use. Raises CallRefusedError."""
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise CallRefusedError(
                Code.BAD_REQUEST, "there is no publishing or subscription data in settings"
            )
        settings.metric.SetInParent()  # clients of Python up to 5.1.0 wait for it
        if kind == "publishing":
            self._of_producer(settings)
        else:
            self._of_consumer(settings)

    def _of_producer(self, settings: Any) -> None:
        _check_topics(list(settings.publishing.topics))
        policy = settings.backoff_policy
        policy.max_attempts = SEND_ATTEMPTS
        policy.exponential_backoff.initial.FromMilliseconds(SEND_BACKOFF_MS)
        policy.exponential_backoff.max.FromMilliseconds(SEND_BACKOFF_MAX_MS)
        policy.exponential_backoff.multiplier = SEND_BACKOFF_FACTOR
        settings.publishing.max_body_size = self._config.store.max_message_size
        settings.publishing.validate_message_type = True

    def _of_consumer(self, settings: Any) -> None:
        name = checked_group(settings.subscription.group)
        _check_topics([entry.topic for entry in settings.subscription.subscriptions])
        group = self._groups.find(name)
        if group is None:
            raise CallRefusedError(Code.CONSUMER_GROUP_NOT_FOUND, f"group not found: {name}")
        policy = settings.backoff_policy
        policy.max_attempts = group.retry_max_times + 1
        del policy.customized_backoff.next[:]
        for seconds in RETRY_DELAYS_S:
            policy.customized_backoff.next.add(seconds=seconds)
        settings.subscription.fifo = is_fifo(group)
        settings.subscription.receive_batch_size = BATCH_SIZE
        settings.subscription.long_polling_timeout.FromSeconds(LONG_POLLING_S)
        settings.subscription.lite_subscription_quota = client_quota(group)
        settings.subscription.max_lite_topic_size = LITE_TOPIC_MAX


def _check_topics(topics: list[Any]) -> None:
    if len(topics) > TOPICS_MAX:
        raise CallRefusedError(
            Code.BAD_REQUEST, f"{len(topics)} topics of one client: {TOPICS_MAX} at most"
        )
    for topic in topics:
        checked_topic(topic)


def is_fifo(group: SubscriptionGroupConfig | None) -> bool:
    """Whether a group gets the messages of each queue in their order."""
    return group is not None and bool((group.further or {}).get(_FURTHER_ORDERLY))
