"""The handle by which a delayed message is taken back (RocketMQ 5: RecallMessageHandle)."""

import base64
import binascii
from typing import NamedTuple

from congreve.records.errors import RecordError

VERSION = "v1"
SEPARATOR = " "


class RecallHandle(NamedTuple):
    """The message with that id (UNIQ_KEY), due at `due_ms` (ms since 1970).

    (RocketMQ 5: RecallMessageHandle.HandleV1.)
    """

    topic: str
    broker_name: str
    due_ms: str
    message_id: str

    def encode(self) -> str:
        """The text that clients keep."""
        return base64.urlsafe_b64encode(SEPARATOR.join((VERSION, *self)).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "RecallHandle":
        """Raises RecordError for a text that is not a handle."""
        try:
            parts = base64.b64decode(text.encode(), b"-_", validate=True).decode().split(SEPARATOR)
        except (binascii.Error, UnicodeError) as error:
            raise RecordError("recall handle is invalid") from error
        if len(parts) < 5 or parts[0] != VERSION:
            raise RecordError("recall handle is invalid")
        return cls(*parts[1:5])
