"""Topics and groups of one tenant: ``namespace%name`` (RocketMQ: NamespaceUtil)."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from congreve.remoting.bodies import MessageQueue

RETRY_PREFIX = "%RETRY%"
"""What a group's retry topic is called, before the group's name."""
SEPARATOR = "%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_NAMES = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""What all tenants share."""


def wrap(namespace: str | None, name: str) -> str:
    """A topic's or group's name as brokers know it; what is wrapped or shared stays as it is."""
    if not namespace or not name or _is_shared(name):
        return name
    prefix, rest = _split(name)
    if rest.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{rest}"


def unwrap(namespace: str | None, name: str) -> str:
    """The name as a program of that namespace knows it."""
    prefix, rest = _split(name)
    if namespace and rest.startswith(namespace + SEPARATOR):
        return prefix + rest[len(namespace) + 1 :]
    return name


def wrap_queue(namespace: str | None, queue: "MessageQueue") -> "MessageQueue":
    """A queue as brokers know it."""
    topic = wrap(namespace, queue.topic)
    return queue if topic == queue.topic else msgspec.structs.replace(queue, topic=topic)


def unwrap_queue(namespace: str | None, queue: "MessageQueue") -> "MessageQueue":
    """A queue as a program of that namespace knows it."""
    topic = unwrap(namespace, queue.topic)
    return queue if topic == queue.topic else msgspec.structs.replace(queue, topic=topic)


def _is_shared(name: str) -> bool:
    return name in SYSTEM_NAMES or name.startswith((SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX))


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
