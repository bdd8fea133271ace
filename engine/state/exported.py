"""The offsets up to which tables have a store's topics: an exporter writes them, retention reads
them."""

import os

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

EndOffsets = dict[str, dict[int, int]]
"""By topic and queue id: the offset after the last message that a table has."""


class ExportedFile:
    """`ROOT/congreve/exported.json`, sealed. A table has at least the messages before these
    offsets."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, "exported.json")
        self._file = StateFile(path, files=files, read_only=read_only)

    def load(self) -> EndOffsets:
        """The saved offsets; none without a valid file. Raises StoreError."""
        return self._file.load(_parse) or {}

    def replace(self, ends: EndOffsets) -> None:
        """Save the offsets; they are durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(ends)))


def _parse(text: str) -> EndOffsets:
    return msgspec.json.decode(unseal(text), type=EndOffsets, strict=False)
