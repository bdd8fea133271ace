"""Where a reader of a store's files has found damage, for the broker that uses the store."""

import os

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile

PLACES_MAX = 10_000


class FoundDamage:
    """`ROOT/congreve/found-damage.json`, sealed: physical offsets, until the broker takes them.

    (RocketMQ has no counterpart.)
    """

    def __init__(self, own_dir: str, files: FileSystem = DISK) -> None:
        self._file = StateFile(os.path.join(own_dir, "found-damage.json"), files=files)
        self._files = files

    def tell(self, places: list[int]) -> None:
        """Leave the first PLACES_MAX of these offsets, instead of earlier ones.

        Raises StoreError.
        """
        self._file.replace(seal(msgspec.json.encode(places[:PLACES_MAX])))

    def take(self) -> list[int]:
        """The offsets, which are gone then; empty without a valid file. Raises StoreError."""
        if not self._files.exists(self._file.path):
            return []
        places = self._file.load(_parse)
        self._file.remove()
        return [] if places is None else places[:PLACES_MAX]


def _parse(text: str) -> list[int]:
    return msgspec.json.decode(unseal(text), type=list[int])
