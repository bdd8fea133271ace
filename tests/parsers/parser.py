"""The description of a parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from congreve.base.errors import CongreveError


class Parser(NamedTuple):
    """`parse` may raise only `refuses`; `modules` are the files whose code it runs.

    `inflates`: bytes that it may produce from any input. `fields`: names of JSON members in which
    costly inputs are tried, too. `slowness`: factor on the allowed CPU time; more than 1 only when
    the length is limited and the work is done in pieces.
    """

    name: str
    modules: tuple[str, ...]
    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]
    refuses: tuple[type[Exception], ...] = (CongreveError,)
    inflates: int = 0
    fields: tuple[str, ...] = ()
    slowness: float = 1


def text(data: bytes) -> str:
    """The input as UTF-8."""
    return data.decode("utf-8", "replace")


def field_names(cls: type) -> tuple[str, ...]:
    """The JSON members of a struct."""
    found: tuple[str, ...] = cls.__struct_encode_fields__
    return found
