"""The text of a table's config file; only changed entries are encoded again.

With ten thousand topics the file has two megabytes, and encoding all of it at each change would
block the interpreter for a long time.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from congreve.base.errors import CongreveError
from congreve.broker.errors import RefusedError
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.codes import ResponseCode

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ENTRIES_AT_ONCE = 64
"""The most entries to encode before other threads can run."""


PAGE_BYTES = 1 << 20
"""Characters of a page with which it ends."""


class EntryTexts(Generic[K]):
    """Texts of a table's entries; `encode` returns an entry's text, None when it was removed.

    One thread calls changed() after each change of the table, another one current().
    """

    def __init__(self, encode: Callable[[K], str | None]) -> None:
        self._encode = encode
        self._texts: dict[K, str] = {}
        self._changed: deque[K] = deque()
        self._noted: set[K] = set()  # the keys in _changed

    def changed(self, key: K) -> None:
        """Record that the entry was created, replaced or removed."""
        if key not in self._noted:
            self._noted.add(key)
            self._changed.append(key)

    def current(self) -> dict[K, str]:
        """The texts of all entries, up to date at this call; callers must not edit the result."""
        encoded = 0
        while self._changed:
            key = self._changed.popleft()
            self._noted.discard(key)  # before reading the entry: a later change is recorded again
            try:
                text = self._encode(key)
            except ValueError as error:  # not checked by check_entry()
                logger.error("%.200r cannot be written: %s", key, error)
                text = self._texts.get(key)
            if text is None:
                self._texts.pop(key, None)
            else:
                self._texts[key] = text
            encoded += 1
            if encoded % ENTRIES_AT_ONCE == 0:
                time.sleep(0)
        return self._texts


class TableBody(Generic[K, V]):
    """The body of an answer with a large table, of which only changed entries are written again.

    `empty` returns the body without entries; its only empty object is named `name`. `copied`
    copies an entry, for a table whose entries are edited in place.
    """

    def __init__(
        self,
        table: Mapping[K, V],
        empty: Callable[[], msgspec.Struct],
        name: str,
        copied: Callable[[V], V] = lambda value: value,
    ) -> None:
        self._table = table
        self._empty = empty
        self._name = name
        self._copied = copied
        self._written: dict[K, tuple[V, str]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def encode_steps(self) -> Generator[None, None, bytes]:
        """The encoded body, in steps. Raises BodyError if it is longer than a frame may be."""
        before, _, after = fastjson.dumps(self._empty()).partition(f'"{self._name}":{{}}')
        written: dict[K, tuple[V, str]] = {}
        for number, (key, value) in enumerate(list(self._table.items())):
            known = self._written.get(key)
            if known is None or known[0] != value:
                copy = self._copied(value)
                known = copy, fastjson.dumps({key: copy})[1:-1]
                yield
            elif number % ENTRIES_AT_ONCE == 0:
                yield
            written[key] = known
        self._written = written
        texts = (text for _, text in written.values())
        return (yield from fastjson.object_steps(f'{before}"{self._name}":{{', texts, "}" + after))

    def page_steps(self, first: int, most: int) -> Generator[None, None, tuple[bytes, int]]:
        """The same with `most` entries from number `first` on, fewer of long ones, and the number
        of all entries.

        It has one entry more where only the last one would be left: RocketMQ does not ask for it.
        """
        total = len(self._table)
        most += first + most == total - 1
        entries = list(islice(self._table.items(), first, first + most))
        before, _, after = fastjson.dumps(self._empty()).partition(f'"{self._name}":{{}}')
        if len(self._written) > 2 * total:
            self._written = {}  # most are of removed entries
        texts: list[str] = []
        size = 0
        for number, (key, value) in enumerate(entries):
            known = self._written.get(key)
            if known is None or known[0] != value:
                copy = self._copied(value)
                known = self._written[key] = copy, fastjson.dumps({key: copy})[1:-1]
                yield
            elif number % ENTRIES_AT_ONCE == 0:
                yield
            texts.append(known[1])
            size += len(known[1])
            if size > PAGE_BYTES:
                break
        open_object = f'{before}"{self._name}":{{'
        return (yield from fastjson.object_steps(open_object, texts, "}" + after)), total


def table_texts(table: Mapping[str, msgspec.Struct]) -> EntryTexts[str]:
    """Texts of a table whose entries are replaced, never edited; all entries are new."""

    def encode(name: str) -> str | None:
        value = table.get(name)
        return None if value is None else entry_text(name, value, depth=2)

    texts = EntryTexts(encode)
    for name in table:
        texts.changed(name)
    return texts


def entry_text(key: str, value: Any, depth: int) -> str:
    """A pair of a table as dumps_pretty() writes it `depth` levels deep."""
    pair = fastjson.dumps_pretty({key: value})[len("{\n") : -len("\n}")]
    tabs = "\t" * (depth - 1)
    return tabs + pair.replace("\n", "\n" + tabs)


def object_text(entries: list[str], depth: int) -> str:
    """An object of these pairs, which are `depth` levels deep, as dumps_pretty() writes it."""
    if not entries:
        return "{}"
    return "{\n" + ",\n".join(entries) + "\n" + "\t" * (depth - 1) + "}"


def file_text(empty: msgspec.Struct, name: str, entries: list[str]) -> str:
    """The text of `empty` with these pairs in its only empty object, which is named `name`."""
    before, _, after = fastjson.dumps_pretty(empty).partition(f'"{name}":{{}}')
    return f'{before}"{name}":{object_text(entries, depth=2)}{after}'


def check_entry(key: str, value: Any, read: Callable[[Any], Any]) -> None:
    """Raises RefusedError for an entry that its file would not reproduce.

    `read` converts the result of fastjson.loads() to a table's entries.
    """
    try:
        same = read(fastjson.loads(fastjson.dumps({key: value}).encode())) == {key: value}
    except (ValueError, RecursionError, OverflowError, msgspec.MsgspecError, CongreveError):
        same = False
    if not same:
        text = ascii(key)[:200]
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"{text} cannot be saved: its JSON would not read back"
        )
