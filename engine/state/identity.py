"""Which store this is: a random id that stays with its folder."""

import os
import uuid

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

IDENTITY_FILE = "identity.json"


class IdentityFile:
    """`ROOT/congreve/identity.json`, sealed: 32 hexadecimal digits.

    A store gets its id at its first start, also one that RocketMQ or an earlier version made.
    """

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, IDENTITY_FILE)
        self._file = StateFile(path, files=files, read_only=read_only)

    def load(self) -> str | None:
        """The id; None without a valid file. Raises StoreError."""
        return self._file.load(_parse)

    def load_or_make(self) -> str:
        """The id; a store without one gets one, durably. Raises StoreError."""
        known = self.load()
        if known is not None:
            return known
        made = uuid.uuid4().hex
        self._file.replace(seal(msgspec.json.encode(made)))
        return made


def _parse(text: str) -> str:
    return uuid.UUID(msgspec.json.decode(unseal(text), type=str)).hex
