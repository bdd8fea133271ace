"""A stored message as pages show it."""

import msgspec

from congreve.client.admin.lookup import Found
from congreve.client.compression import decompress
from congreve.client.errors import ClientError
from congreve.console.web.formats import body_hex, body_json, body_text, preview
from congreve.records.message.properties import KEYS, TAGS, UNIQ_KEY
from congreve.records.record import offset_message_id

COMPRESSED_MAX = 1 << 20
"""Bytes of a compressed body that a list decompresses; larger ones only a message's own page."""


class ShownMessage(msgspec.Struct, frozen=True):
    """A row of a list, or a page of its own; `body` is None where it cannot be read, and `fault`
    says why."""

    broker_name: str
    topic: str
    queue_id: int
    offset: int
    message_id: str
    offset_id: str
    tags: str
    keys: str
    stored_ms: int
    born_ms: int
    born_host: str
    store_host: str
    reconsume_times: int
    properties: dict[str, str]
    stored_size: int
    body: bytes | None
    fault: str | None

    @property
    def preview(self) -> str:
        """The beginning of the body on one line."""
        return self.fault or "" if self.body is None else preview(self.body)

    @property
    def text(self) -> str | None:
        """The body as text, None if it is none."""
        return None if self.body is None else body_text(self.body)

    @property
    def json(self) -> str | None:
        """The body as indented JSON, None if it is none."""
        return None if self.body is None else body_json(self.body)

    @property
    def hex(self) -> str:
        """The beginning of the body as hex."""
        return body_hex(self.body or b"")


def shown(found: Found, *, all_of_it: bool = False, with_body: bool = True) -> ShownMessage:
    """A message for a list, or with `all_of_it` for its own page."""
    record = found.record
    properties = record.properties
    offset_id = offset_message_id(record.store_host, record.physical_offset)
    body, fault = _body(found, all_of_it) if with_body else (None, hidden(len(record.body)))
    return ShownMessage(
        broker_name=found.broker_name,
        topic=record.topic,
        queue_id=record.queue_id,
        offset=record.queue_offset,
        message_id=properties.get(UNIQ_KEY) or offset_id,
        offset_id=offset_id,
        tags=properties.get(TAGS, ""),
        keys=properties.get(KEYS, ""),
        stored_ms=record.store_timestamp,
        born_ms=record.born_timestamp,
        born_host=_host(record.born_host),
        store_host=_host(record.store_host),
        reconsume_times=record.reconsume_times,
        properties=properties,
        stored_size=record.size,
        body=body,
        fault=fault,
    )


def _body(found: Found, all_of_it: bool) -> tuple[bytes | None, str | None]:
    record = found.record
    try:
        if len(record.body) > COMPRESSED_MAX and not all_of_it:
            return record.body[:COMPRESSED_MAX], None
        return decompress(record.body, record.sys_flag), None
    except ClientError as error:
        return None, str(error)


def hidden(size: int) -> str:
    """The text in place of a body of `size` bytes that the user may not read."""
    return f"not shown: {size:,} bytes"


def body_contains(found: Found, text: str) -> bool:
    """Whether the body has this text."""
    body, _ = _body(found, False)
    return body is not None and text.encode() in body


def _host(host: tuple[str, int]) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
