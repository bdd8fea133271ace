"""Checks that no linter does: sizes, stubs of compiled modules, prints, paths of a machine."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from .sources import contents_of, text_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
SOURCES = (".py", ".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h", ".java", ".go", ".sh")
TEXTS = (*SOURCES, ".md", ".toml", ".cfg", ".xml", ".json", ".yml", ".yaml")
FOLDERS = sorted({*PACKAGES.values(), "bench", "docs", "examples", "tests"})
MODULE_LINES = 600
FUNCTION_LINES = 70
FOLDER_MODULES = 20
COLUMNS = 100
MAY_PRINT = ("console", "bench", "examples", "tests")

COMPILED_FUNCTION = re.compile(r"( *)(?:def|cpdef|cdef)\b(?! class\b)[^=(]*?(\w+)\(")
SECTION = re.compile(r"\s*(?:#|//|/\*)\s*(?:[-=*~#]{2,}|\w.*[-=*~#]{3,}$)")
SECTION_STYLE = re.compile(r"\s*(?:#|//|/\*) --- [a-z_].*[^-\s*](?:(?: ---)? \*/)?$")
MACHINE_PATH = re.compile(r"(?<![\w/.])/(?:work|home|root|Users)/\w")
LEFT_OVER = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b(?!X)")


@cache
def all_texts() -> list[Path]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts[-3:])
            if path.suffix in TEXTS and not hidden and path.is_file():
                found.append(path)
    return found + [path for path in sorted(ROOT.glob("*.*")) if path.suffix in TEXTS]


def files(suffixes: tuple[str, ...]) -> Iterator[Path]:
    assert set(suffixes) <= set(TEXTS)
    return (path for path in all_texts() if path.suffix in suffixes)


def named(path: Path, line: int | None = None) -> str:
    return f"{path.relative_to(ROOT)}" + (f":{line}" if line else "")


def test_no_module_is_too_long_to_read() -> None:
    sizes = {named(path): len(text_of(path).splitlines()) for path in files(SOURCES)}
    wrong = [f"{name}: {size}" for name, size in sizes.items() if size > MODULE_LINES]
    assert not wrong, wrong


def test_no_source_folder_has_too_many_modules() -> None:
    modules = {path.with_suffix("") for path in files(SOURCES)}
    sizes = Counter(module.parent for module in modules)
    assert len(sizes) > 50
    wrong = [f"{named(folder)}: {size}" for folder, size in sizes.items() if size > FOLDER_MODULES]
    assert not wrong, wrong


def compiled_functions(text: str) -> Iterator[tuple[int, str, int]]:
    """First line, name and number of lines of each function of Cython code, which Python's parser
    cannot read."""
    lines = text.splitlines()
    for first, line in enumerate(lines):
        found = COMPILED_FUNCTION.match(line)
        if found is None:
            continue
        end, opened = first + 1, line.count("(") - line.count(")")
        while opened > 0:
            opened += lines[end].count("(") - lines[end].count(")")
            end += 1
        if not lines[end - 1].partition("#")[0].rstrip().endswith(":"):
            continue  # a declaration
        indent, last = len(found[1]), end
        for number, below in enumerate(lines[end:], end + 1):
            if below.strip():
                if len(below) - len(below.lstrip()) <= indent:
                    break
                last = number
        yield first + 1, found[2], last - first


def test_no_function_is_too_long_to_read() -> None:
    wrong, seen = [], 0
    for path in files((".py", ".pyx", ".pxd")):
        if path.suffix == ".py":
            functions: Iterable[tuple[int, str, int]] = contents_of(path).functions
        else:
            functions = compiled_functions(text_of(path))
        for line, name, size in functions:
            seen += 1
            if size > FUNCTION_LINES:
                wrong.append(f"{named(path, line)} {name}: {size}")
    assert not wrong, wrong
    assert seen > 4_000


def test_sizes_of_compiled_functions_are_counted() -> None:
    text = """
cdef extern from *:
    int declared(int x)

cdef class Kind(Base):
    cdef bint found(self, const int *at,
                    int end) except -1:
        # first

        return True

cdef inline int last() noexcept nogil:
    return 1
"""
    assert list(compiled_functions(text)) == [(6, "found", 5), (12, "last", 2)]


def test_lines_fit_the_screen() -> None:
    wrong = [
        named(path, number)
        for path in files(SOURCES)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not wrong, wrong


def wrong_sections(text: str) -> list[tuple[int, str]]:
    """The section comments of another style than CONTRIBUTING.md says, with their lines."""
    return [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if SECTION.match(line) and not SECTION_STYLE.match(line)
    ]


def test_section_comments_have_one_style() -> None:
    wrong = [
        named(path, number)
        for path in files(SOURCES)
        if path != Path(__file__)
        for number, _ in wrong_sections(text_of(path))
    ]
    assert not wrong, wrong


def test_section_comments_of_another_style_are_found() -> None:
    assert not wrong_sections(
        "# --- life\n    # --- the end\n# a comment, with -- in it\nx = 1 # -"
    )
    for line in ("# ---- life -----", "# ---------", "# === life", "# Life ------", "# --- Life"):
        assert wrong_sections(line), line


def test_every_compiled_module_has_a_stub() -> None:
    wrong = [named(path) for path in files((".pyx",)) if not path.with_suffix(".pyi").is_file()]
    assert not wrong, f"no .pyi beside {wrong}"


def test_libraries_do_not_print() -> None:
    wrong = []
    for path in files((".py", ".pyx")):
        relative = path.relative_to(ROOT)
        if relative.parts[0] not in MAY_PRINT:
            lines = enumerate(text_of(path).splitlines(), 1)
            wrong += [named(path, n) for n, line in lines if re.match(r"\s*print\(", line)]
    assert not wrong, wrong


@pytest.mark.parametrize("pattern", [MACHINE_PATH, LEFT_OVER], ids=["machine path", "left over"])
def test_no_file_names_a_machine_or_a_date(pattern: re.Pattern[str]) -> None:
    wrong = [
        f"{named(path, number)} {line.strip()[:60]}"
        for path in files(TEXTS)
        if path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert not wrong, wrong
