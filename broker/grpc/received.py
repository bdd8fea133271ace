"""Stored messages as gRPC clients receive them (RocketMQ 5: GrpcConverter)."""

import hashlib
from collections.abc import Mapping
from typing import Any

from congreve.broker.grpc.codecs.messages import TIME_FIRST_MS, TIME_LAST_MS
from congreve.broker.requests.message_types import MessageType, type_of
from congreve.records.message import properties
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Record

# Numbers of definition.proto.
_MD5 = 2
_IDENTITY, _GZIP = 1, 2
_TYPES = {
    MessageType.NORMAL: 1,
    MessageType.FIFO: 2,
    MessageType.DELAY: 3,
    MessageType.TRANSACTION: 4,
    MessageType.LITE: 5,
    MessageType.PRIORITY: 6,
}
HIDDEN = properties.RESERVED_BY_GRPC | {
    *(properties.SHARDING_KEY, properties.TRACE_CONTEXT, properties.CHECK_IMMUNITY_TIME),
    *(properties.TRANSACTION_CHECK_TIMES, "__transactionId__"),
}
"""Properties that clients do not see as the user's."""


class Received:
    """Makes messages for clients (RocketMQ 5: GrpcConverter.buildMessage)."""

    def __init__(self, protos: Any) -> None:
        self._protos = protos

    def message(self, record: Record, handle: str, attempt: int) -> Any:
        """A Message with its receipt handle; `attempt` counts deliveries from 1."""
        stored = record.properties
        message = self._protos.Message(body=record.body)
        message.topic.name = record.topic
        for name, value in stored.items():
            if name not in HIDDEN:
                message.user_properties[name] = value
        system = message.system_properties
        system.message_id = stored.get(properties.UNIQ_KEY, "")
        system.body_digest.type = _MD5
        system.body_digest.checksum = (
            hashlib.md5(record.body, usedforsecurity=False).hexdigest().upper()
        )
        compressed = record.sys_flag & SysFlag.COMPRESSED
        system.body_encoding = _GZIP if compressed else _IDENTITY
        kind = type_of(stored)
        if properties.TIMER_OUT_MS in stored and kind is not MessageType.TRANSACTION:
            kind = MessageType.DELAY
        system.message_type = _TYPES[kind]
        _fill_time(system.born_timestamp, record.born_timestamp)
        system.born_host = stored.get(properties.BORN_HOST, record.born_host[0])
        _fill_time(system.store_timestamp, record.store_timestamp)
        host, port = record.store_host
        system.store_host = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
        system.receipt_handle, system.delivery_attempt = handle, attempt
        keys = stored.get(properties.KEYS, "").split(properties.KEY_SEPARATOR)
        system.keys.extend(filter(None, keys))
        _fill_texts(system, stored)
        due = stored.get(properties.TIMER_DELIVER_MS, stored.get(properties.TIMER_OUT_MS, ""))
        if due.isascii() and due.isdigit() and len(due) <= 14:
            _fill_time(system.delivery_timestamp, int(due))
        priority = stored.get(properties.PRIORITY, "")
        if priority.isascii() and priority.isdigit() and len(priority) <= 9:
            system.priority = int(priority)
        if {properties.DLQ_ORIGIN_TOPIC, properties.DLQ_ORIGIN_MESSAGE_ID} <= stored.keys():
            system.dead_letter_queue.topic = stored[properties.DLQ_ORIGIN_TOPIC]
            system.dead_letter_queue.message_id = stored[properties.DLQ_ORIGIN_MESSAGE_ID]
        return message


def _fill_time(timestamp: Any, ms: int) -> None:
    """The time that is nearest to one which a producer may have sent."""
    timestamp.FromMilliseconds(min(max(ms, TIME_FIRST_MS), TIME_LAST_MS))


def _fill_texts(system: Any, stored: Mapping[str, str]) -> None:
    for field, name in (
        ("tag", properties.TAGS),
        ("message_group", properties.SHARDING_KEY),
        ("trace_context", properties.TRACE_CONTEXT),
        ("lite_topic", properties.LITE_TOPIC),
    ):
        if name in stored:
            setattr(system, field, stored[name])
