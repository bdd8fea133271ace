def offset_message_id(host: tuple[str, int], physical_offset: int) -> str:
    """32 (IPv4) or 56 (IPv6) upper-case hex digits: address, port i32, physical offset i64."""

def parse_offset_message_id(message_id: str) -> tuple[tuple[str, int], int]:
    """Host and physical offset; RecordError for anything else than such an id."""
