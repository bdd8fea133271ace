"""Every public name has a docstring at run time, in compiled modules too: help() shows it.

A .pyi has none: the text is in the .pyx, once.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.packaging.left_out import is_left_out

ROOT = Path(__file__).resolve().parents[2]
FOLDERS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "setuptools"
]["package-dir"]
PACKAGES = tuple(FOLDERS)

COUNTERPARTS = ("broker", "client", "engine", "namesrv", "remoting")
"""Packages whose classes name their RocketMQ counterparts."""
SAME_NAMES = frozenset(
    f"congreve.remoting.messages.{name}"
    for name in ("admin_bodies", "admin_headers", "bodies", "headers", "pop_bodies", "pop_headers")
)
"""Modules whose own docstring says that each class follows the RocketMQ class of its name."""
WITHOUT_COUNTERPART = Path(__file__).with_name("no_counterpart.txt")
"""A line for each class without one; exceptions have none and are not in it."""


def modules(package: str) -> list[str]:
    folder = ROOT / FOLDERS[package]
    return sorted(
        ".".join([package, *path.relative_to(folder).with_suffix("").parts]).removesuffix(
            ".__init__"
        )
        for path in folder.rglob("*.py*")
        if path.suffix in (".py", ".pyx")
        and "__pycache__" not in path.parts
        and path.stem != "__main__"  # importing it runs the command
        and not is_left_out(path)
    )


def undocumented(module: ModuleType) -> Iterator[str]:
    """The public names of a module, and of its classes, that have no docstring."""
    if not module.__doc__:
        yield module.__name__
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield from undocumented_in_class(value)
        elif callable(value) and not value.__doc__:
            yield f"{module.__name__}.{name}"


def undocumented_in_class(cls: type) -> Iterator[str]:
    # A dataclass without a docstring gets its signature as one.
    if not cls.__doc__ or cls.__doc__.startswith(f"{cls.__name__}("):
        yield f"{cls.__module__}.{cls.__qualname__}"
    for name, member in vars(cls).items():
        if not name.startswith("_") and is_described(member) and not documented(cls, name):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}"


def is_described(member: object) -> bool:
    """Whether help() shows a text of its own for such a member: a method or a property."""
    if isinstance(member, staticmethod | classmethod):
        return True
    # The fields of slots, structs and named tuples are described by their class.
    if inspect.ismemberdescriptor(member) or type(member).__name__ == "_tuplegetter":
        return False
    return callable(member) or inspect.isdatadescriptor(member)


def is_compiled(cls: type) -> bool:
    return not (sys.modules[cls.__module__].__file__ or "").endswith(".py")


def documented(cls: type, name: str) -> bool:
    """Whether the member has a docstring, or, in Python code, the one that it overrides.

    help() finds the text of an overridden method for Python functions alone.
    """
    if is_compiled(cls):
        return bool(getattr(vars(cls)[name], "__doc__", None))
    found = (vars(base).get(name) for base in cls.__mro__)
    return any(inspect.getdoc(member) for member in found if member is not None)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_docstring(package: str) -> None:
    wrong = []
    for name in modules(package):
        wrong += undocumented(importlib.import_module(name))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""M."""\ndef f():\n    "F."', []),
        ("x = 1", ["m"]),
        ('"""M."""\ndef f(): pass\ndef _g(): pass', ["m.f"]),
        ('"""M."""\nclass C:\n    "C."\n    def f(self): pass', ["m.C.f"]),
        ('"""M."""\nclass C:\n    "C."\n    f = property(lambda self: 1)', ["m.C.f"]),
        ('"""M."""\nclass C:\n    "C."\n    @staticmethod\n    def f(): pass', ["m.C.f"]),
        ('"""M."""\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    x: int', ["m.C"]),
        (
            '"""M."""\nclass C:\n    "C."\n    def f(self):\n        "F."\n'
            'class D(C):\n    "D."\n    def f(self): pass',
            [],
        ),
    ],
)
def test_the_check_finds_names_without_docstrings(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: list[str]
) -> None:
    module = ModuleType("m")
    module.__file__ = "m.py"
    monkeypatch.setitem(sys.modules, "m", module)
    exec(text, vars(module))
    module.__doc__ = vars(module).get("__doc__") or ast.get_docstring(ast.parse(text))
    assert list(undocumented(module)) == expected


def test_the_check_reads_compiled_classes() -> None:
    from congreve.engine.index import index

    assert is_compiled(index.KeyIndex)
    described = [
        name
        for name, member in vars(index.KeyIndex).items()
        if not name.startswith("_") and is_described(member)
    ]
    assert described, "methods of a compiled class are members that help() shows"


def test_every_class_names_its_counterpart_or_is_known_to_have_none() -> None:
    known = set(WITHOUT_COUNTERPART.read_text().split())
    silent = {
        f"{cls.__module__.removeprefix('congreve.')}.{cls.__name__}"
        for folder in COUNTERPARTS
        for cls in classes(f"congreve.{folder}")
        if "RocketMQ" not in (cls.__doc__ or "")
    }
    assert not silent - known, "name the counterpart, or add a line to no_counterpart.txt"
    assert not known - silent, "take these lines out of no_counterpart.txt"


def classes(package: str) -> Iterator[type]:
    for name in modules(package):
        module = importlib.import_module(name)
        if name in SAME_NAMES:
            assert "RocketMQ class of its" in (module.__doc__ or "")
            continue
        for label, value in vars(module).items():
            if (
                inspect.isclass(value)
                and value.__module__ == name
                and not label.startswith("_")
                and not issubclass(value, BaseException)
            ):
                yield value


@pytest.mark.parametrize("package", PACKAGES)
def test_stubs_hold_no_text(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / FOLDERS[package]).rglob("*.pyi"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    assert not wrong, f"the text belongs into the .pyx: {wrong}"
