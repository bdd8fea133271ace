"""The audit log: one JSON line for each request of an administrator."""

import json
import logging

from congreve.base.clock import Clock
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

TEXT_MAX = 512
"""Characters of a field, and of a body, in a line."""
_NOT_SHOWN = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, "secretKey"))


class AuditLog:
    """Writes sender, address, request and outcome; secrets are left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def note(
        self,
        access_key: str | None,
        request: RemotingCommand,
        connection: Connection,
        answer: RemotingCommand | None,
        *,
        with_body: bool = True,
    ) -> None:
        """Write one line; `access_key` is None for a white address or an unknown sender."""
        line: dict[str, object] = {
            "time": self._clock.now(),
            "accessKey": access_key,
            "address": str(connection),
            "request": RequestCode(request.code).name,
            "fields": {
                name[:TEXT_MAX]: value[:TEXT_MAX]
                for name, value in request.ext_fields.items()
                if name not in _NOT_SHOWN
            },
        }
        if request.body and with_body:
            line["body"] = bytes(request.body[:TEXT_MAX]).decode("utf-8", "replace")
        if answer is not None:
            line["code"] = answer.code
            line["remark"] = answer.remark and answer.remark[:TEXT_MAX]
        logger.info("%s", json.dumps(line))
