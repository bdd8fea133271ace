"""Bodies that are compressed and come back, and some that do not."""

import tracemalloc
import zlib

import pytest
import zstandard

from congreve.client import compression
from congreve.client.compression import CompressionType, compress, decompress
from congreve.client.errors import ClientError
from congreve.records.inflate import INFLATED_MAX

BODY = b"compress me " * 1000


def quickly_packed(body: bytes, kind: CompressionType) -> bytes:
    return zlib.compress(body, 1) if kind is CompressionType.ZLIB else compress(body, kind)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_every_compression_type_is_decompressed_by_its_flag(kind: CompressionType) -> None:
    packed = compress(BODY, kind)
    assert len(packed) < len(BODY)
    assert kind.sys_flag == {1: 0x101, 2: 0x201, 3: 0x301}[kind]
    assert decompress(packed, kind.sys_flag) == BODY


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("cut", [slice(0, -5), slice(3, None), slice(0, 0)])
def test_damaged_compressed_bodies_raise_our_own_error(kind: CompressionType, cut: slice) -> None:
    with pytest.raises(ClientError, match=r"decompressed|too early"):
        decompress(compress(BODY, kind)[cut], kind.sys_flag)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_a_body_that_would_fill_the_memory_is_not_decompressed(kind: CompressionType) -> None:
    bomb = quickly_packed(bytes(2 * INFLATED_MAX), kind)
    tracemalloc.start()
    try:
        with pytest.raises(ClientError, match="more than"):
            decompress(bomb, kind.sys_flag)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * INFLATED_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", list(CompressionType))
def test_the_longest_allowed_body_is_decompressed(kind: CompressionType) -> None:
    body = bytes(INFLATED_MAX)
    assert decompress(quickly_packed(body, kind), kind.sys_flag) == body


def test_a_body_with_a_too_large_window_is_refused() -> None:
    settings = zstandard.ZstdCompressionParameters.from_level(5, window_log=27, write_checksum=1)
    packed = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    with pytest.raises(ClientError, match="decompressed"):
        decompress(packed.compress(BODY) + packed.flush(), CompressionType.ZSTD.sys_flag)


def test_flags_of_old_clients_and_plain_bodies_are_read() -> None:
    assert decompress(zlib.compress(BODY), 0x1) == BODY
    assert decompress(b"plain", 0x300) == b"plain"
    with pytest.raises(ClientError, match="compressor 5"):
        decompress(BODY, 0x501)


def test_the_error_for_a_missing_library_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compression._MODULES, CompressionType.LZ4, "no_such_module")
    with pytest.raises(ClientError, match=r"congreve\[lz4\]"):
        compression.check_available(CompressionType.LZ4)
