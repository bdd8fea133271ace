"""Costly inputs, and a mutator of ordinary ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Maker = Callable[[int], bytes]


def _repeated(piece: bytes, head: bytes = b"", tail: bytes = b"") -> Maker:
    return lambda size: head + piece * max(size // len(piece), 1) + tail


def _nested(opening: bytes, closing: bytes, core: bytes = b"") -> Maker:
    def make(size: int) -> bytes:
        depth = max(size // (len(opening) + len(closing)), 1)
        return opening * depth + core + closing * depth

    return make


def _counted(line: str, head: bytes = b"", tail: bytes = b"") -> Maker:
    """`line` with a number in it, a comma after each but the last."""

    def make(size: int) -> bytes:
        pieces: list[bytes] = []
        length = 0
        while length < size:
            pieces.append(line.format(len(pieces)).encode())
            length += len(pieces[-1]) + 1
        return head + b",".join(pieces) + tail

    return make


def _colliding(size: int) -> bytes:
    """Bare integer keys of one hash in a Python dict."""
    keys: list[bytes] = []
    length = 0
    while length < size:
        keys.append(b"%d:1" % (len(keys) * (2**61 - 1)))
        length += len(keys[-1]) + 1
    return b"{" + b",".join(keys) + b"}"


QUEUE = b'{"brokerName":"b","queueId":%d,"topic":"T"}'

JSON: dict[str, Maker] = {
    "arrays that do not end": _repeated(b"["),
    "objects that do not end": _repeated(b"{"),
    "deep arrays": _nested(b"[", b"]"),
    "deep objects": _nested(b'{"a":', b"}", b"1"),
    "objects as keys of each other": _nested(b"{", b":1}"),
    "objects with a name as keys of each other": _nested(b'{{"a":1}:', b"}", b"1"),
    "empty arrays": _repeated(b"[],", b"[", b"[]]"),
    "empty objects": _repeated(b"{},", b"[", b"{}]"),
    "small objects": _repeated(b'{"":{"":1}},', b"[", b"1]"),
    "small arrays": _repeated(b"[[[1]]],", b"[", b"1]"),
    "many keys": _counted('"{}":{{}}', b"{", b"}"),
    "many bare keys": _counted("{}:[]", b"{", b"}"),
    "one key many times": _repeated(b'"a":[],', b"{", b'"a":1}'),
    "many queues as keys": _counted('{{"brokerName":"b","queueId":{},"topic":"T"}}:1', b"{", b"}"),
    "empty objects as keys": _repeated(b"{}:1,", b"{", b"{}:1}"),
    "keys of one hash": _colliding,
    "digits": _repeated(b"9"),
    "a fraction": _repeated(b"0", b"0.", b"1"),
    "an exponent": _repeated(b"9", b"1e"),
    "large numbers": _repeated(b"9" * 300 + b",", b"[", b"1]"),
    "escapes": _repeated(b"\\\\", b'"', b'"'),
    "quotes that are escaped": _repeated(b'\\"', b'"'),
    "quotes": _repeated(b'"'),
    "escaped zeros": _repeated(b"\\u0000", b'"', b'"'),
    "halves of surrogates": _repeated(b"\\ud800", b'["', b'"]'),
    "backslashes, then half a surrogate": _repeated(b"\\\\", b'"', b'\\ud800"'),
    "raw control characters": _repeated(b"\x01", b'{"a":"', b'"}'),
    "short strings with raw control characters": _repeated(b'"\x01",', b"[", b"1]"),
    "short strings beyond ASCII": _repeated('"\u20ac",'.encode(), b"[", b"1]"),
    "one wide sign": _repeated(b"a", '["\U0001f600'.encode(), b'",\x01]'),
    "no UTF-8": _repeated(b"\xff", b'"', b'"'),
    "spaces": _repeated(b" ", b"{", b":1}"),
    "spaces after objects": _repeated(b"{}   ", b"["),
    "colons": _repeated(b":", b"{"),
    "commas": _repeated(b","),
    "bare words": _repeated(b"a:", b"{"),
    "a chain of references": _counted('"{0}":[{{"$ref":"$.{0}"}},{{"$ref":"$.{0}"}}]', b"{", b"}"),
}

TEXT: dict[str, Maker] = {
    "backslashes": _repeated(b"\\"),
    "lines that go on": _repeated(b"a\\\n"),
    "empty lines that go on": _repeated(b"\\\n"),
    "equal signs": _repeated(b"="),
    "line ends": _repeated(b"\r\n"),
    "settings": _counted("a{}=b\n", b"", b""),
    "settings of one name": _repeated(b"a=b\n"),
    "escapes of a properties file": _repeated(b"\\u0041", b"a="),
    "words": _repeated(b"a "),
    "words of no space": _repeated(b"a"),
    "tags": _counted("a{} ||"),
    "bars": _repeated(b"||"),
    "parentheses": _repeated(b"("),
    "pairs of parentheses": _nested(b"(", b")", b"a = 1"),
    "plus signs": _repeated(b"+"),
    "a sum": _repeated(b"1 + ", b"a > ", b"1"),
    "NOT": _repeated(b"NOT ", b"", b"a = 1"),
    "AND": _repeated(b"a = 1 AND ", b"", b"a = 1"),
    "BETWEEN": _repeated(b"a BETWEEN 1 AND 2 OR ", b"", b"a = 1"),
    "IN": _counted("'{}'", b"a IN (", b")"),
    "quotes of a filter": _repeated(b"'"),
    "a long text of a filter": _repeated(b"''", b"a = '", b"'"),
    "at signs": _repeated(b"@"),
    "percent signs": _repeated(b"%"),
    "delays": _repeated(b"1s "),
    "hours": _repeated(b"04;"),
    "semicolons": _repeated(b";"),
}

BINARY: dict[str, Maker] = {
    "zeros": _repeated(b"\0"),
    "ones": _repeated(b"\xff"),
    "the longest length": _repeated(b"\x7f\xff\xff\xff"),
    "the least length": _repeated(b"\x80\0\0\0"),
    "short lengths": _repeated(b"\0\0\0\1"),
    "lengths of 2 bytes": _repeated(b"\0\1"),
    "separators of names": _repeated(b"\1"),
    "separators of properties": _repeated(b"\2"),
    "properties": _repeated(b"a\1b\2"),
    "properties without a value": _repeated(b"a\1\2"),
    "registered topics": lambda size: (
        b"\0\0\0\2{}" + (size // 13).to_bytes(4, "big") + b"\0\0\0\x09T 1 1 6 S" * (size // 13)
    ),
    "fields of a binary header": lambda size: (
        b"\0\x0a\0\0\0" + bytes(8) + bytes(4) + size.to_bytes(4, "big") + bytes(size)
    ),
}

COSTLY: dict[str, Maker] = {**JSON, **TEXT, **BINARY}

_TOKENS = (
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u", b"null", b"1e999", b"-", b"$ref"),
    *(b"\0", b"\1", b"\2", b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff"),
    *(
        b"(",
        b")",
        b"'",
        b" AND ",
        b"9223372036854775808",
        b"||",
        b"=",
        b"\n",
        b" ",
        b"\xed\xa0\x80",
    ),
)


def mutated(seed: bytes, randomness: random.Random) -> bytes:
    """`seed` with some bits, bytes and pieces changed."""
    data = bytearray(seed)
    for _ in range(randomness.randint(1, 6)):
        at = randomness.randint(0, len(data))
        end = min(len(data), at + randomness.choice((1, 2, 4, 8, 64)))
        kind = randomness.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << randomness.randrange(8)
        elif kind == 1:
            data[at:at] = randomness.choice(_TOKENS) * randomness.choice((1, 1, 1, 100))
        elif kind == 2:
            data[at:end] = randomness.choice(_TOKENS)
        elif kind == 3:
            del data[at:end]
        elif kind == 4:
            data[at:at] = data[at:end] * randomness.choice((1, 2, 50))
        elif kind == 5:
            del data[at:]
        else:
            data[at:end] = randomness.randbytes(end - at)
    return bytes(data)


def mutations(seeds: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    randomness = random.Random(seed)
    for _ in range(count):
        yield mutated(randomness.choice(seeds), randomness)
