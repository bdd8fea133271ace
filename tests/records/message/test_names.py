"""The names and limits in compiled code are those in Python."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from congreve.records import layout
from congreve.records.message import properties, topics

RECORDS = Path(__file__).resolve().parents[3] / "records"
DEFINE = re.compile(r'^ *#define CONGREVE_(\w+) "(.*)"$', re.MULTILINE)
NAME = re.compile(r'^ *const char \*(\w+) "CONGREVE_(\w+)"$', re.MULTILINE)
NUMBER = re.compile(r"^    (\w+) = (-?\d+)\b", re.MULTILINE)


@pytest.mark.parametrize("module", [properties, topics])
def test_compiled_code_spells_names_as_python_does(module: ModuleType) -> None:
    text = (RECORDS / f"message/{module.__name__.rpartition('.')[2]}.pxd").read_text()
    defined = dict(DEFINE.findall(text))
    assert defined
    assert {name: getattr(module, name) for name in defined} == defined
    assert NAME.findall(text) == [(name, name) for name in defined]


@pytest.mark.parametrize(
    ("module", "pxd"), [(topics, "message/topics.pxd"), (layout, "layout.pxd")]
)
def test_compiled_code_has_the_same_numbers(module: ModuleType, pxd: str) -> None:
    compiled = {name: int(value) for name, value in NUMBER.findall((RECORDS / pxd).read_text())}
    ours = {name: value for name, value in vars(module).items() if isinstance(value, int)}
    assert ours
    assert ours == {name: compiled.get(name) for name in ours}
