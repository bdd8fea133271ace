def send_response_constants(fields: dict[str, str]) -> tuple[bytes, bytes]: ...
def send_response(
    serialize_type: int,
    opaque: int,
    message_id: bytes,
    queue_id: int,
    queue_offset: int,
    more: bytes,
    recall_handle: bytes = b"",
) -> bytes: ...
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
) -> bytes: ...
