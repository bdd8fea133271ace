"""What every typed body can do: come from its JSON and go back into it."""

from typing import Any, Self

import msgspec

from congreve.remoting import fastjson
from congreve.remoting.errors import BodyError


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on a broker; bodies have it as a value and as a key."""

    topic: str
    broker_name: str
    queue_id: int


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
        """Read what fastjson.loads() returned. Raises BodyError."""
        try:
            return msgspec.convert(_prepared(tree), cls, strict=False)
        except msgspec.ValidationError as error:
            raise BodyError(f"{cls.__name__}: {error}") from error

    def encode(self) -> bytes:
        """Compact JSON in fastjson's dialect; what is None is left out."""
        return fastjson.dumps(self).encode()


def _prepared(tree: Any) -> Any:
    """Without null, and with keys that are queues as MessageQueue."""
    if isinstance(tree, dict):
        return {_key(key): _prepared(item) for key, item in tree.items() if item is not None}
    if isinstance(tree, list):
        return [_prepared(item) for item in tree]
    return tree


def _key(key: str) -> str | MessageQueue:
    if not key.startswith("{"):
        return key
    try:
        return msgspec.convert(fastjson.loads(key), MessageQueue, strict=False)
    except msgspec.ValidationError as error:
        raise BodyError(f"the key {key!r} is no queue: {error}") from error
