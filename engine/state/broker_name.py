"""Whose store it is, for programs that read its files."""

import os

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class BrokerNameFile:
    """`ROOT/congreve/brokerName.json`, sealed: `brokerName` at the last start."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, "brokerName.json")
        self._file = StateFile(path, files=files, read_only=read_only)

    def load(self) -> str | None:
        """The name; None without a valid file. Raises StoreError."""
        return self._file.load(_parse)

    def keep(self, name: str) -> None:
        """Write the name, durably, if the file has another. Raises StoreError."""
        if self.load() != name:
            self._file.replace(seal(msgspec.json.encode(name)))


def _parse(text: str) -> str:
    return msgspec.json.decode(unseal(text), type=str)
