"""What attributes say of lite topics (RocketMQ 5.5: LiteMetadataUtil)."""

from congreve.broker.metadata.attributes import (
    LITE_BIND_TOPIC,
    LITE_CLIENT_QUOTA,
    LITE_EXPIRATION,
    LITE_MODEL,
)
from congreve.broker.requests.message_types import MessageType, topic_type
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig

CLIENT_QUOTA = 2_000
"""Lite topics to which one client of a group subscribes, without lite.sub.client.quota."""
EXPIRATION_MIN_MS = 15 * 60_000
"""The shortest time after which an idle lite topic is deleted."""


def is_parent(topic: TopicConfig | None) -> bool:
    """Whether a topic has lite topics."""
    return topic is not None and topic_type(topic) is MessageType.LITE


def expiration_ms(topic: TopicConfig) -> int:
    """After which time an idle lite topic is deleted; 0: never."""
    minutes = int((topic.attributes or {}).get(LITE_EXPIRATION, "-1"))
    return max(minutes * 60_000, EXPIRATION_MIN_MS) if minutes > 0 else 0


def bound_topic(group: SubscriptionGroupConfig | None) -> str | None:
    """The parent topic of the lite topics that a group consumes; None for another group."""
    return None if group is None else group.attributes.get(LITE_BIND_TOPIC)


def is_exclusive(group: SubscriptionGroupConfig | None) -> bool:
    """Whether only one member of the group gets the messages of a lite topic."""
    return group is not None and group.attributes.get(LITE_MODEL) == "Exclusive"


def is_set(group: SubscriptionGroupConfig | None, key: str) -> bool:
    """Whether an attribute of the group is true."""
    return group is not None and group.attributes.get(key, "").lower() == "true"


def client_quota(group: SubscriptionGroupConfig | None) -> int:
    """Most lite topics of one client of the group; -1: no limit."""
    found = None if group is None else group.attributes.get(LITE_CLIENT_QUOTA)
    return CLIENT_QUOTA if found is None else int(found)
