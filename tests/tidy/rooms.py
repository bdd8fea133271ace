"""The graph of imports between rooms: the sub-packages of a package, as they are imported.

A module beside the sub-packages is a room of its own. Imports and cimports count at every place:
at the top, in a function, for annotations only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from .sources import contents_of, text_of

ROOT = Path(__file__).resolve().parents[2]
#: Folders by the name under which they are imported.
PACKAGES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".pxi")

FROM_IMPORT = re.compile(
    r"^\s*from\s+([\w.]+)\s+c?import\s+(?:\(([^)]*)\)|([^\n#]*))", re.MULTILINE
)
PLAIN_IMPORT = re.compile(r"^\s*c?import\s+([\w.]+)", re.MULTILINE)


@cache
def modules() -> Mapping[str, tuple[Path, ...]]:
    """The files of each module, and of each package, by its dotted name.

    Without the modules of ``python -m``: they are the ends of all arrows.
    """
    found: dict[str, list[Path]] = {}
    for package, folder in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and path.stem != "__main__":
                inner = path.relative_to(ROOT / folder).with_suffix("").parts
                name = ".".join([package, *inner]).removesuffix(".__init__")
                found.setdefault(name, []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


@cache
def named(path: Path) -> frozenset[str]:
    """What a file imports and cimports, as it is written there: module, or module:name."""
    if path.suffix in (".py", ".pyi"):
        return contents_of(path).imports
    text = text_of(path)
    found = set(PLAIN_IMPORT.findall(text))
    for base, in_brackets, on_line in FROM_IMPORT.findall(text):
        names = re.sub(r"#.*", "", in_brackets or on_line).split(",")
        found |= {f"{base}:{name.split()[0]}" for name in names if name.split()}
    return frozenset(found)


@cache
def imports_of(module: str) -> frozenset[str]:
    """The modules of ours that a module imports or cimports, without itself."""
    found = set()
    for path in modules()[module]:
        package = module if path.stem == "__init__" else module.rpartition(".")[0]
        found |= {resolve(name, package) for name in named(path)}
    return frozenset(found & set(modules())) - {module}


def resolve(name: str, package: str) -> str:
    """The dotted name of the module that an import in `package` reaches."""
    base, _, last = name.partition(":")
    if base.startswith("."):
        level = len(base) - len(base.lstrip("."))
        parents = package.split(".")[: len(package.split(".")) - (level - 1)]
        base = ".".join([*parents, base.lstrip(".")]).rstrip(".")
    inner = f"{base}.{last}"
    return inner if last and inner in modules() else base


def package_of(module: str) -> str:
    """The short name of the package that has a module: `broker` for `congreve.broker.pull.fast`."""
    parts = module.split(".")
    return parts[1] if ".".join(parts[:2]) in PACKAGES and len(parts) > 1 else parts[0]


def room_of(module: str) -> str:
    """The room of a module inside its package: its folder, with dots, or its own name."""
    own = PACKAGES.keys() & {".".join(module.split(".")[:2])}
    inner = module.split(".")[2:] if own else module.split(".")[1:]
    is_folder = any(path.stem == "__init__" for path in modules()[module])
    return ".".join(inner if is_folder or len(inner) <= 1 else inner[:-1])


def modules_of(short: str) -> Iterator[str]:
    """The modules of a package."""
    return (module for module in modules() if package_of(module) == short)


def arrows(short: str) -> dict[str, dict[str, list[str]]]:
    """Of each room of a package the rooms that it imports, with the imports that make it so."""
    found: dict[str, dict[str, list[str]]] = {}
    for module in modules_of(short):
        mine = found.setdefault(room_of(module), {})
        for target in sorted(imports_of(module)):
            if package_of(target) == short and room_of(target) != room_of(module):
                mine.setdefault(room_of(target), []).append(f"{module} imports {target}")
    return found


def package_arrows() -> dict[str, dict[str, list[str]]]:
    """Of each package the packages that it imports, with the imports that make it so."""
    found: dict[str, dict[str, list[str]]] = {}
    for module in modules():
        mine = found.setdefault(package_of(module), {})
        for target in sorted(imports_of(module)):
            if package_of(target) != package_of(module):
                mine.setdefault(package_of(target), []).append(f"{module} imports {target}")
    return found


def reached(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """What can be reached from a node by one arrow or more."""
    found: set[str] = set()
    ahead = list(graph.get(start, ()))
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += graph.get(node, ())
    return found


def knots(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of rooms that reach each other in a circle, the largest first."""
    far = {node: reached(graph, node) for node in graph}
    groups = {
        tuple(sorted(other for other in far[node] if node in far.get(other, ())))
        for node in graph
        if node in far[node]
    }
    return sorted((list(group) for group in groups), key=len, reverse=True)
