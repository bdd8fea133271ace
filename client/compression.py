"""Compressed bodies (RocketMQ: CompressionType, CompressorFactory)."""

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any

from congreve.client.errors import ClientError
from congreve.records.flags import SysFlag

COMPRESSOR_SHIFT = 8
COMPRESSOR_MASK = 0x7 << COMPRESSOR_SHIFT
"""Bits of a sysFlag that say how a body was compressed; zero in them means zlib."""
LEVEL = 5
BODY_MAX = 1 << 28
"""Bytes of a decompressed body: one that grows beyond it is no message but an attack."""


class CompressionType(IntEnum):
    """How; LZ4 and ZSTD need the extras ``congreve[lz4]`` and ``congreve[zstd]``."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """What a compressed message has in its sysFlag."""
        return int(SysFlag.COMPRESSED) | self << COMPRESSOR_SHIFT


_MODULES = {CompressionType.LZ4: "lz4.frame", CompressionType.ZSTD: "zstandard"}


def check_available(kind: CompressionType) -> None:
    """Raises ClientError where the library is not installed."""
    if kind is not CompressionType.ZLIB:
        _library(kind)


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB) -> bytes:
    """The body, shorter perhaps. Raises ClientError where the library is not installed."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, LEVEL)
    library = _library(kind)
    compressed: bytes
    if kind is CompressionType.LZ4:
        compressed = library.compress(body)
    else:
        compressed = library.ZstdCompressor(level=LEVEL).compress(body)
    return compressed


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as it was, if `sys_flag` says that it is compressed. Raises ClientError."""
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    number = (sys_flag & COMPRESSOR_MASK) >> COMPRESSOR_SHIFT
    try:
        kind = CompressionType(number or CompressionType.ZLIB)
    except ValueError as error:
        raise ClientError(f"compressor {number} is not known: 1 LZ4, 2 ZSTD, 3 ZLIB") from error
    try:
        plain = _READERS[kind](body)
    except (zlib.error, RuntimeError, EOFError, ValueError) as error:
        raise ClientError(f"the body cannot be decompressed: {error}") from error
    if plain is None:
        raise ClientError(f"the body ends too early, or holds more than {BODY_MAX} bytes")
    return plain


def _from_zlib(body: bytes) -> bytes | None:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, BODY_MAX)
    return plain if stream.eof else None


def _from_lz4(body: bytes) -> bytes | None:
    stream = _library(CompressionType.LZ4).LZ4FrameDecompressor()
    plain: bytes = stream.decompress(body, BODY_MAX)
    return plain if stream.eof else None


def _from_zstd(body: bytes) -> bytes | None:
    library = _library(CompressionType.ZSTD)
    stream = library.ZstdDecompressor().decompressobj()
    try:
        plain: bytes = stream.decompress(body)
    except library.ZstdError as error:
        raise ValueError(error) from error
    return plain if stream.eof and len(plain) <= BODY_MAX else None


_READERS: dict[CompressionType, Callable[[bytes], bytes | None]] = {
    CompressionType.LZ4: _from_lz4,
    CompressionType.ZSTD: _from_zstd,
    CompressionType.ZLIB: _from_zlib,
}


def _library(kind: CompressionType) -> Any:
    try:
        return import_module(_MODULES[kind])
    except ImportError as error:
        extra = kind.name.lower()
        raise ClientError(
            f"{kind.name} needs a library: install congreve[{extra}], or use ZLIB"
        ) from error
