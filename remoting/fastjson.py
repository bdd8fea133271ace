"""The JSON dialect of RocketMQ's bodies and config files (RocketMQ: RemotingSerializable).

Fastjson writes integer keys bare, ``{0:1}``, objects as keys, ``{{"topic":"T"}:1}``, and
``{"$ref":"$.a"}`` for an object that it has written before. Here an object as key is the text of
that object, in reading and in writing alike: ``{'{"topic":"T"}': 1}``.
"""

import re
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from typing import Any

import msgspec

from congreve.remoting.errors import BodyError

MAX_DEPTH = 128

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\s+', re.DOTALL)
_RAW_CONTROL = re.compile(r"[\x00-\x1f]")
_LONE_SURROGATE = re.compile(
    r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\)((?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_REF_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_INTEGER = re.compile(r"-?\d+")


def loads(text: str | bytes) -> Any:
    """Read fastjson's dialect; keys come out as text. Raises BodyError."""
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        if not isinstance(text, str):
            text = bytes(text).decode("utf-8", "replace")
        try:
            tree = msgspec.json.decode(standard(text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BodyError(f"not JSON: {error}: {text[:200]!r}") from error
    marker = '"$ref"' if isinstance(text, str) else b'"$ref"'
    return _resolve(tree, tree, 0) if marker in text else tree  # type: ignore[operator]


def standard(text: str) -> str:
    """The same document in standard JSON: every key a string. Raises BodyError."""
    out: list[str] = []
    suspended: list[list[str]] = []  # outer texts, while an object that is a key is read
    containers: list[str] = []  # "{" an object, "[" an array, "k" an object that is a key
    key_expected = False
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BodyError(f"not JSON at character {position}: {text[position : position + 40]!r}")
        token, position = match.group(), match.end()
        first = token[0]
        if first == '"':
            out.append(_standard_string(token))
            key_expected = False
        elif first in "{[":
            if key_expected:
                suspended.append(out)
                out = []
            containers.append("k" if key_expected and first == "{" else first)
            if len(containers) > MAX_DEPTH:
                raise BodyError(f"JSON nested deeper than {MAX_DEPTH}")
            out.append(first)
            key_expected = first == "{"
        elif first in "}]":
            out.append(first)
            if containers and containers.pop() == "k":
                key = "".join(out)
                out = suspended.pop()
                out.append(_quoted(key))
            key_expected = False
        elif first == ",":
            out.append(first)
            key_expected = bool(containers) and containers[-1] != "["
        elif first == ":" or first.isspace():
            out.append(first if first == ":" else "")
        else:
            out.append(_quoted(token) if key_expected else token)
            key_expected = False
    if suspended:
        raise BodyError(f"JSON ends inside an object that is a key: {text[-40:]!r}")
    return "".join(out)


def _standard_string(token: str) -> str:
    token = _RAW_CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", token)
    return _LONE_SURROGATE.sub(
        lambda found: found.group() if found.group(2) else f"{found.group(3)}?", token
    )


def _resolve(node: Any, root: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise BodyError(f'JSON "$ref" leads into itself, or deeper than {MAX_DEPTH}')
    if isinstance(node, dict):
        if len(node) == 1 and isinstance(node.get("$ref"), str):
            return _resolve(_follow(node["$ref"], root), root, depth + 1)
        return {key: _resolve(value, root, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_resolve(value, root, depth + 1) for value in node]
    return node


def _follow(path: str, root: Any) -> Any:
    """The node at a path such as ``$.a.b[0]``; ``\\`` before a sign in a name takes it as it is."""
    if not path.startswith("$"):
        raise BodyError(f'JSON "$ref" with a path that is not supported: {path!r}')
    node = root
    for name, index in _REF_STEP.findall(path[1:]):
        try:
            node = node[int(index)] if index else node[name]
        except (KeyError, IndexError, TypeError) as error:
            raise BodyError(f'JSON "$ref" leads nowhere: {path!r}') from error
    return node


def dumps(value: Any) -> str:
    """Compact text as fastjson writes it: keys sorted, None left out, integer keys bare."""
    parts: list[str] = []
    _compact(value, parts)
    return "".join(parts)


def dumps_pretty(value: Any) -> str:
    """Text of a config file: tabs, bean and map keys as given, an integer-keyed map on one line."""
    parts: list[str] = []
    _pretty(value, 0, parts)
    return "".join(parts)


def _compact(value: Any, parts: list[str]) -> None:
    if type(value) is int:  # by far the most of what is written
        parts.append(str(value))
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
    return {wire: getattr(value, name) for wire, name in _names(type(value))}


@cache
def _names(struct: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Fields' names on the wire, sorted, and here."""
    return sorted(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))


def _entries(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    entries = [(key, item) for key, item in value.items() if item is not None]
    if all(isinstance(key, str) for key, _ in entries):
        entries.sort(key=itemgetter(0))
    return entries


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key if key.startswith("{") and key.endswith("}") else _quoted(key)
    if isinstance(key, int):
        return str(int(key))
    return dumps(key)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _scalar(value: Any) -> str:
    return msgspec.json.encode(value).decode()
