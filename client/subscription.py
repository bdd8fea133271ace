"""What a consumer wants of a topic (RocketMQ: FilterAPI)."""

from congreve.client.message import ReceivedMessage
from congreve.records.record import string_hash
from congreve.remoting.bodies import SubscriptionData

ALL = "*"


def subscription(topic: str, expression: str, version: int) -> SubscriptionData:
    """`expression` is ``*`` or tags with ``||`` between; `version` is a time in milliseconds."""
    tags = [] if expression.strip() in ("", ALL) else wanted_tags(expression)
    return SubscriptionData(
        topic=topic,
        sub_string=expression if tags else ALL,
        tags_set=tags,
        code_set=[string_hash(tag) for tag in tags],
        sub_version=version,
    )


def wanted_tags(expression: str) -> list[str]:
    return [tag.strip() for tag in expression.split("||") if tag.strip()]


def matching(messages: list[ReceivedMessage], expression: str) -> list[ReceivedMessage]:
    """Those that have a wanted tag: brokers compare hashes only."""
    if expression.strip() in ("", ALL):
        return messages
    tags = set(wanted_tags(expression))
    return [message for message in messages if message.tags in tags]
