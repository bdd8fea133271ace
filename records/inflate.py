"""Bodies that zlib compressed, as every client of 4.9 sends and reads them."""

import zlib

INFLATED_MAX = 64 * 1024 * 1024
"""Bytes of a decompressed body, by any algorithm: one that grows beyond it is no message."""


def inflate(body: bytes, limit: int = INFLATED_MAX) -> bytes | None:
    """The decompressed body; None where it is damaged, truncated or larger than `limit` bytes."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, limit)
    except zlib.error:
        return None
    return plain if stream.eof else None
