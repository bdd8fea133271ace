"""Decompression of zlib bodies, which every 4.9 client sends and reads."""

import zlib

INFLATED_MAX = 64 * 1024 * 1024
"""Most bytes of a decompressed body, with any algorithm; a larger one is invalid."""


def inflate(body: bytes, limit: int = INFLATED_MAX) -> bytes | None:
    """The decompressed body, or None if it is damaged, truncated or larger than `limit` bytes."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, limit)
    except zlib.error:
        return None
    return plain if stream.eof else None
