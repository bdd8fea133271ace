"""CRC-32 and Java's string hash, for compiled callers; `records.record` shows them to Python."""

from typing_extensions import Buffer

def crc32_by_tables(data: Buffer, crc: int = 0) -> int:
    """zlib.crc32 by the way that needs no special CPU (what crc32 falls back to)."""

def crc32_by_folding(data: Buffer, crc: int = 0) -> int:
    """zlib.crc32 by carry-less multiplication of 16 bytes; by tables where the CPU has none."""
