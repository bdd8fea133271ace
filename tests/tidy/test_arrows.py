"""Packages and their rooms import each other only as tests/tidy/ladder.py says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import picture, rooms
from .ladder import ARROWS, JOBS, ORDER

ROOT = rooms.ROOT
FOLDERS = {package.removeprefix("congreve."): folder for package, folder in rooms.PACKAGES.items()}
# The public API: modules of congreve/ that import the other packages.
PUBLIC_API = frozenset({"congreve.name_server", "congreve.node", "congreve.store_reader"})
# lake and spark read stores and write none: these modules of the engine append or delete.
WRITE_SIDE = frozenset(
    {"congreve.engine.store", "congreve.engine.log.commit_log", "congreve.engine.retention"}
)


MOST_IMPORTS = 25
"""Of modules of ours, in one module."""
TABLES = frozenset({"congreve.console.main"})
"""Modules that name a module for each row of a table, and import it when it is needed."""
LARGE = {
    "congreve.broker.pull.lanes.pulls": 26,
    "congreve.broker.serving.message_paths": 26,
}
"""Modules that are still to be divided, with their imports, which must not grow."""


def sources(folder: str) -> Iterator[Path]:
    for pattern in ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.pxi"):
        yield from sorted((ROOT / folder).rglob(pattern))


def test_the_arrows_between_packages_are_those_of_the_code() -> None:
    assert set(ARROWS) == set(FOLDERS)
    found = rooms.package_arrows()
    missing = {f"{a} -> {b}" for a, targets in ARROWS.items() for b in set(targets) - set(found[a])}
    assert not missing, f"nothing goes along these arrows: {missing}"
    wrong = [
        example
        for package, targets in found.items()
        for target, examples in targets.items()
        if target not in ARROWS[package]
        for example in examples
    ]
    assert not wrong, wrong


def test_no_packages_import_each_other_in_a_circle() -> None:
    assert not rooms.knots(ARROWS)


def test_circles_are_found() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b"], "d": ["d", "a"], "e": []}
    assert rooms.knots(graph) == [["b", "c"], ["d"]]


@pytest.mark.parametrize("package", sorted(ORDER))
def test_a_room_imports_only_rooms_before_it(package: str) -> None:
    order = ORDER[package]
    found = rooms.arrows(package)
    found.pop("")
    assert sorted(found) == sorted(order), "ladder.py names each room once"
    places = {room: place for place, room in enumerate(order)}
    wrong = [
        example
        for room, targets in found.items()
        for target, examples in targets.items()
        if places.get(target, len(order)) > places[room]
        for example in examples
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("page", picture.PAGES)
def test_the_drawn_arrows_are_those_of_the_code(page: str) -> None:
    assert set(JOBS) == set(ARROWS) - {picture.GROUND}
    text = (ROOT / page).read_text()
    assert picture.with_picture(text) == text, "PYTHONPATH=tests python -m tidy.picture"


def test_no_module_imports_too_many_others() -> None:
    sizes = {module: len(rooms.imports_of(module)) for module in rooms.modules()}
    large = {
        module: size
        for module, size in sizes.items()
        if size > MOST_IMPORTS and module not in TABLES
    }
    wrong = {module: size for module, size in large.items() if size > LARGE.get(module, 0)}
    assert not wrong, wrong
    assert not LARGE.keys() - large.keys(), "take these out of LARGE"


def test_congreve_imports_no_other_package_when_it_is_imported() -> None:
    code = "import congreve, sys; print(*(name for name in sys.modules if '.' in name))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    reached = {name for name in done.stdout.split() if name.startswith("congreve.")}
    assert {rooms.package_of(name) for name in reached} <= {"base", "congreve"}
    assert not reached & PUBLIC_API


def test_only_the_console_imports_the_public_api() -> None:
    """Spark imports `congreve` itself, for the archive that it came from."""
    wrong = [
        f"{module} imports {sorted(found)}"
        for module in rooms.modules()
        if rooms.package_of(module) not in {"console", "congreve"}
        if (found := rooms.imports_of(module) & PUBLIC_API)
    ]
    assert not wrong, wrong


@pytest.mark.parametrize("package", ["lake", "spark"])
def test_a_reader_of_stores_only_reads_them(package: str) -> None:
    wrong = [
        f"{module} imports {sorted(found)}"
        for module in rooms.modules_of(package)
        if (found := rooms.imports_of(module) & WRITE_SIDE)
    ]
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
            tops = {name.partition(":")[0].split(".")[0] for name in rooms.named(path)}
            wrong += [f"{path.relative_to(ROOT)} imports {top}" for top in tops & forbidden]
    assert not wrong, wrong
