"""How long received messages may be invisible (RocketMQ 5: GrpcValidator)."""

from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.errors import CallRefusedError
from congreve.remoting.wire.fast_headers import INVISIBLE_MAX_MS

INVISIBLE_MIN_MS = 10_000


def check_invisible(ms: int, least: int) -> None:
    """Raises CallRefusedError for an invisible time that no message can have."""
    if ms < least:
        why = f"the invisibleTime is too small. min is {least}"
        raise CallRefusedError(Code.ILLEGAL_INVISIBLE_TIME, why)
    if ms > INVISIBLE_MAX_MS:
        why = f"the invisibleTime is too large. max is {INVISIBLE_MAX_MS}"
        raise CallRefusedError(Code.ILLEGAL_INVISIBLE_TIME, why)
