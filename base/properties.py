"""Java properties files: broker.conf, tls.properties, settings of name servers and of mqadmin.

Follows java.util.Properties: `#` and `!` comments, `key=value`, `key:value` and `key value`,
backslash escapes and continued lines. The text is UTF-8 rather than Latin-1, as people write it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from congreve.base.errors import CongreveError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_KEY_SIGNS = _BLANKS + "=:#!\\"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(CongreveError):
    """A text that is no properties file."""


class Property(NamedTuple):
    """One entry on the lines [first_line, last_line], counted from 1."""

    key: str
    value: str
    first_line: int
    last_line: int


def parse(text: str) -> list[Property]:
    """All entries in the order of the text. Raises PropertiesError for a broken \\u escape."""
    return list(_entries(text))


def values(text: str) -> dict[str, str]:
    """The last value of each key, without blanks at its end. Raises what parse() raises."""
    return {entry.key: entry.value.strip() for entry in _entries(text)}


def format_values(texts: Mapping[str, str]) -> str:
    """One line for each key, sorted, which values() reads back."""
    return "".join(f"{render(key, texts[key])}\n" for key in sorted(texts))


def replace_values(text: str, changes: Mapping[str, str]) -> str:
    """`text` with new values for the keys of `changes`; comments and other lines stay.

    A repeated key keeps only its last place; new keys are appended.
    """
    last = {entry.key: entry for entry in _entries(text) if entry.key in changes}
    dropped = {
        number
        for entry in _entries(text)
        if entry.key in changes
        for number in range(entry.first_line, entry.last_line + 1)
    }
    at_line = {entry.first_line: entry.key for entry in last.values()}
    lines: list[str] = []
    for number, line in enumerate(_lines(text), start=1):
        if number in at_line:
            lines.append(render(at_line[number], changes[at_line[number]]))
        elif number not in dropped:
            lines.append(line)
    lines += [render(key, value) for key, value in changes.items() if key not in last]
    return "\n".join(lines) + "\n"


def render(key: str, value: str) -> str:
    """One line that parse() reads back as (key, value)."""
    escaped = _escape(value, "\\")
    if escaped[:1] in tuple(_BLANKS):
        escaped = "\\" + escaped
    return f"{_escape(key, _KEY_SIGNS)}={escaped}"


def _escape(text: str, signs: str) -> str:
    out = "".join("\\" + c if c in signs else c for c in text)
    return out.replace("\n", "\\n").replace("\r", "\\r")


def _entries(text: str) -> Iterator[Property]:
    for line, first, last in _logical_lines(text):
        key, value = _split(line)
        yield Property(_unescape(key, first), _unescape(value, first), first, last)


def _lines(text: str) -> list[str]:
    lines = _LINE_END.split(text)
    return lines[:-1] if not lines[-1] else lines


def _logical_lines(text: str) -> Iterator[tuple[str, int, int]]:
    pending, first = "", 0
    number = 0
    for number, raw in enumerate(_lines(text), start=1):
        line = raw.lstrip(_BLANKS)
        if first == 0:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line, first, number
        pending, first = "", 0
    if first:
        yield pending, first, number


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        escape = text[at + 1 : at + 2]
        if escape != "u":
            out.append(_ESCAPES.get(escape, escape))
            at += 2
            continue
        digits = text[at + 2 : at + 6]
        try:
            if len(digits) != 4:
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
        except ValueError as error:
            raise PropertiesError(
                f"line {line}: \\u{digits} is not an escape: write \\u and four hex digits"
            ) from error
        at += 6
    return "".join(out)
