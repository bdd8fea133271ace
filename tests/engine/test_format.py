"""format.pxd (compiled) and format.py (numpy) must describe the same bytes."""

import re
from pathlib import Path

from congreve.engine import format as layout

TEXT = (Path(layout.__file__).parent / "format.pxd").read_text()
CONSTANTS = {name: int(value, 0) for name, value in re.findall(r"(\w+) = (\w+)$", TEXT, re.M)}


def test_the_sizes_of_the_format_agree():
    assert layout.CONSUME_QUEUE_ENTRY.itemsize == CONSTANTS["CQ_ENTRY"]
    assert layout.INDEX_HEADER.itemsize == CONSTANTS["INDEX_HEADER"]
    assert layout.INDEX_SLOT.itemsize == CONSTANTS["INDEX_SLOT"]
    assert layout.INDEX_ENTRY.itemsize == CONSTANTS["INDEX_ENTRY"]
    assert CONSTANTS["CQ_FILLER_SIZE"] == layout.FILLER_SIZE


def test_the_offsets_of_the_format_agree():
    fields = layout.CONSUME_QUEUE_ENTRY.fields
    assert fields["size"][1] == CONSTANTS["CQ_AT_SIZE"]
    assert fields["tags_code"][1] == CONSTANTS["CQ_AT_TAGS_CODE"]
    for names, dtype in (
        ("INDEX_HEADER_", layout.INDEX_HEADER),
        ("INDEX_ENTRY_", layout.INDEX_ENTRY),
    ):
        found = {name: at for name, at in CONSTANTS.items() if name.startswith(f"{names}AT_")}
        assert len(found) == len(dtype.fields)
        for name, at in found.items():
            assert dtype.fields[name.removeprefix(f"{names}AT_").lower()][1] == at
