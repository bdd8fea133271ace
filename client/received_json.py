"""Received messages as JSON has them, for web frameworks."""

from typing import Any

from congreve.base.text_or_base64 import text_or_base64
from congreve.remoting.messages.body import MessageQueue

FIELDS: dict[str, Any] = {
    "topic": str,
    "message_id": str,
    "queue": MessageQueue,
    "queue_offset": int,
    "tags": str | None,
    "keys": str | None,
    "properties": dict[str, str],
    "born_timestamp": int,
    "store_timestamp": int,
    "reconsume_times": int,
}
"""The fields beside the body, and their types."""


def received_fields(message: Any) -> dict[str, Any]:
    """Names and values of a ReceivedMessage; of a body that is no text `body_base64` has the bytes.

    Raises ClientError when the body cannot be decompressed.
    """
    fields = {name: getattr(message, name) for name in FIELDS}
    return fields | text_or_base64("body", message.body)


def received_schema(cls: type, handler: Any) -> Any:
    """The schema that pydantic has of ReceivedMessage, which is written but not read."""
    from pydantic_core import core_schema

    fields = {
        name: core_schema.typed_dict_field(
            handler.generate_schema(kind), required=name != "body_base64"
        )
        for name, kind in (FIELDS | {"body": str | None, "body_base64": str}).items()
    }
    return core_schema.is_instance_schema(
        cls,
        serialization=core_schema.plain_serializer_function_ser_schema(
            received_fields, return_schema=core_schema.typed_dict_schema(fields)
        ),
    )
