"""What several tests of this folder need of a source file, read and parsed once."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Contents(NamedTuple):
    """Of a Python file; the tree itself is not kept, because it is large."""

    functions: tuple[tuple[int, str, int], ...]
    """First line, name and number of lines of each."""
    imports: frozenset[str]
    """As they are written: module, or module:name."""
    texts: tuple[str, ...]
    """All string and bytes constants except docstrings."""


@cache
def text_of(path: Path) -> str:
    """The content of a file."""
    return path.read_text(errors="replace")


@cache
def contents_of(path: Path) -> Contents:
    """The contents of a Python file. Raises SyntaxError."""
    functions, imports, texts = [], set[str](), []
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text_of(path))):  # an expression comes before its constant
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append((node.lineno, node.name, size))
            case ast.Import():
                imports |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                base = "." * node.level + (node.module or "")
                imports |= {f"{base}:{alias.name}" for alias in node.names}
            case ast.Expr():
                prose.add(id(node.value))
            case ast.Constant(value=str() | bytes()):
                value = node.value
                text = value.decode("latin-1") if isinstance(value, bytes) else value
                if id(node) not in prose:
                    texts.append(text)
                # The console names what it imports later as "package.module:name".
                imports |= set(re.findall(r"^(congreve(?:\.\w+)+):\w+$", text))
    return Contents(tuple(functions), frozenset(imports), tuple(texts))
