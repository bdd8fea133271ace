"""The base of typed bodies: reading from JSON and writing to it."""

from collections.abc import Callable, Generator
from functools import cache, partial
from typing import Any, Self

import msgspec
from msgspec import inspect

from congreve.base.fields import Fields
from congreve.remoting.errors import BodyError
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.header import Int32

MAX_DEPTH = 64
"""Objects and arrays within each other in a body; the deepest of the reference's has 7."""


class MessageQueue(Fields, msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on a broker; bodies have it as a value and as a key.

    (RocketMQ: MessageQueue.)
    """

    topic: str
    broker_name: str
    queue_id: Int32


class Body(msgspec.Struct, rename="camel"):
    """A body with types (RocketMQ: RemotingSerializable).

    Reading is as tolerant as the clients of all languages need: unknown fields are ignored, a
    missing field or null is the default, numbers may be text.
    """

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a request's or an answer's body. Raises BodyError."""
        return cls.from_tree(fastjson.loads(data))

    @classmethod
    def from_tree(cls, tree: Any) -> Self:
        """Read the result of fastjson.loads(), which this changes. Raises BodyError."""
        _drop_nulls(tree)
        read_queues = _queue_reader(cls)
        try:
            if read_queues is not None:
                tree = read_queues(tree)
            return msgspec.convert(tree, cls, strict=False)
        except (msgspec.ValidationError, OverflowError) as error:
            raise BodyError(f"{cls.__name__}: {error}") from error

    def encode(self) -> bytes:
        """Compact JSON in fastjson's dialect; what is None is left out."""
        return fastjson.dumps(self).encode()

    def encode_steps(self) -> Generator[None, None, bytes]:
        """encode() as a generator: its caller may do other work between two steps."""
        return (yield from fastjson.dump_steps(self))


def _drop_nulls(tree: Any) -> None:
    """Leave null out of all objects, in place and without recursion, as deep as MAX_DEPTH."""
    layer = [tree]
    for _ in range(MAX_DEPTH + 1):
        layer = [node for node in layer if type(node) is dict or type(node) is list]
        if not layer:
            return
        below: list[Any] = []
        for node in layer:
            if type(node) is list:
                below += node
                continue
            if None in node.values():
                for key in [key for key, item in node.items() if item is None]:
                    del node[key]
            below += node.values()
        layer = below
    raise BodyError(f"JSON nested deeper than {MAX_DEPTH}")


# --- keys that are queues

_Reader = Callable[[Any], Any]


@cache
def _queue_reader(cls: type[Body]) -> _Reader | None:
    """A function that turns keys of a tree into MessageQueue where `cls` has such keys; None if it
    has none."""
    return _reader(inspect.type_info(cls))


def _reader(kind: inspect.Type) -> _Reader | None:
    if isinstance(kind, inspect.StructType):
        found = {field.encode_name: _reader(field.type) for field in kind.fields}
        fields = {name: read for name, read in found.items() if read is not None}
        return partial(_read_fields, fields) if fields else None
    if isinstance(kind, inspect.ListType):
        item = _reader(kind.item_type)
        return None if item is None else partial(_read_items, item)
    if isinstance(kind, inspect.DictType):
        values = _reader(kind.value_type)
        if isinstance(kind.key_type, inspect.StructType):
            return _read_table
        return None if values is None else partial(_read_values, values)
    return None


def _read_fields(readers: dict[str, _Reader], node: Any) -> Any:
    if isinstance(node, dict):
        for name, read in readers.items():
            if name in node:
                node[name] = read(node[name])
    return node


def _read_items(read: _Reader, node: Any) -> Any:
    return [read(item) for item in node] if isinstance(node, list) else node


def _read_values(read: _Reader, node: Any) -> Any:
    return {key: read(item) for key, item in node.items()} if isinstance(node, dict) else node


def _read_table(node: Any) -> Any:
    return {_queue(key): item for key, item in node.items()} if isinstance(node, dict) else node


def _queue(key: str) -> MessageQueue:
    try:
        return msgspec.convert(fastjson.loads(key), MessageQueue, strict=False)
    except (msgspec.ValidationError, BodyError) as error:
        raise BodyError(f"the key {key[:200]!r} is not a queue: {error}") from error
