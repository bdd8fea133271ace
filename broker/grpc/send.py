"""SendMessage: all rules (RocketMQ 5: SendMessageActivity, GrpcValidator).

`broker/grpc/codecs/sends.pyx` serves ordinary messages; all others come here and become the same
request.
"""

import re
from typing import Any

from congreve.base.clock import Clock
from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import GrpcCall
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.protocol.names import checked_lite_topic, checked_topic
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.records.errors import RecordError
from congreve.records.message import properties
from congreve.records.message.flags import SysFlag
from congreve.records.message.property_codec import encode_properties
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.messages.codes import LanguageCode, RequestCode, SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import SendMessageRequestHeaderV2

USER_PROPERTIES_MAX = 128
PROPERTIES_MAX = 16 * 1024
"""Bytes of user properties, tag and keys."""
GROUP_MAX = 63
"""Bytes of a message group."""
DELAY_MAX_MS = 86_400_000
RECOVERY_MAX_S = 3_600
MESSAGE_ID_MAX = 128
"""Bytes of a message's id; those of RocketMQ's clients have 34."""
NEW_TOPIC_QUEUES = 8

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_GZIP = 2
_TRANSACTION = 4
_ANY_QUEUE = -1


class SendRules:
    """Checks messages of gRPC clients (RocketMQ 5: GrpcValidator, SendMessageActivity)."""

    def __init__(self, topics: TopicConfigManager, clock: Clock, *, max_body_size: int) -> None:
        self._topics = topics
        self._clock = clock
        self._max_body_size = max_body_size

    def command(self, message: Any, call: GrpcCall) -> RemotingCommand:
        """The request of remoting that stores a message. Raises CallRefusedError."""
        topic = checked_topic(message.topic)
        self._check_body(message.body)
        self._check(message)
        system = message.system_properties
        stored = self._properties(topic, message, call)
        sys_flag = SysFlag.COMPRESSED if system.body_encoding == _GZIP else 0
        if system.message_type == _TRANSACTION:
            sys_flag |= SysFlag.TRANSACTION_PREPARED
        try:
            text = encode_properties(stored).decode()
        except RecordError as error:
            raise CallRefusedError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from error
        header = SendMessageRequestHeaderV2(
            producer_group=topic,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=NEW_TOPIC_QUEUES,
            queue_id=self._queue_id(topic, system),
            sys_flag=int(sys_flag),
            born_timestamp=int(stored[properties.BORN_TIMESTAMP]),
            flag=0,
            properties=text,
            reconsume_times=0,
        )
        return RemotingCommand(
            code=RequestCode.SEND_MESSAGE_V2,
            language=LanguageCode.OTHER,
            ext_fields=header.fields(),
            body=message.body,
            serialize_type=SerializeType.ROCKETMQ,
        )

    # --- checks, in the order of RocketMQ's proxy

    def _check_body(self, body: bytes) -> None:
        if not body:
            raise CallRefusedError(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
        if len(body) > self._max_body_size:
            raise CallRefusedError(
                Code.MESSAGE_BODY_TOO_LARGE,
                f"message body cannot exceed the max {self._max_body_size}",
            )

    def _check(self, message: Any) -> None:
        user, system = message.user_properties, message.system_properties
        if len(user) > USER_PROPERTIES_MAX:
            raise CallRefusedError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"{len(user)} user properties: {USER_PROPERTIES_MAX} at most",
            )
        for name, value in user.items():
            if name in properties.RESERVED_BY_GRPC:
                raise CallRefusedError(
                    Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}"
                )
            if _CONTROL.search(name) or _CONTROL.search(value):
                raise CallRefusedError(
                    Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                    f"the property {name!r} has a control character",
                )
        if system.HasField("tag"):
            _check_text(system.tag, Code.ILLEGAL_MESSAGE_TAG, "tag", forbidden="|")
        for key in filter(None, system.keys):
            _check_text(key, Code.ILLEGAL_MESSAGE_KEY, "key")
        texts = (*user.keys(), *user.values(), system.tag, *system.keys)
        size = sum(len(text.encode()) for text in texts)
        if size > PROPERTIES_MAX:
            raise CallRefusedError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"properties of {size} bytes: {PROPERTIES_MAX} at most",
            )
        self._check_id(system.message_id)
        if system.orphaned_transaction_recovery_duration.seconds > RECOVERY_MAX_S:
            raise CallRefusedError(
                Code.BAD_REQUEST, f"the recovery of a transaction starts within {RECOVERY_MAX_S} s"
            )
        due_in = system.delivery_timestamp.ToMilliseconds() - self._clock.now()
        if system.HasField("delivery_timestamp") and due_in > DELAY_MAX_MS:
            raise CallRefusedError(
                Code.ILLEGAL_DELIVERY_TIME, f"delivery in {due_in} ms: {DELAY_MAX_MS} at most"
            )
        if system.HasField("message_group"):
            self._check_group(system.message_group)
        if system.HasField("lite_topic"):
            checked_lite_topic(system.lite_topic)

    def _check_id(self, message_id: str) -> None:
        if not message_id.strip():
            raise CallRefusedError(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
        if len(message_id.encode()) > MESSAGE_ID_MAX or _CONTROL.search(message_id):
            raise CallRefusedError(
                Code.ILLEGAL_MESSAGE_ID,
                f"the message id has control characters, or more than {MESSAGE_ID_MAX} bytes",
            )

    def _check_group(self, group: str) -> None:
        _check_text(group, Code.ILLEGAL_MESSAGE_GROUP, "message group")
        if len(group.encode()) > GROUP_MAX:
            raise CallRefusedError(
                Code.ILLEGAL_MESSAGE_GROUP, f"the message group has more than {GROUP_MAX} bytes"
            )

    # --- what is stored

    def _properties(self, topic: str, message: Any, call: GrpcCall) -> dict[str, str]:
        system = message.system_properties
        stored = {properties.UNIQ_KEY: system.message_id}
        if system.tag:
            stored[properties.TAGS] = system.tag
        if any(system.keys):
            stored[properties.KEYS] = properties.KEY_SEPARATOR.join(filter(None, system.keys))
        stored |= {name: value for name, value in message.user_properties.items() if name and value}
        born = self._clock.now()
        if system.HasField("born_timestamp"):
            born = max(system.born_timestamp.ToMilliseconds(), 0)
        stored[properties.BORN_TIMESTAMP] = str(born)
        stored[properties.PRODUCER_GROUP] = topic
        if system.born_host and not _CONTROL.search(system.born_host):
            stored[properties.BORN_HOST] = system.born_host
        if system.trace_context and not _CONTROL.search(system.trace_context):
            stored[properties.TRACE_CONTEXT] = system.trace_context
        if system.message_type == _TRANSACTION:
            stored[properties.TRANSACTION_PREPARED] = "true"
            recovery_s = system.orphaned_transaction_recovery_duration.seconds
            if recovery_s > 0:
                stored[properties.CHECK_IMMUNITY_TIME] = str(recovery_s)
        if system.HasField("delivery_timestamp"):
            due = system.delivery_timestamp.ToMilliseconds()
            stored[properties.TIMER_DELIVER_MS] = str(max(due, 0))
        if system.HasField("message_group"):
            stored[properties.SHARDING_KEY] = system.message_group
        if system.HasField("priority"):
            stored[properties.PRIORITY] = str(system.priority)
        if system.HasField("lite_topic"):
            stored[properties.LITE_TOPIC] = system.lite_topic
        return stored

    def _queue_id(self, topic: str, system: Any) -> int:
        """The queue of an ordered message; the broker chooses those of others."""
        known = self._topics.get(topic)
        if known is None or known.write_queue_nums < 1:
            return _ANY_QUEUE
        if system.HasField("message_group"):
            return bucket_of(java_hash(system.message_group), known.write_queue_nums)
        return _ANY_QUEUE


def _check_text(text: str, code: Code, what: str, forbidden: str = "") -> None:
    if text and not text.strip():
        raise CallRefusedError(code, f"the {what} is blank")
    if _CONTROL.search(text) or (forbidden and forbidden in text):
        raise CallRefusedError(code, f"the {what} {text!r} has a character that is not allowed")


def java_hash(text: str) -> int:
    """Java's String.hashCode, from -2^31 to 2^31 - 1."""
    found = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        found = (found * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def bucket_of(hashed: int, buckets: int) -> int:
    """The bucket of a number, by jump consistent hashing (Guava: Hashing.consistentHash)."""
    state, candidate = hashed & (1 << 64) - 1, 0
    while True:
        state = (2862933555777941757 * state + 1) & (1 << 64) - 1
        draw = ((state >> 33) + 1) / (1 << 31)
        following = int((candidate + 1) / draw)
        if following >= buckets:
            return candidate
        candidate = following
