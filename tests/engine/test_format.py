"""format.pxd (compiled), format.py (numpy) and file_sizes.py describe the same bytes."""

import re
from pathlib import Path

from congreve.engine import file_sizes
from congreve.engine import format as layout

TEXT = (Path(layout.__file__).parent / "format.pxd").read_text()
CONSTANTS = {name: int(value, 0) for name, value in re.findall(r"(\w+) = (\w+)$", TEXT, re.M)}


def test_the_sizes_of_the_format_agree():
    assert layout.CONSUME_QUEUE_ENTRY.itemsize == file_sizes.ENTRY_SIZE
    for name, size in (
        ("CQ_ENTRY", file_sizes.ENTRY_SIZE),
        ("CQ_FILLER_SIZE", file_sizes.FILLER_SIZE),
        ("INDEX_HEADER", file_sizes.INDEX_HEADER_SIZE),
        ("INDEX_SLOT", file_sizes.INDEX_SLOT_SIZE),
        ("INDEX_ENTRY", file_sizes.INDEX_ENTRY_SIZE),
    ):
        assert CONSTANTS[name] == size


def test_the_offsets_of_the_format_agree():
    fields = layout.CONSUME_QUEUE_ENTRY.fields
    assert fields["size"][1] == CONSTANTS["CQ_AT_SIZE"]
    assert fields["tags_code"][1] == CONSTANTS["CQ_AT_TAGS_CODE"]
