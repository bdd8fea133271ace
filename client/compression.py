"""Bodies that producers compressed (RocketMQ: UtilAll.uncompress, MessageSysFlag)."""

import zlib

from congreve.client.errors import ClientError

COMPRESSOR_MASK = 0x700
COMPRESSOR_ZLIB = 0x300
"""How a compressed body was compressed; zero there means zlib too."""

BODY_MAX = 1 << 28
"""Bytes of a decompressed body: one that grows beyond it is no message but an attack."""


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was before its producer compressed it. Raises ClientError."""
    compressor = sys_flag & COMPRESSOR_MASK
    if compressor not in (0, COMPRESSOR_ZLIB):
        raise ClientError(f"compressor {compressor:#x} is not supported, only zlib")
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, BODY_MAX)
    except zlib.error as error:
        raise ClientError(f"the body cannot be decompressed: {error}") from error
    if not stream.eof:
        raise ClientError(f"the body ends too early, or holds more than {BODY_MAX} bytes")
    return plain
