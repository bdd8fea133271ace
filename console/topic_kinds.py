"""Which topics are users' own, and which are those of the system."""

from __future__ import annotations

from collections.abc import Collection

from congreve.records.message.topics import (
    DLQ_PREFIX,
    LIGHT_PREFIX,
    RESENT_PREFIX,
    RETRY_PREFIX,
    is_system_topic,
)

KINDS = ("normal", "retry", "dead letters", "system")
PERM_INHERIT = 1
REPLY_SUFFIX = "_REPLY_TOPIC"


def kind_of(topic: str, perm: int = 0, own_names: Collection[str] = ()) -> str:
    """The kind of a topic, one of KINDS, by its name and permission.

    `own_names` are those of clusters and brokers, which have a topic each.
    """
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead letters"
    if is_system_topic(topic) or topic.startswith((LIGHT_PREFIX, RESENT_PREFIX)):
        return "system"
    if perm & PERM_INHERIT or topic.endswith(REPLY_SUFFIX) or topic in own_names:
        return "system"
    return "normal"
