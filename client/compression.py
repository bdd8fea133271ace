"""Compressed bodies (RocketMQ: CompressionType, CompressorFactory)."""

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any

from congreve.client.errors import ClientError
from congreve.records.inflate import INFLATED_MAX, inflate
from congreve.records.message.flags import SysFlag

COMPRESSOR_SHIFT = 8
COMPRESSOR_MASK = 0x7 << COMPRESSOR_SHIFT
"""The bits of a sysFlag that name the compressor; zero means zlib."""
LEVEL = 5
_SLICE = 256
"""Number of bytes of zstd input that are decompressed at once: they expand to at most 64 blocks of
128 KiB."""
_WINDOW_MAX = 8 * 1024 * 1024
"""The largest zstd window in bytes; the standard asks every reader to support it."""
_STEP = 1024 * 1024


class CompressionType(IntEnum):
    """The compressor of a body. LZ4 and ZSTD need the extras ``congreve[lz4]`` and
    ``congreve[zstd]``. (RocketMQ: CompressionType.)
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The sysFlag bits of a message compressed with this compressor."""
        return int(SysFlag.COMPRESSED) | self << COMPRESSOR_SHIFT


_MODULES = {CompressionType.LZ4: "lz4.frame", CompressionType.ZSTD: "zstandard"}


def check_available(kind: CompressionType) -> None:
    """Raises ClientError when the compressor's library is not installed."""
    if kind is not CompressionType.ZLIB:
        _library(kind)


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB) -> bytes:
    """Compress a body. Raises ClientError when the compressor's library is not installed."""
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
    """Return the plain body; `sys_flag` says whether and how it is compressed.

    Raises ClientError when the compressor is unknown or not installed, the body is damaged, or it
    is larger than INFLATED_MAX bytes.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    number = (sys_flag & COMPRESSOR_MASK) >> COMPRESSOR_SHIFT
    try:
        kind = CompressionType(number or CompressionType.ZLIB)
    except ValueError as error:
        raise ClientError(f"compressor {number} is unknown: 1 is LZ4, 2 ZSTD, 3 ZLIB") from error
    try:
        plain = _READERS[kind](body)
    except (RuntimeError, EOFError, ValueError) as error:
        raise ClientError(f"the body cannot be decompressed: {error}") from error
    if plain is None:
        raise ClientError(
            "the body cannot be decompressed: it is damaged, ends too early, or holds more than"
            f" {INFLATED_MAX} bytes"
        )
    return plain


def _from_lz4(body: bytes) -> bytes | None:
    stream = _library(CompressionType.LZ4).LZ4FrameDecompressor()
    pieces: list[bytes] = []
    size = 0
    while size <= INFLATED_MAX and not stream.eof:
        # The library allocates as much as it may return, so the output is read in steps.
        piece: bytes = stream.decompress(body, _STEP)
        if not piece and not stream.eof:
            return None
        pieces.append(piece)
        size += len(piece)
        body = b""
    return b"".join(pieces) if size <= INFLATED_MAX else None


def _from_zstd(body: bytes) -> bytes | None:
    library = _library(CompressionType.ZSTD)
    stream = library.ZstdDecompressor(max_window_size=_WINDOW_MAX).decompressobj()
    pieces: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(body), _SLICE):
            pieces.append(stream.decompress(body[start : start + _SLICE]))
            size += len(pieces[-1])
            if stream.eof or size > INFLATED_MAX:
                break
    except library.ZstdError as error:
        raise ValueError(error) from error
    return b"".join(pieces) if stream.eof and size <= INFLATED_MAX else None


_READERS: dict[CompressionType, Callable[[bytes], bytes | None]] = {
    CompressionType.LZ4: _from_lz4,
    CompressionType.ZSTD: _from_zstd,
    CompressionType.ZLIB: inflate,
}


def _library(kind: CompressionType) -> Any:
    try:
        return import_module(_MODULES[kind])
    except ImportError as error:
        extra = kind.name.lower()
        raise ClientError(
            f"{kind.name} needs a library: install congreve[{extra}], or use ZLIB"
        ) from error
