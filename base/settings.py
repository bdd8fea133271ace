"""Tables of settings: structs whose annotations give each field's range and its `Change`.

    class Example(msgspec.Struct, rename="camel"):
        listen_port: Annotated[int, Range(0, 65535)] = 10911
        "The port for clients."
        trace_on: Annotated[bool, Change.NOW] = True
        "Whether answers to sends ask clients to trace."

The text below a field is its meaning, which the reference and `congreve settings` show. A field
without a `Change` changes in its file only, never over the network. Paths and secrets have
`Show.NEVER`, and no request reads them.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, get_origin

import msgspec

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
MAX_TEXT = 4096  # characters
_KEY_MAX = 100  # characters of a key that others are compared with
_LIKENESS = 0.7  # of a key and the one that was meant (difflib's ratio)

# A line of a file or log must stay one line; surrogates cannot be written as UTF-8.
_UNFIT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Range(NamedTuple):
    """The integers that a setting accepts, both ends included."""

    low: int
    high: int


class Change(Enum):
    """When a change over the network takes effect."""

    NOW = "now"
    AFTER_RESTART = "after a restart"


class Show(Enum):
    """Whether requests over the network may read a setting; without a mark they may."""

    NEVER = "never"


class Setting(NamedTuple):
    """One field of a table; `key` is its name in files and on the wire."""

    field: str
    key: str
    type: Any
    range: Range | None
    change: Change | None
    shown: bool = True


class Row(NamedTuple):
    """What a reader of the reference needs to know of one setting.

    `default` and `text` are Markdown's; links in the text begin at docs/. `default` is empty when
    the default is the empty text, or is made at the start: then the text names it.
    """

    owner: str
    key: str
    type: str
    default: str
    change: Change | None
    text: str


_TYPES = {bool: "true or false", int: "whole number", str: "text"}
_CURES = {bool: "use true or false", int: "use a whole number"}


@cache
def table_of(struct: type[msgspec.Struct]) -> dict[str, Setting]:
    """The settings of a struct by key, without fields that are structs (tables of their own)."""
    return {
        field.encode_name: _setting(field)
        for field in msgspec.structs.fields(struct)
        if not (isinstance(field.type, type) and issubclass(field.type, msgspec.Struct))
    }


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    annotated = get_origin(field.type) is not None
    marks = field.type.__metadata__ if annotated else ()
    return Setting(
        field=field.name,
        key=field.encode_name,
        type=field.type.__origin__ if annotated else field.type,
        range=next((mark for mark in marks if isinstance(mark, Range)), None),
        change=next((mark for mark in marks if isinstance(mark, Change)), None),
        shown=Show.NEVER not in marks,
    )


def rows(struct: type[msgspec.Struct], owner: str) -> list[Row]:
    """The settings of a struct, in its order, for `owner`, as the reference calls the struct.

    Reads the struct's source: raises OSError where Python has none.
    """
    texts = _field_texts(struct)
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    return [
        Row(
            owner=owner,
            key=setting.key,
            type=_TYPES[setting.type] + (f", {bounds.low} to {bounds.high}" if bounds else ""),
            default=""
            if defaults[setting.field] in ("", msgspec.NODEFAULT)
            else f"`{as_text(defaults[setting.field])}`",
            change=setting.change,
            text=texts.get(setting.field, ""),
        )
        for setting in table_of(struct).values()
        for bounds in (setting.range,)
    ]


def _field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The text below each field, without its line breaks."""
    (definition,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, below in pairwise(definition.body):
        match (field, below):
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split())
    return texts


def parse(struct: type[msgspec.Struct], texts: Mapping[str, str]) -> dict[str, Any]:
    """Values by field name for the keys that the struct has; check() checks their ranges.

    Raises ValueError for a text that is not of its setting's type.
    """
    table = table_of(struct)
    values = {}
    for key, text in texts.items():
        if key in table:
            try:
                value = msgspec.convert(text.strip(), table[key].type, strict=False)
            except msgspec.ValidationError as error:
                wanted = _CURES.get(table[key].type, str(error))
                raise ValueError(f"{key}={_shown(text)}: {wanted}") from error
            values[table[key].field] = value
    return values


def check(settings: msgspec.Struct) -> None:
    """Raises ValueError for the first setting that is out of range or not one line of text."""
    for setting in table_of(type(settings)).values():
        value = getattr(settings, setting.field)
        bounds = setting.range
        if bounds is not None and not bounds.low <= value <= bounds.high:
            raise ValueError(
                f"{setting.key}={_shown(value)}: use a number from {bounds.low} to {bounds.high}"
            )
        if isinstance(value, str) and (_UNFIT_TEXT.search(value) or len(value) > MAX_TEXT):
            raise ValueError(
                f"{setting.key}={_shown(value)}: use one line of at most {MAX_TEXT} characters "
                "without control characters and surrogates"
            )


def closest_key(key: str, keys: Iterable[str]) -> str | None:
    """The one of `keys` that a misspelled one probably means."""
    close = get_close_matches(key, [*keys], 1, _LIKENESS) if len(key) <= _KEY_MAX else []
    return close[0] if close else None


def check_changeable(
    tables: Mapping[str, Setting], keys: Mapping[str, str], where: str
) -> dict[str, Setting]:
    """The settings of `keys`; `where` names the place to change a key without `Change`.

    Raises ValueError when a key is unknown or may not change over the network.
    """
    for key in keys:
        if key not in tables:
            close = closest_key(key, tables)
            hint = f"did you mean {close}?" if close else "check how the key is spelled"
            raise ValueError(f"{_shown(key)} is not a setting: {hint}")
        if tables[key].change is None:
            raise ValueError(f"{key} cannot be changed over the network: change it in {where}")
    return {key: tables[key] for key in keys}


def as_texts(settings: msgspec.Struct) -> dict[str, str]:
    """Every key with its value as parse() reads it."""
    return {
        key: as_text(getattr(settings, setting.field))
        for key, setting in table_of(type(settings)).items()
    }


def as_text(value: object) -> str:
    """A value as parse() reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
