"""Which topics and groups a broker takes from clients and from its files
(RocketMQ: TopicValidator, Validators)."""

from collections.abc import Iterable

from congreve.records.layout import TOPIC_MAX
from congreve.records.message.names import ALLOWED_NAME, GROUP_NAME_MAX
from congreve.records.message.topics import LIGHT_PREFIX, NOT_FOR_PRODUCERS, RETRY_PREFIX

QUEUES_MAX = 65_536  # of one topic, to catch typing errors in a tool


def topic_name_fault(topic: str) -> str | None:
    """Why a topic's name is not valid, or None (RocketMQ: TopicValidator.validateTopic)."""
    if not topic.strip():
        return "The specified topic is blank"
    if not ALLOWED_NAME.fullmatch(topic):
        return (
            f"The specified topic contains illegal characters: [{topic}];"
            " % | a-z A-Z 0-9 _ - are allowed"
        )
    if len(topic) > TOPIC_MAX:
        return f"The specified topic[{topic}] is longer than {TOPIC_MAX} characters: {len(topic)}"
    if topic.startswith(LIGHT_PREFIX):
        return (
            f"The specified topic[{topic}] is a light message queue, which this broker does not"
            f" serve: a name may not begin with {LIGHT_PREFIX}"
        )
    return None


def forbidden_for_producers(topic: str) -> bool:
    """True for the broker's own topics (TopicValidator.isNotAllowedSendTopic)."""
    return topic in NOT_FOR_PRODUCERS


def group_name_fault(group: str) -> str | None:
    """Why a group's name is not valid, or None (RocketMQ client: Validators.checkGroup)."""
    if not group.strip():
        return "The specified group is blank"
    if not ALLOWED_NAME.fullmatch(group):
        return (
            f"The specified group contains illegal characters: [{group}];"
            " % | a-z A-Z 0-9 _ - are allowed"
        )
    if len(group) > GROUP_NAME_MAX:
        return (
            f"The specified group[{group}] is longer than {GROUP_NAME_MAX} characters: {len(group)}"
        )
    return None


def retries_fault(group: str) -> str | None:
    """Why no message can be sent back to a group, or None: records hold no name of that length."""
    longest = TOPIC_MAX - len(RETRY_PREFIX)
    if len(group) > longest:
        return (
            f"the group[{group}] of {len(group)} characters cannot have a retry topic: use a name"
            f" of at most {longest} for a group whose messages are consumed again"
        )
    return None


def entry_fault(name: str, own_name: str, queue_counts: Iterable[int]) -> str | None:
    """Why a topic or group of a state file is invalid (a bit may have flipped), or None."""
    if name != own_name:
        return f"its entry has the name {own_name[:TOPIC_MAX]!r}"
    for count in queue_counts:
        if not 0 <= count <= QUEUES_MAX:
            return f"it has {count} queues instead of 0 to {QUEUES_MAX}"
    return None
