"""What tables have of a store's topics: an exporter writes it, retention and readers of tables use
it."""

import os
from typing import NamedTuple

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class ExportedQueue(NamedTuple):
    """A table has the messages of a queue up to one that its place in the log names.

    An offset alone names no message: a topic that is deleted and made again has it again.
    """

    end: int
    """The offset after the last message that the table has."""
    last_place: int
    """Where that message is, or was, in this store's log."""


class ExportedTopic(msgspec.Struct):
    """What a table has of a topic."""

    table: str
    """The table's UUID; empty if no table has messages of this topic."""
    queues: dict[int, ExportedQueue]


ExportedTopics = dict[str, ExportedTopic]


class ExportedFile:
    """`ROOT/congreve/exported.json`, sealed. A table has at least these messages."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, "exported.json")
        self._file = StateFile(path, files=files, read_only=read_only)

    def load(self) -> ExportedTopics:
        """What was saved; nothing without a valid file. Raises StoreError."""
        return self._file.load(_parse) or {}

    def replace(self, topics: ExportedTopics) -> None:
        """Save it; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(topics)))


def _parse(text: str) -> ExportedTopics:
    state = unseal(text)
    try:
        return msgspec.json.decode(state, type=ExportedTopics, strict=False)
    except msgspec.ValidationError:
        # An earlier version noted offsets without places, which the next note replaces.
        msgspec.json.decode(state, type=dict[str, dict[int, int]], strict=False)
        return {}
