"""The broker uses delayOffset.json if its checksum is right, or if the reference wrote it."""

import pytest

from congreve.base.errors import CongreveError
from congreve.broker.delay.levels import DelayOffsets
from congreve.remoting.messages import fastjson

OFFSETS = DelayOffsets(offset_table={1: 12, 2: 0, 18: 1 << 40}, log_end=4_096).with_checksum()


def read(text: str) -> DelayOffsets:
    said = DelayOffsets.from_tree(fastjson.loads(text))
    said.check()
    return said


def test_a_file_with_a_flipped_bit_is_not_used() -> None:
    saved = fastjson.dumps_pretty(OFFSETS).encode()
    assert read(saved.decode()) == OFFSETS
    for at in range(8 * len(saved)):
        damaged = bytearray(saved)
        damaged[at // 8] ^= 1 << at % 8
        try:
            said = read(damaged.decode())
        except (ValueError, CongreveError):
            continue
        assert said == OFFSETS, damaged


def test_a_file_of_ours_without_its_checksum_is_not_used() -> None:
    with pytest.raises(ValueError, match="checksum"):
        read('{"logEnd":4096,"offsetTable":{1:12}}')


def test_a_file_of_the_reference_is_used() -> None:
    assert read('{"offsetTable":{1:12}}').offset_table == {1: 12}
