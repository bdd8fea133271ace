"""The state that a key index saves when it is closed."""

import os

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class IndexState(msgspec.Struct):
    """All records below `indexed` are in the index, whose files have these CRC-32 by name.

    `begin` was the log's first offset: if the log begins later now, missing files have expired.
    """

    begin: int = 0
    indexed: int = 0
    sums: dict[str, int] = {}


class IndexStateFile:
    """`ROOT/congreve/index.json`, sealed."""

    def __init__(self, own_dir: str, files: FileSystem = DISK) -> None:
        self._file = StateFile(os.path.join(own_dir, "index.json"), files=files)

    def load(self) -> IndexState | None:
        """The saved state; None without a valid one. Raises StoreError."""
        return self._file.load(lambda text: msgspec.json.decode(unseal(text), type=IndexState))

    def replace(self, state: IndexState) -> None:
        """Save the state; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(state)))
