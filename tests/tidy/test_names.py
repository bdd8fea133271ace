"""A system topic or a property has its name spelled once: in the leaf of records/."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.records.message import properties, topics

from .sources import contents_of, text_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
LEAF = {
    ROOT / "records/message" / name
    for name in ("properties.py", "properties.pxd", "topics.py", "topics.pxd")
}
NAMES = properties.NAMES | topics.SYSTEM_TOPICS | {topics.TRANS_GROUP}
PREFIXES = (
    topics.RETRY_PREFIX,
    topics.DLQ_PREFIX,
    topics.LIGHT_PREFIX,
    topics.SYSTEM_GROUP_PREFIX,
    topics.SYSTEM_TOPIC_PREFIX,
    properties.TIMER_PREFIX,
)
SEPARATORS = re.compile(r"\\x0[12]|\x01|\x02")
# A text in Cython, except docstrings, which are between three quotes.
TEXT = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*|"((?:[^"\\\n]|\\.)*)"')


# Texts of the leaf that are not names of properties.
NO_NAMES = {
    *("SHARDING_KEY", "TIMER_PREFIX", "KEY_SEPARATOR"),
    # Names of RocketMQ 5, which its gRPC clients do not check.
    *("BORN_HOST", "BORN_TIMESTAMP", "LITE_TOPIC", "TRACE_CONTEXT"),
}


def test_every_name_of_a_property_is_reserved() -> None:
    texts = {name for name, value in vars(properties).items() if isinstance(value, str)}
    public = {name for name in texts if name.isupper() and not name.startswith("_")}
    assert {
        name for name in public if getattr(properties, name) not in properties.NAMES
    } == NO_NAMES


def sources() -> Iterator[Path]:
    for folder in sorted(set(PACKAGES.values())):
        for suffix in ("*.py", "*.pyx", "*.pxd", "*.pxi"):
            yield from sorted((ROOT / folder).rglob(suffix))


def texts(path: Path) -> Iterator[str]:
    """The texts of the module, without docstrings."""
    if path.suffix == ".py":
        yield from contents_of(path).texts
    else:
        yield from (found[1] for found in TEXT.finditer(text_of(path)) if found[1])


def names_in(text: str) -> list[str]:
    """The names in a text: all of it, a part between separators of properties, or a prefix."""
    return [
        piece for piece in SEPARATORS.split(text) if piece in NAMES or piece.startswith(PREFIXES)
    ]


def test_only_the_leaf_spells_system_topics_and_properties() -> None:
    spelled = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        if path not in LEAF and ".venv" not in path.parts
        for text in texts(path)
        for name in names_in(text)
    }
    assert not spelled, sorted(spelled)


@pytest.mark.parametrize(
    "line",
    [
        'TOPIC = "SCHEDULE_TOPIC_XXXX"',
        'DELAY = b"DELAY\\x01"',
        'retry = "%RETRY%" + group',
        'NAME = b"\\x02REAL_QID\\x01"',
    ],
)
@pytest.mark.parametrize("suffix", [".py", ".pyx"])
def test_a_name_that_is_spelled_elsewhere_is_found(line: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"module{suffix}"
    path.write_text(f'"""What a SCHEDULE_TOPIC_XXXX is."""\n\n# "DELAY" is one\n{line}\n')
    assert [name for text in texts(path) for name in names_in(text)]
    path = tmp_path / f"prose{suffix}"
    path.write_text('"""What a SCHEDULE_TOPIC_XXXX is."""\n\n# "DELAY" is one\nx = "delay"\n')
    assert not [name for text in texts(path) for name in names_in(text)]
