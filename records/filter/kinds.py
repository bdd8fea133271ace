"""The kinds of filters, by the name that a subscription gives (RocketMQ: ExpressionType)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, Protocol

from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.program import FilterProgram

TAG, SQL92 = "TAG", "SQL92"
ALL = "*"
"""The expression of tags that lets all messages pass."""


class Compiler(Protocol):
    """Makes programs of expressions; not thread-safe."""

    def steps(self, expression: str) -> Generator[None, None, FilterProgram]:
        """The program, in steps between which other work may be done.

        Raises FilterSyntaxError with line and column.
        """

    def compile(self, expression: str) -> FilterProgram:
        """steps() without pauses."""


class FilterKind(NamedTuple):
    """What a broker does for a kind: it compares the hashes of tags that queues have, or runs the
    programs that `compiler` makes over messages."""

    name: str
    compiler: Callable[[], Compiler] | None = None


def _sql92() -> Compiler:
    # Imported here because only these expressions need the parser (lark).
    from congreve.records.filter.syntax import FilterCompiler

    return FilterCompiler()


FILTERS: Mapping[str, FilterKind] = {
    kind.name: kind for kind in (FilterKind(TAG), FilterKind(SQL92, _sql92))
}


def filter_kind(name: str | None) -> FilterKind:
    """The kind of this name; without a name TAG. Raises FilterSyntaxError for an unknown one."""
    kind = FILTERS.get(name or TAG)
    if kind is None:
        raise FilterSyntaxError(f"unknown filter type {name}: use {' or '.join(FILTERS)}")
    return kind


def is_on_tags(name: str | None) -> bool:
    """Whether a subscription of this kind names tags; False for an unknown kind."""
    return (name or TAG) == TAG


def compiler_of(name: str | None) -> Compiler:
    """A compiler of this kind of expressions. Raises FilterSyntaxError if there is none."""
    compiler = filter_kind(name).compiler
    if compiler is None:
        raise FilterSyntaxError(f"filter type {name} has no programs")
    return compiler()


def split_tags(expression: str) -> list[str]:
    """The tags of an expression ``A || B``."""
    return [tag for part in expression.split("||") if (tag := part.strip())]
