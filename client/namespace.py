"""Prefixes topics and groups with the namespace of a tenant: ``namespace%name`` (RocketMQ:
NamespaceUtil)."""

from typing import TYPE_CHECKING

import msgspec

from congreve.records.message.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_system_topic,
)

if TYPE_CHECKING:
    from congreve.remoting.messages.body import MessageQueue

SEPARATOR = "%"


def wrap(namespace: str | None, name: str) -> str:
    """The name of a topic or group on brokers; names that already have the namespace, and shared
    names, stay unchanged."""
    if not namespace or not name or _is_shared(name):
        return name
    prefix, rest = _split(name)
    if rest.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{rest}"


def unwrap(namespace: str | None, name: str) -> str:
    """The name of a topic or group for a program of that namespace."""
    prefix, rest = _split(name)
    if namespace and rest.startswith(namespace + SEPARATOR):
        return prefix + rest[len(namespace) + 1 :]
    return name


def wrap_queue(namespace: str | None, queue: "MessageQueue") -> "MessageQueue":
    """The queue with its topic's name on brokers."""
    topic = wrap(namespace, queue.topic)
    return queue if topic == queue.topic else msgspec.structs.replace(queue, topic=topic)


def unwrap_queue(namespace: str | None, queue: "MessageQueue") -> "MessageQueue":
    """The queue with its topic's name for a program of that namespace."""
    topic = unwrap(namespace, queue.topic)
    return queue if topic == queue.topic else msgspec.structs.replace(queue, topic=topic)


def _is_shared(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
