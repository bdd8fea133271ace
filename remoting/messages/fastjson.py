"""The JSON dialect of RocketMQ's bodies and config files (RocketMQ: RemotingSerializable).

Fastjson writes integer keys bare, ``{0:1}``, and objects as keys, ``{{"topic":"T"}:1}``. Reading
gives such a key as the text of that object; `body` makes a queue of it where the type asks for one.
Writing takes an object as a key from a struct alone, never from text, whatever the text looks like.

Fastjson can write ``{"$ref":"$.a"}`` for an object that it has written before. No request and no
answer of 4.9.4 has such an object, so ``$ref`` is a name like any other.
"""

import heapq
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import BytesIO
from itertools import chain, islice
from operator import itemgetter
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from congreve.remoting.errors import BodyError

# Possessive, so that no text causes backtracking; a string without an end matches the rest.
_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_NOT_STANDARD = re.compile(
    rf"""{_STRING}
    | \{{(?:[^{{}}"]++|{_STRING})*+\}}(?=\s*+:)     # an object without others in it, as a key
    | (?<=[{{,])\s*+[^\s{{}}\[\],:"]++(?=\s*+:)     # a bare key
    """,
    re.DOTALL | re.VERBOSE,
)
_UNUSUAL = re.compile(r"[\x00-\x1f]|\\u[dD]")
_ESCAPED_CONTROLS = {sign: f"\\u{sign:04x}" for sign in range(0x20)}
_LONE_SURROGATE = re.compile(
    r"(?<!\\)((?:\\\\)*+)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\)((?:\\\\)*+)\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


FURTHER = "further"
"""The field of a struct that has members beside its fields, which are written among them."""

_PARTS_MAX = 1_024
_LONG_PART = 4_096
_WRITTEN_MAX = 16 * 1024 * 1024
_SORTED_AT_ONCE = 1_024


def loads(text: str | bytes) -> Any:
    """Read fastjson's dialect; keys come out as text. Raises BodyError.

    Time and memory follow the length of the text.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError as error:
        raise BodyError(f"JSON nested too deep: {text[:200]!r}") from error
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", "replace")
    try:
        return msgspec.json.decode(standard(text))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BodyError(f"not JSON: {error}: {text[:200]!r}") from error
    except RecursionError as error:
        raise BodyError(f"JSON nested too deep: {text[:200]!r}") from error


def standard(text: str) -> str:
    """The same document in standard JSON: every key a string.

    An object that is a key may not hold another; such a text, like any text that is not JSON, stays
    invalid. Raises UnicodeError if a key cannot be UTF-8.
    """
    return _NOT_STANDARD.sub(_standard_piece, text)


def _standard_piece(found: re.Match[str]) -> str:
    piece = found.group()
    if piece[0] != '"':
        return _quoted(piece.strip())
    return _standard_string(piece) if _UNUSUAL.search(piece) else piece


def _standard_string(piece: str) -> str:
    return _LONE_SURROGATE.sub(
        lambda found: found.group() if found.group(2) else f"{found.group(3)}?",
        piece.translate(_ESCAPED_CONTROLS),
    )


def dumps(value: Any) -> str:
    """Compact text as fastjson writes it: keys sorted, None left out, integer keys bare."""
    parts: list[str] = []
    _compact(value, parts)
    return "".join(parts)


class Written(str):
    """Text that is JSON already: it is written as it is."""

    __slots__ = ()


def dump_steps(value: Any) -> Generator[None, None, bytes]:
    """dumps() as a generator, a step an entry; returns UTF-8 bytes.

    Its caller may do other work between two steps. Raises BodyError if the text grows longer
    than a frame may be.
    """
    written = BytesIO()  # getvalue() makes no copy of its bytes
    parts: list[str] = []
    for _ in _compact_steps(value, parts):
        if len(parts) > _PARTS_MAX or (parts and len(parts[-1]) > _LONG_PART):
            _write(written, parts)
            parts.clear()
        yield
    _write(written, parts)
    return written.getvalue()


def object_steps(before: str, entries: Iterable[str], after: str) -> Generator[None, None, bytes]:
    """An object of these texts of entries between two texts, in steps; returns UTF-8 bytes.

    Raises BodyError if the text grows longer than a frame may be.
    """
    written = BytesIO()
    texts = iter(entries)
    separator = before
    while part := list(islice(texts, _PARTS_MAX)):
        _write(written, (separator, ",".join(part)))
        separator = ","
        yield
    _write(written, (before if separator is before else "", after))
    return written.getvalue()


def list_steps(
    before: bytes, items: Sequence[Sequence[bytes]], after: bytes
) -> Generator[None, None, bytes]:
    """A list of these texts, each in pieces, between two texts, in steps.

    Raises BodyError if the text grows longer than a frame may be.
    """
    length = len(before) + max(len(items) - 1, 0) + len(after)
    for item in items:
        length += sum(map(len, item))
        yield
    _check_length(length)
    # The pages of a buffer of the whole length become memory in the steps that write to them. A
    # buffer that grows is copied in one step.
    written = BytesIO(bytes(length))
    separator = before
    for item in items:
        written.write(separator)
        for text in item:  # joined, a large item would be written in one step
            written.write(text)
            yield
        separator = b","
    written.write(b"" if items else before)
    written.write(after)
    return written.getvalue()


def _write(written: BytesIO, parts: Iterable[str]) -> None:
    _write_bytes(written, "".join(parts).encode())


def _write_bytes(written: BytesIO, data: bytes) -> None:
    written.write(data)
    _check_length(written.tell())


def _check_length(length: int) -> None:
    if length > _WRITTEN_MAX:
        raise BodyError(f"a JSON text of more than {_WRITTEN_MAX} bytes fits into no frame")


def dumps_pretty(value: Any) -> str:
    """Text of a config file: tabs, bean and map keys as given, an integer-keyed map on one line."""
    parts: list[str] = []
    _pretty(value, 0, parts)
    return "".join(parts)


def _compact(value: Any, parts: list[str]) -> None:
    if type(value) is int:  # by far the most of what is written
        parts.append(str(value))
        return
    if isinstance(value, msgspec.Struct) and (fields := _scalars(value)) is not None:
        parts.append(_flat_text(value, fields))
        return
    value = _members(value)
    if isinstance(value, Mapping):
        separator = "{"
        for key, item in _entries(value):
            parts.append(f"{separator}{_key(key)}:")
            _compact(item, parts)
            separator = ","
        parts.append("{}" if separator == "{" else "}")
    elif isinstance(value, list | tuple | set | frozenset):
        separator = "["
        for item in value:
            parts.append(separator)
            _compact(item, parts)
            separator = ","
        parts.append("[]" if separator == "[" else "]")
    else:
        parts.append(_scalar(value))


def _compact_steps(value: Any, parts: list[str]) -> Generator[None, None, None]:
    """_compact() for what may be large; structs of scalars are encoded in one call."""
    if isinstance(value, msgspec.Struct) and (fields := _scalars(value)) is not None:
        parts.append(_flat_text(value, fields))
        yield
        return
    if isinstance(value, Written):
        parts.append(value)
        yield
        return
    value = _members(value)
    if isinstance(value, Mapping):
        separator = "{"
        entries = yield from _entry_steps(value)
        for key, item in entries:
            parts.append(f"{separator}{_key(key)}:")
            yield from _compact_steps(item, parts)
            separator = ","
        parts.append("{}" if separator == "{" else "}")
    elif isinstance(value, list | tuple | set | frozenset):
        separator = "["
        for item in value:
            parts.append(separator)
            yield from _compact_steps(item, parts)
            separator = ","
        parts.append("[]" if separator == "[" else "]")
    else:
        parts.append(_scalar(value))
        yield


def _entry_steps(
    value: Mapping[Any, Any],
) -> Generator[None, None, Iterable[tuple[Any, Any]]]:
    """_entries(), of which no more than _SORTED_AT_ONCE are sorted in one step."""
    if len(value) <= _SORTED_AT_ONCE:
        return _entries(value)
    runs = []
    entries = iter(value.items())
    while run := list(islice(entries, _SORTED_AT_ONCE)):
        runs.append(_entries(dict(run)))
        yield
    taken = [_taken(run) for run in runs]
    if not isinstance(next(iter(value)), str):
        return chain.from_iterable(taken)
    return heapq.merge(*taken, key=itemgetter(0))


def _taken(run: list[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The entries of a run, which is freed on the way: all of it at the end would take long."""
    run.reverse()
    while run:
        yield run.pop()


def _scalars(value: msgspec.Struct) -> list[tuple[str, str]] | None:
    """_flat() of a struct that has no members beside its fields."""
    return None if getattr(value, FURTHER, None) else _flat(type(value))


@cache
def _flat(struct: type[msgspec.Struct]) -> list[tuple[str, str]] | None:
    """How each field of a struct without containers begins, and its name here; else None."""
    kinds = get_type_hints(struct)
    if not all(_is_scalar(kind) for name, kind in kinds.items() if name != FURTHER):
        return None
    return [(f"{_quoted(wire)}:", name) for wire, name in _names(struct)]


def _flat_text(value: msgspec.Struct, fields: list[tuple[str, str]]) -> str:
    members = []
    for begin, name in fields:
        item = getattr(value, name)
        if item is not None:
            text = dumps(item) if type(item) is dict else _scalar(item)
            members.append(begin + (str(item) if type(item) is int else text))
    return f"{{{','.join(members)}}}"


def _is_scalar(kind: Any) -> bool:
    """Whether a field holds a scalar, or a few texts that most structs do not have."""
    if kind == dict[str, str] | None:
        return True
    kinds = set(get_args(kind)) if get_origin(kind) is UnionType else {kind}
    return kinds <= {int, str, bool, float, type(None)}


def _pretty(value: Any, depth: int, parts: list[str]) -> None:
    if type(value) is int:
        parts.append(str(value))
        return
    value = _members(value)
    if not isinstance(value, Mapping) or all(item is None for item in value.values()):
        _compact(value, parts)
        return
    integers = all(isinstance(key, int) for key in value)
    opening = "" if integers else "\n" + "\t" * (depth + 1)
    separator = "{"
    for key, item in value.items():
        if item is not None:
            parts.append(f"{separator}{opening}{_key(key)}:")
            _pretty(item, depth + 1, parts)
            separator = ","
    parts.append("\n" + "\t" * depth + "}")


def _members(value: Any) -> Any:
    """A struct's fields under their names on the wire, sorted; any other value as it is."""
    if not isinstance(value, msgspec.Struct):
        return value
    members = {wire: getattr(value, name) for wire, name in _names(type(value))}
    further = getattr(value, FURTHER, None)
    return dict(sorted((members | further).items())) if further else members


@cache
def _names(struct: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Fields' names on the wire, sorted, and here."""
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    return sorted(pair for pair in names if pair[1] != FURTHER)


def _entries(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    entries = [(key, item) for key, item in value.items() if item is not None]
    if all(isinstance(key, str) for key, _ in entries):
        entries.sort(key=itemgetter(0))
    return entries


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _quoted(key)
    if isinstance(key, int):
        return str(int(key))
    return dumps(key)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _scalar(value: Any) -> str:
    return msgspec.json.encode(value).decode()
