"""A store's files as they lie in its folder, for programs that only read (no lock, no recovery)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from congreve.engine.errors import StoreFormatError
from congreve.engine.format import CONSUME_QUEUE_ENTRY, FILLER_SIZE
from congreve.io_backends.mapping import Mapping


class StoreFiles:
    """The commit log and consume queues under one storePathRootDir, read while a broker may write.

    Segments are mapped when they are first asked for and stay mapped as long as this object lives.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        folder = root / "commitlog"
        if not folder.is_dir():
            raise StoreFormatError(f"{root} is no store: it has no commitlog folder")
        self._segments = _numbered(folder)
        self._segment_size = self._segments[0][1].stat().st_size if self._segments else 0
        self._mapped: dict[int, Mapping] = {}

    def queues(self, topic: str) -> list[int]:
        """Ids of the topic's queues, ascending; StoreFormatError when there is no such topic."""
        folder = self._root / "consumequeue" / topic
        if not folder.is_dir():
            raise StoreFormatError(f"{self._root} holds no topic {topic!r}")
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())

    def entries(self, topic: str, queue_id: int) -> tuple[int, np.ndarray[Any, Any]]:
        """(first offset, entries) of a queue; the dtype is CONSUME_QUEUE_ENTRY."""
        files = _numbered(self._root / "consumequeue" / topic / str(queue_id))
        parts = [
            Mapping(str(path), path.stat().st_size, writable=False).array(CONSUME_QUEUE_ENTRY)
            for _, path in files
        ]
        if not parts:
            return 0, np.empty(0, CONSUME_QUEUE_ENTRY)
        entries = parts[0] if len(parts) == 1 else np.concatenate(parts)
        first = files[0][0] // CONSUME_QUEUE_ENTRY.itemsize
        # Written entries stand in front; filler (of a queue that began later) has no record.
        written = (
            int(np.argmin(entries["size"] > 0)) if (entries["size"] == 0).any() else len(entries)
        )
        start = int(np.argmax(entries["size"][:written] != FILLER_SIZE)) if written else 0
        return first + start, entries[start:written]

    def record(self, physical_offset: int, size: int) -> memoryview:
        """The bytes of one record; StoreFormatError when its segment is gone."""
        base = physical_offset - physical_offset % self._segment_size
        if base not in self._mapped:
            self._mapped[base] = self._map(base)
        start = physical_offset - base
        return memoryview(self._mapped[base])[start : start + size]

    def _map(self, base: int) -> Mapping:
        for offset, path in self._segments:
            if offset == base:
                return Mapping(str(path), self._segment_size, writable=False)
        raise StoreFormatError(f"{self._root} has no segment for physical offset {base} any more")


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """(number, path) of the files named by twenty digits, ascending."""
    return sorted(
        (int(path.name), path)
        for path in folder.iterdir()
        if path.name.isdigit() and len(path.name) == 20
    )
