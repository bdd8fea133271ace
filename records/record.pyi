"""The record codec: bytes of the commit log, or of a pull's body, to `Record` and back."""

from collections.abc import Mapping

from typing_extensions import Buffer

from congreve.records.host import offset_message_id, parse_offset_message_id
from congreve.records.message import Record

__all__ = [
    "crc32",
    "decode_properties",
    "decode_record",
    "decode_records",
    "encode_properties",
    "encode_record",
    "index_hash",
    "offset_message_id",
    "parse_offset_message_id",
    "string_hash",
]

def encode_record(record: Record) -> bytes:
    """One record as the commit log stores it (RocketMQ: MessageExtEncoder).

    Size, CRC and host bits are computed, `record.size` and `record.body_crc` are not looked at.
    RecordError where a length or a number is over the format's limit.
    """

def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    verify_crc: bool = True,
    physical_offset: int | None = None,
) -> Record:
    """The record at byte `position` (RocketMQ: MessageDecoder.decode).

    Where `physical_offset` is given, the record must name it as its own. RecordError for anything
    that is no whole and sound record.
    """

def decode_records(buffer: Buffer) -> list[Record]:
    """Records one behind the other, CRCs checked: the body of a pull; RecordError."""

def encode_properties(properties: Mapping[str, str]) -> bytes:
    """UTF-8 of name 0x01 value 0x02 ...; RecordError where a separator is part of a property."""

def decode_properties(buffer: Buffer) -> dict[str, str]:
    """The reverse; incomplete pieces are dropped, the last of equal names wins, as in RocketMQ."""

def crc32(buffer: Buffer, crc: int = 0) -> int:
    """zlib.crc32, several times as quick; `crc` continues an earlier one."""

def string_hash(text: str | bytes) -> int:
    """Java's String.hashCode, signed 32 bits; bytes are taken as UTF-8."""

def index_hash(topic: str | bytes, key: str | bytes) -> int:
    """Key hash of an index entry (RocketMQ: IndexFile.indexKeyHashMethod), never negative."""
