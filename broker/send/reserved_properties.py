"""Properties that only brokers set, in sends of accounts.

RocketMQ stores what a sender writes there. A producer could choose with RETRY_TOPIC where an
administrator's resend of the dead letter goes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from congreve.records.batches.batch_body import is_ordinary
from congreve.records.errors import RecordError
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.properties import (
    RETRY_TOPIC,
    RETRY_TOPIC_UNCHECKED,
    SET_BY_BROKERS,
    SET_IN_COPIES,
)
from congreve.records.message.property_codec import decode_properties, encode_properties
from congreve.records.message.topics import RETRY_PREFIX
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

MayWrite = Callable[[RemotingCommand, Connection, str], bool]
"""Whether the sender of a request may write to a topic."""

_HEAD = struct.Struct(">iiiii")  # size, magic, CRC, flag, length of the body
_LENGTH = struct.Struct(">h")
_FIXED = _HEAD.size + _LENGTH.size


class ReservedProperties:
    """Removes properties that only brokers set from the sends of accounts.

    A copy that a consumer sends to a retry topic keeps SET_IN_COPIES, and is marked if its sender
    may not write to the topic that it names. Without accounts (`may_write` is None) all properties
    are stored, as RocketMQ does.
    """

    def __init__(self, may_write: MayWrite | None) -> None:
        self._may_write = may_write

    def of_message(
        self,
        topic: str,
        given: dict[str, str],
        request: RemotingCommand,
        connection: Connection,
    ) -> dict[str, str]:
        """The properties to store of those that the sender of a message to `topic` gave."""
        if self._may_write is None or given.keys().isdisjoint(SET_BY_BROKERS):
            return given
        is_copy = topic.startswith(RETRY_PREFIX)
        kept = {
            name: value
            for name, value in given.items()
            if name not in SET_BY_BROKERS or (is_copy and name in SET_IN_COPIES)
        }
        named = kept.get(RETRY_TOPIC)
        if named is not None and not self._may_write(request, connection, named):
            kept[RETRY_TOPIC_UNCHECKED] = "true"
        return kept

    def of_batch(self, topic: str, request: RemotingCommand, connection: Connection) -> bytes:
        """The body of a batch, with the properties to store; a malformed rest stays as it is.

        Raises RecordError for properties that cannot be read.
        """
        body = bytes(request.body)
        if self._may_write is None or is_ordinary(body, reserves=True):
            return body
        parts: list[bytes] = []
        at = 0
        while len(body) - at >= _FIXED:
            size, magic, crc, flag, length = _HEAD.unpack_from(body, at)
            place = at + _HEAD.size + length
            if length < 0 or not _FIXED + length <= size <= len(body) - at:
                break
            text = body[place + _LENGTH.size : at + size]
            given = decode_properties(text)
            kept = self.of_message(topic, given, request, connection)
            if kept is not given:
                text = encode_properties(kept)
            if len(text) > PROPERTIES_MAX:
                raise RecordError(f"{len(text)} bytes of properties: at most {PROPERTIES_MAX}")
            size_now = _FIXED + length + len(text)
            parts.append(_HEAD.pack(size_now, magic, crc, flag, length))
            parts.append(body[at + _HEAD.size : place] + _LENGTH.pack(len(text)) + text)
            at += size
        return b"".join(parts) + body[at:]
