"""format.pxd (compiled), format.py (numpy) and file_sizes.py describe the same bytes."""

import re
from pathlib import Path

from congreve.engine import file_sizes
from congreve.engine import format as layout

TEXT = (Path(layout.__file__).parent / "format.pxd").read_text()
CONSTANTS = {name: int(value, 0) for name, value in re.findall(r"(\w+) = (\w+)$", TEXT, re.M)}


def test_the_sizes_of_the_format_agree():
    for dtype, size, name in (
        (layout.CONSUME_QUEUE_ENTRY, file_sizes.ENTRY_SIZE, "CQ_ENTRY"),
        (layout.INDEX_HEADER, file_sizes.INDEX_HEADER_SIZE, "INDEX_HEADER"),
        (layout.INDEX_SLOT, file_sizes.INDEX_SLOT_SIZE, "INDEX_SLOT"),
        (layout.INDEX_ENTRY, file_sizes.INDEX_ENTRY_SIZE, "INDEX_ENTRY"),
    ):
        assert dtype.itemsize == size == CONSTANTS[name]
    assert CONSTANTS["CQ_FILLER_SIZE"] == file_sizes.FILLER_SIZE


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
