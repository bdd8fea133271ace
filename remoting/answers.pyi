def send_response_constants(fields: dict[str, str]) -> tuple[bytes, bytes]:
    """Ext fields that every answer to a send has (MSG_REGION, TRACE_ON), as text for a JSON header
    and as bytes for a binary one."""

def send_response(
    serialize_type: int,
    opaque: int,
    message_id: bytes,
    queue_id: int,
    queue_offset: int,
    more: bytes,
) -> bytes:
    """A whole frame (RocketMQ: SendMessageResponseHeader); `more` is that of
    send_response_constants() for this serialize type."""

def pull_response(
    serialize_type: int,
    opaque: int,
    code: int,
    remark: bytes,
    suggest_broker_id: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    body_length: int,
) -> bytes:
    """Frame head and header (RocketMQ: PullMessageResponseHeader) in front of a body of
    `body_length` bytes."""
