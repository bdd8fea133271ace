"""Packages import each other only along the arrows of the graph in docs/architecture.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .sources import contents_of, text_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
FOLDERS = {package.removeprefix("congreve."): folder for package, folder in PACKAGES.items()}
EVERYTHING = frozenset(FOLDERS) - {"congreve"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "base": frozenset(),
    "io_backends": frozenset(),
    "records": frozenset(),
    "remoting": frozenset(),
    "engine": frozenset({"io_backends", "records"}),
    "namesrv": frozenset({"remoting"}),
    "broker": frozenset({"engine", "remoting", "records"}),
    "client": frozenset({"remoting", "records"}),
    "spark": frozenset({"engine", "client", "lake", "records"}),
    "lake": frozenset({"engine", "records"}),
    "console": EVERYTHING,
}
# Every package may import the ground.
SHARED = "base"
# The public API: modules of congreve/ that import the other packages.
PUBLIC_API = frozenset({"name_server", "node", "store_reader", "table_archive"})
# lake and spark read stores and write none: these modules of the engine append or delete.
WRITE_SIDE = frozenset({"engine.store", "engine.log.commit_log", "engine.retention"})

FROM_CIMPORT = re.compile(r"^\s*from\s+([\w.]+)\s+(?:cimport|import)\s+\(?([\w,\s]*)", re.MULTILINE)
PLAIN_CIMPORT = re.compile(r"^\s*(?:cimport|import)\s+([\w.]+)", re.MULTILINE)


def sources(folder: str) -> Iterator[Path]:
    for pattern in ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.pxi"):
        yield from sorted((ROOT / folder).rglob(pattern))


def imported(path: Path, package: str) -> set[str]:
    """Every module of ours that the file names in an import or cimport, at any place."""
    absolute = {resolve(name, package) for name in named(path)}
    return {name for name in absolute if name == "congreve" or name.startswith("congreve.")}


@cache
def named(path: Path) -> frozenset[str]:
    """What the file imports and cimports, as it is written there."""
    if path.suffix in (".pyx", ".pxd", ".pxi"):
        return frozenset(cython_imports(text_of(path)))
    return contents_of(path).imports


def cython_imports(text: str) -> set[str]:
    found = set(PLAIN_CIMPORT.findall(text))
    for base, names in FROM_CIMPORT.findall(text):
        found |= {f"{base}:{name.split()[0]}" for name in names.split(",") if name.split()}
        found.add(base)
    return found


def resolve(name: str, package: str) -> str:
    """The absolute dotted name; `from a import b` (a:b) is a.b, because b may be a module."""
    base, _, last = name.partition(":")
    if base.startswith("."):
        level = len(base) - len(base.lstrip("."))
        parents = package.split(".")[: len(package.split(".")) - (level - 1)]
        base = ".".join([*parents, base.lstrip(".")]).rstrip(".")
    if last and base in PACKAGES:
        return f"{base}.{last}"
    return base


def test_every_package_has_its_arrows_drawn() -> None:
    assert set(MAY_IMPORT) == EVERYTHING


@pytest.mark.parametrize("short", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_its_arrows_allow(short: str) -> None:
    wrong = []
    for path in sources(FOLDERS[short]):
        for name in imported(path, f"congreve.{short}"):
            target = name.split(".")[1] if "." in name else name
            if target == SHARED or target not in MAY_IMPORT:
                continue
            if target != short and target not in MAY_IMPORT[short]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, wrong


def test_congreve_imports_no_other_package_when_it_is_imported() -> None:
    code = "import congreve, sys; print(*(name for name in sys.modules if '.' in name))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    reached = {name.split(".")[1] for name in done.stdout.split() if name.startswith("congreve.")}
    assert not reached & (EVERYTHING - {SHARED} | PUBLIC_API)


def test_only_the_console_imports_the_public_api() -> None:
    wrong = []
    for short in EVERYTHING - {"console"}:
        for path in sources(FOLDERS[short]):
            for name in imported(path, f"congreve.{short}"):
                if name.partition(".")[2].partition(".")[0] in PUBLIC_API:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, wrong


@pytest.mark.parametrize("short", ["lake", "spark"])
def test_a_reader_of_stores_only_reads_them(short: str) -> None:
    wrong = []
    for path in sources(FOLDERS[short]):
        for name in imported(path, f"congreve.{short}"):
            module = name.removeprefix("congreve.")
            if module in WRITE_SIDE:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, wrong


def test_the_engine_imports_no_sockets_and_remoting_no_files() -> None:
    unwanted = {
        "engine": {"socket", "asyncio", "uvloop", "ssl", "selectors"},
        "io_backends": {"socket", "asyncio", "uvloop", "ssl"},
        "records": {"asyncio", "uvloop", "ssl", "os", "pathlib", "mmap"},
        "remoting": {"pathlib", "mmap", "tempfile", "shutil"},
    }
    wrong = []
    for short, forbidden in unwanted.items():
        for path in sources(FOLDERS[short]):
            tops = {name.partition(":")[0].split(".")[0] for name in named(path)}
            wrong += [f"{path.relative_to(ROOT)} imports {top}" for top in tops & forbidden]
    assert not wrong, wrong
