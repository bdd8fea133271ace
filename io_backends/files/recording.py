"""A file system that records its calls."""

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from congreve.io_backends.files.file_system import FileSystem
from congreve.io_backends.files.intercepted import InterceptedFileSystem

T = TypeVar("T")

#: Calls that change nothing on disk.
READS = frozenset(
    {"open", "read", "next_data", "record_lock", "lock", "map"}
    | {"status", "exists", "is_folder", "real_path", "entries"}
)


class Call(NamedTuple):
    """One call: its name, the path below the root, and its bytes (0 if it has none)."""

    name: str
    path: str
    size: int


class RecordingFileSystem(InterceptedFileSystem):
    """Keeps the calls on paths below `root`, in order, also those that fail."""

    def __init__(self, inner: FileSystem, root: str) -> None:
        super().__init__(inner)
        self._root = root.rstrip("/")
        self.calls: list[Call] = []
        """All calls so far."""

    def note(self, call: str, path: str, size: int) -> None:
        """Add a call that another object made, if its path is below the root."""
        if path == self._root or path.startswith(self._root + "/"):
            self.calls.append(Call(call, os.path.relpath(path, self._root), size))

    @property
    def changes(self) -> list[Call]:
        """The calls that change or sync something."""
        return [call for call in self.calls if call.name not in READS]

    def around(self, call: str, path: str, size: int, make: Callable[[], T]) -> T:
        """Note the call, then do it."""
        self.note(call, path, size)
        return make()
