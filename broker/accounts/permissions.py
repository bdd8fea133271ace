"""What a request needs: the topics and groups that it names, with permissions.

(RocketMQ: PlainAccessValidator, Permission.)
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from congreve.broker.accounts.accounts import Kind, Need, Perm, topic_need
from congreve.broker.errors import RefusedError, check_body_size
from congreve.broker.group.assignment_processor import ASSIGNMENT_BODY_MAX
from congreve.broker.group.client_processor import HEARTBEAT_MAX
from congreve.broker.group.consumer_processor import LOCK_BODY_MAX
from congreve.records.message.flags import SysFlag
from congreve.records.message.half_messages import says_transaction
from congreve.records.message.message import Record
from congreve.records.message.properties import (
    PRODUCER_GROUP,
    REAL_TOPIC,
    TRANSACTION_PREPARED,
)
from congreve.records.message.property_codec import decode_properties
from congreve.records.message.topics import NOT_FOR_CONSUMERS, popped_topic
from congreve.remoting.messages.bodies import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
)
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.pop_bodies import (
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
)

FindRecord = Callable[[int], Record | None]
"""The record at a physical offset, None without one."""

EITHER = Perm.PUB | Perm.SUB
OFFSET_DIGITS_MAX = 18
BATCH_ACK_MAX = 4 << 20
"""Bytes of a batch of acknowledgements."""


class Source(Protocol):
    """Reads from a request what it needs; its text says that in the table of requests."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterable[Need]:
        """What the request needs. Raises CongreveError for a request that is malformed."""


def _no_record(physical_offset: int) -> Record | None:
    return None


class Rule(msgspec.Struct, frozen=True):
    """What one request code needs beside a valid signature.

    Requests of administrators are audited, unless they are `routine`, and without their bodies if
    these are `secret`. An `open` one needs nothing.
    Only administrators read the topics in `private`; `find` reads the messages to which requests
    refer.
    """

    sources: tuple[Source, ...] = ()
    admin: bool = False
    routine: bool = False
    secret: bool = False
    open: bool = False
    private: frozenset[str] = frozenset()
    find: FindRecord = _no_record

    def needs(self, request: RemotingCommand) -> Iterator[Need]:
        """All needs of a request. Raises CongreveError for one that is malformed."""
        for source in self.sources:
            for need in source.needs(request, self.find):
                reads = need.kind is Kind.TOPIC and need.perm & Perm.SUB
                yield need._replace(admin=bool(reads) and need.name in self.private)

    def __str__(self) -> str:
        if self.admin:
            return "administrator"
        return ", ".join(map(str, self.sources)) or ("nothing" if self.open else "an account")


# --- sources


class OfTopic(NamedTuple):
    """The topic that a field names."""

    field: str
    perm: Perm
    optional: bool = False

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        name = request.ext_fields.get(self.field)
        if name is not None or not self.optional:
            yield topic_need(name or "", self.perm)

    def __str__(self) -> str:
        return f"{_text(self.perm)} of `{self.field}`"


class OfGroup(NamedTuple):
    """The group that a field names."""

    field: str
    perm: Perm = Perm.SUB
    optional: bool = False

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        name = request.ext_fields.get(self.field)
        if name is not None or not self.optional:
            yield Need(Kind.GROUP, name or "", self.perm)

    def __str__(self) -> str:
        return f"{_text(self.perm)} of `{self.field}`"


class OfHalfMessage(NamedTuple):
    """The producer groups of a half message: of its header, and the one that will have to end it,
    which its properties name."""

    flags: str
    group: str
    properties: str

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        flag = request.ext_fields.get(self.flags, "0")
        # The header takes other texts for numbers, too, such as "4.0" and "-12".
        if not _is_number(flag) or int(flag) & SysFlag.TRANSACTION_ROLLBACK:  # both of its bits
            yield from OfGroup(self.group, Perm.PUB).needs(request, find)
        text = request.ext_fields.get(self.properties, "")
        if TRANSACTION_PREPARED in text:
            stored = decode_properties(text.encode())
            if says_transaction(stored):
                yield Need(Kind.GROUP, stored.get(PRODUCER_GROUP, ""), Perm.PUB)

    def __str__(self) -> str:
        return "PUB of a half message's group"


class OfMessage(NamedTuple):
    """The topic of the message at the physical offset in a field."""

    field: str
    perm: Perm

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs. Raises RefusedError where there is no message."""
        text = request.ext_fields.get(self.field, "")
        record = find(int(text)) if _is_number(text) else None
        if record is None:
            # The same answer whether there is no message or one of another account.
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no message at {self.field} {text[:20]!r}"
            )
        topic = record.topic
        if topic in NOT_FOR_CONSUMERS:  # the broker has set the property
            topic = record.properties.get(REAL_TOPIC, topic)
        yield topic_need(topic, self.perm)

    def __str__(self) -> str:
        return f"{_text(self.perm)} of the message's topic"


class OfHeartbeat(NamedTuple):
    """The groups of consumers in a heartbeat, and their topics."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        check_body_size(request, HEARTBEAT_MAX)
        for consumer in HeartbeatData.decode(request.body).consumer_data_set:
            yield Need(Kind.GROUP, consumer.group_name, Perm.SUB)
            for subscription in consumer.subscription_data_set:
                yield topic_need(subscription.topic, Perm.SUB)

    def __str__(self) -> str:
        return "SUB of its groups and topics"


class OfLocks(NamedTuple):
    """The group whose locks a request names, and their topics."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        check_body_size(request, LOCK_BODY_MAX)
        body = LockBatchRequestBody.decode(request.body)
        yield Need(Kind.GROUP, body.consumer_group, Perm.SUB)
        for topic in {queue.topic for queue in body.mq_set}:
            yield topic_need(topic, Perm.SUB)

    def __str__(self) -> str:
        return "SUB of its group and topics"


class OfPopped(NamedTuple):
    """The topic of a popped message, for one that came again the one it was sent to; its group."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        fields = request.ext_fields
        yield from popped_needs(fields.get("consumerGroup", ""), fields.get("topic", ""))

    def __str__(self) -> str:
        return "SUB of its group and topic"


class OfBatchAck(NamedTuple):
    """The groups and topics of a batch of acknowledgements."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        check_body_size(request, BATCH_ACK_MAX)
        acks = BatchAckMessageRequestBody.decode(request.body).acks
        for group, topic in {(ack.consumer_group, ack.topic) for ack in acks}:
            yield from popped_needs(group, topic)

    def __str__(self) -> str:
        return "SUB of its groups and topics"


def popped_needs(group: str, topic: str) -> Iterator[Need]:
    """What the acknowledgement of a message of `topic` needs."""
    yield Need(Kind.GROUP, group, Perm.SUB)
    yield topic_need(popped_topic(group, topic), Perm.SUB)


class OfAssignment(NamedTuple):
    """The group and the topic whose queues a member asks for."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        check_body_size(request, ASSIGNMENT_BODY_MAX)
        body = QueryAssignmentRequestBody.decode(request.body)
        yield Need(Kind.GROUP, body.consumer_group, Perm.SUB)
        yield topic_need(body.topic, Perm.SUB)

    def __str__(self) -> str:
        return "SUB of its group and topic"


class OfClientConfig(NamedTuple):
    """The group and the topic of a subscription to be checked."""

    def needs(self, request: RemotingCommand, find: FindRecord) -> Iterator[Need]:
        """What the request needs."""
        check_body_size(request, HEARTBEAT_MAX)
        body = CheckClientRequestBody.decode(request.body)
        yield Need(Kind.GROUP, body.group, Perm.SUB)
        if body.subscription_data is not None:
            yield topic_need(body.subscription_data.topic, Perm.SUB)

    def __str__(self) -> str:
        return "SUB of its group and topic"


def _text(perm: Perm) -> str:
    return "PUB or SUB" if perm is EITHER else str(perm.name)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX
