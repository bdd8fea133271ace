from typing_extensions import Buffer

from congreve.records.host import offset_message_id, parse_offset_message_id
from congreve.records.message.message import Record

__all__ = [
    "crc32",
    "decode_record",
    "decode_records",
    "encode_record",
    "index_hash",
    "offset_message_id",
    "parse_offset_message_id",
    "queue_offsets",
    "string_hash",
]

def encode_record(record: Record) -> bytes: ...
def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    verify_crc: bool = True,
    physical_offset: int | None = None,
) -> Record: ...
def decode_records(buffer: Buffer) -> list[Record]: ...
def queue_offsets(buffer: Buffer) -> list[int]: ...
def crc32(buffer: Buffer, crc: int = 0) -> int: ...
def string_hash(text: str | bytes) -> int: ...
def index_hash(topic: str | bytes, key: str | bytes) -> int: ...
