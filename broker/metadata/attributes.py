"""Attributes of topics and groups, and the changes that a request names (RocketMQ 5: AttributeUtil,
AttributeParser, TopicAttributes, SubscriptionGroupAttributes)."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from congreve.base.numbers import java_integer
from congreve.broker.errors import RefusedError
from congreve.remoting.messages.codes import ResponseCode

MESSAGE_TYPE = "message.type"
LITE_EXPIRATION = "lite.topic.expiration"
"""Minutes after which an idle lite topic of a topic is deleted; -1: never."""
LITE_BIND_TOPIC = "lite.bind.topic"
"""The topic whose lite topics a group consumes."""
LITE_MODEL = "lite.sub.model"
"""Whether several members of a group may subscribe to one lite topic."""
LITE_RESET_EXCLUSIVE = "lite.sub.reset.offset.exclusive"
"""Whether a group begins again in a lite topic that another member takes over."""
LITE_RESET_UNSUBSCRIBE = "lite.sub.reset.offset.unsubscribe"
"""Whether a group begins again in a lite topic after a member has left it."""
LITE_WILDCARD = "lite.sub.wildcard"
"""Whether a group consumes all lite topics of its topic."""
LITE_CLIENT_QUOTA = "lite.sub.client.quota"
"""Most lite topics of one member of a group."""
FIFO = "FIFO"
"""The message type of a topic whose queues are consumed in order."""
MIXED = "MIXED"
"""The message type that RocketMQ refuses unless enableMixedMessageType is set."""
PRIORITY = "PRIORITY"
"""The message type of a topic whose pops take the messages of the highest priority first."""
PRIORITY_FACTOR = "priority.factor"
"""How many of 100 pops of a group do so."""
VALUE_MAX = 255
"""Characters of an attribute that may have any value."""

_LONG_MAX = 2**63 - 1
_BITS = 64


class _Values(Protocol):
    def fault(self, value: str) -> str | None:
        """Why an attribute cannot have this value, or None."""


class _OneOf(NamedTuple):
    """RocketMQ: EnumAttribute; `values` are written as in its texts."""

    values: str

    def fault(self, value: str) -> str | None:
        known = value in self.values.split(", ")
        return None if known else f"value is not in set: [{self.values}]"


class _Number(NamedTuple):
    """RocketMQ: LongRangeAttribute."""

    least: int
    most: int = _LONG_MAX

    def fault(self, value: str) -> str | None:
        number = java_integer(value, _BITS)
        if number is None:
            return f'For input string: "{value[:VALUE_MAX]}"'
        if not self.least <= number <= self.most:
            return f"value is not in range({self.least}, {self.most})"
        return None


class _Flag(NamedTuple):
    """RocketMQ: BooleanAttribute."""

    def fault(self, value: str) -> str | None:
        known = value.lower() in ("true", "false")
        return None if known else "boolean attribute format is wrong."


class _Text(NamedTuple):
    """RocketMQ: StringAttribute."""

    def fault(self, value: str) -> str | None:
        long = len(value) > VALUE_MAX
        return f"value has {len(value)} characters instead of {VALUE_MAX}" if long else None


class Attribute(NamedTuple):
    """One key; only the creation of a topic or group sets an unchangeable one (RocketMQ 5:
    Attribute)."""

    values: _Values
    changeable: bool = True


_MESSAGE_TYPES = "UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, LITE, NORMAL"

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    MESSAGE_TYPE: Attribute(_OneOf(_MESSAGE_TYPES)),
    "queue.type": Attribute(_OneOf("SimpleCQ, BatchCQ"), changeable=False),
    "cleanup.policy": Attribute(_OneOf("DELETE, COMPACTION"), changeable=False),
    "reserve.time": Attribute(_Number(-1)),
    LITE_EXPIRATION: Attribute(_Number(-1, 43_200)),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    PRIORITY_FACTOR: Attribute(_Number(0, 100)),
    LITE_BIND_TOPIC: Attribute(_Text()),
    LITE_MODEL: Attribute(_OneOf("Shared, Exclusive")),
    LITE_RESET_EXCLUSIVE: Attribute(_Flag()),
    LITE_RESET_UNSUBSCRIBE: Attribute(_Flag()),
    LITE_CLIENT_QUOTA: Attribute(_Number(-1)),
    "lite.sub.client.max.event.cnt": Attribute(_Number(10)),
    LITE_WILDCARD: Attribute(_Flag()),
}


def parse_changes(text: str) -> dict[str, str]:
    """Read ``+key=value,-key``: the changes, each key with its sign. Raises RefusedError."""
    changes: dict[str, str] = {}
    for part in text.rstrip(",").split(",") if text else ():
        key, equals, value = part.partition("=")
        value = value.partition("=")[0]
        if equals and ("+" not in key or not value):
            raise _refused(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise _refused(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _refused(f"key duplication: {key}")
        changes[key] = value
    return changes


def changed(
    known: Mapping[str, str] | None, changes: Mapping[str, str], allowed: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after a request; `known` are those before it, None for a new topic or group.

    No changes leave them as they are. Raises RefusedError.
    """
    result = dict(known or {})
    seen: set[str] = set()
    for signed in changes:
        key = signed[1:]
        if not key or "+" in key or "-" in key:
            raise _refused("kv string format wrong.")
        if key in seen:
            raise _refused(f"alter duplication key. key: {key}")
        seen.add(key)
        if known is None and signed[0] != "+":
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        if signed[0] == "-" and key not in result:
            raise _refused(f"attempt to delete a nonexistent key: {key}")
        if signed[0] not in "+-":
            raise _refused(f"wrong format key: {key}")
    for signed, value in changes.items():
        key = signed[1:]
        attribute = allowed.get(key)
        if attribute is None:
            raise _refused(f"unsupported key: {key}")
        if known is not None and not attribute.changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
        if signed[0] == "-":
            del result[key]
        elif (fault := attribute.values.fault(value)) is not None:
            raise _refused(fault)
        else:
            result[key] = value
    return dict(sorted(result.items()))


def _refused(text: str) -> RefusedError:
    return RefusedError(ResponseCode.SYSTEM_ERROR, text)
