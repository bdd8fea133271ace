"""The cost of parsing is proportional to the input's length, and only expected errors occur."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import inputs, measure
from .parser import Parser
from .table import ELSEWHERE, PARSERS, SEED_NUMBER

ROOT = Path(__file__).resolve().parents[2]
SIZE = 8 * 1024
FIELD_SIZE = 1024
MUTATIONS = 40
QUICK_STEP = 16

names = pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)


def costly(parser: Parser, size: int, field_size: int) -> Iterator[tuple[str, bytes]]:
    for name, make in inputs.COSTLY.items():
        yield name, make(size)
    for field in parser.fields:
        for name, make in inputs.JSON.items():
            yield f"{field}: {name}", b'{"%s":%b}' % (field.encode(), make(field_size))
    for seed in parser.seeds:
        yield "seed again and again", seed * max(size // max(len(seed), 1), 1)


@names
def test_a_parser_handles_costly_inputs_within_its_limits(parser: Parser, quick: bool) -> None:
    check_all(parser, costly(parser, SIZE, FIELD_SIZE), quick)


@names
def test_a_parser_handles_mutated_inputs_within_its_limits(parser: Parser, quick: bool) -> None:
    found = inputs.mutations(list(parser.seeds), SEED_NUMBER, MUTATIONS)
    check_all(parser, (("mutated", data) for data in found), quick)


def check_all(parser: Parser, every: Iterator[tuple[str, bytes]], quick: bool) -> None:
    """Check all inputs; a quick run takes each sixteenth one, and others for the next parser."""
    first, step = (PARSERS.index(parser) % QUICK_STEP, QUICK_STEP) if quick else (0, 1)
    # Types, patterns and tables are made once, by the first call that needs them.
    for seed in parser.seeds:
        measure.run(parser.parse, seed, parser.refuses)
    for name, data in islice(every, first, None, step):
        try:
            measure.check(
                parser.parse,
                data,
                parser.refuses,
                inflates=parser.inflates,
                slowness=parser.slowness,
            )
        except Exception as error:
            raise AssertionError(f"{parser.name}: {name}: {error!r}: {data[:200]!r}") from error


@given(st.sampled_from(PARSERS), st.binary(max_size=200))
def test_invalid_bytes_raise_only_the_documented_errors(parser: Parser, data: bytes) -> None:
    measure.run(parser.parse, data, parser.refuses)


PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
READS_BYTES = re.compile(
    r"\.unpack(_from)?\(|int\.from_bytes|frombuffer|fromfile|memmap|decompressobj"
    r"|json\.(loads|decode|Decoder)|fastjson\.(loads|standard)|msgspec\.convert"
    r"|^\s*def (decode|parse|loads?|inflate|decompress|restored|compile|split|stored|scan)\w*\("
    r"|RemotingCommand\.(decode|read)|\b(load_i32|load_i64|get_i32|get_i64)\(",
    re.MULTILINE,
)
"""Names that every module that parses foreign bytes or text uses."""


def test_every_module_that_reads_bytes_is_in_the_table() -> None:
    covered = {module for parser in PARSERS for module in parser.modules}
    found = {
        str(path.relative_to(ROOT))
        for folder in PACKAGES["package-dir"].values()
        for path in Path(ROOT, folder).rglob("*.py*")
        if path.suffix in (".py", ".pyx") and READS_BYTES.search(path.read_text())
    }
    unknown = found - covered - ELSEWHERE.keys()
    assert not unknown, f"add to PARSERS, or to ELSEWHERE with the reason: {sorted(unknown)}"
    gone = {module for module in covered | ELSEWHERE.keys() if not (ROOT / module).exists()}
    assert not gone
    assert not covered & ELSEWHERE.keys()


def test_a_parser_that_needs_the_square_of_its_input_is_found() -> None:
    with pytest.raises(measure.Excess, match="CPU"):
        measure.check(lambda data: [data.count(b"a") for _ in data], bytes(SIZE), ())


def test_a_parser_that_needs_too_much_memory_is_found() -> None:
    with pytest.raises(measure.Excess, match="memory"):
        measure.check(lambda data: bytes(2 << 20), b"", ())
