"""CRC against zlib, hashes against the vectors that Java confirmed."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.records.checksum import crc32_by_folding, crc32_by_tables
from congreve.records.record import crc32, index_hash, string_hash

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden/record_vectors.json").read_text()
)
ALL_WAYS = pytest.mark.parametrize("crc", [crc32, crc32_by_folding, crc32_by_tables])


@ALL_WAYS
def test_every_length_and_alignment_equals_zlib(crc: Any) -> None:
    data = memoryview(bytes((i * 167 + i // 251) & 0xFF for i in range(1500)))
    for start in range(17):
        for length in (*range(160), *range(250, 350), 511, 512, 640, 683, 1024, 1279, 1480):
            part = data[start : start + length]
            assert crc(part) == zlib.crc32(part), (start, length)


@ALL_WAYS
@given(data=st.binary(max_size=5000), cut=st.integers(0, 5000), begin=st.integers(0, 2**32 - 1))
def test_a_crc_continues_from_an_earlier_one(crc: Any, data: bytes, cut: int, begin: int) -> None:
    assert crc(data[cut:], crc(data[:cut], begin)) == zlib.crc32(data, begin)


@ALL_WAYS
@pytest.mark.parametrize("vector", VECTORS["crc"])
def test_the_crc_equals_the_recorded_vectors(crc: Any, vector: dict[str, Any]) -> None:
    assert crc(bytes.fromhex(vector["body_hex"])) == vector["raw_crc32"]


@pytest.mark.parametrize("vector", VECTORS["string_hash"], ids=lambda v: ascii(v["s"]))
def test_the_string_hash_equals_the_recorded_vectors(vector: dict[str, Any]) -> None:
    assert string_hash(bytes.fromhex(vector["utf8_hex"])) == vector["hashCode"]
    assert string_hash(vector["s"]) == vector["hashCode"]


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS["string_hash"] if "#" in v["s"]], ids=lambda v: ascii(v["s"])
)
def test_index_hash_is_never_negative(vector: dict[str, Any]) -> None:
    topic, key = vector["s"].split("#")
    assert index_hash(topic, key) == vector["index_hash"] >= 0


def hash_over_utf16_units(text: str) -> int:
    h = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(raw), 2):
        h = (31 * h + int.from_bytes(raw[i : i + 2], "big")) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


@given(text=st.text(alphabet=st.characters(exclude_categories=[])))
def test_string_hash_counts_utf16_units(text: str) -> None:
    assert string_hash(text) == hash_over_utf16_units(text)


@given(raw=st.binary(max_size=40))
def test_the_string_hash_of_invalid_utf8_reads_no_byte_out_of_bounds(raw: bytes) -> None:
    padded = b"\xbf" * 4 + raw + b"\xbf" * 4
    assert string_hash(raw) == string_hash(padded[4 : 4 + len(raw)])
