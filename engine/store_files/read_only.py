"""Reads of a store's folders for programs that write nothing: every failure is a StoreError."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import ENOENT
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple, TypeVar

from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.log.segment_files import SEGMENT_NAME
from congreve.io_backends.errors import BackendError, SegmentSizeError
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.mapping import Mapping

T = TypeVar("T")


class NumberedFile(NamedTuple):
    """A segment or a file of a queue: the number that is its name, its path and bytes."""

    number: int
    path: Path
    size: int


class ReadOnlyFiles:
    """The read calls of `files`. Methods raise StoreError with the path and the reason.

    A missing file is not a failure, unless the method says so: then it is a StoreFormatError.
    (RocketMQ has no counterpart.)
    """

    def __init__(self, files: FileSystem = DISK) -> None:
        self.files = files

    def exists(self, path: Path) -> bool:
        """Whether there is something of this name."""
        return _read(path, lambda: self.files.exists(str(path)))

    def is_folder(self, path: Path) -> bool:
        """Whether `path` is a folder."""
        try:
            return S_ISDIR(_read(path, lambda: self.files.status(str(path))).st_mode)
        except _MissingError:
            return False

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """The entries of a folder by name; none if it does not exist."""
        try:
            found = _read(folder, lambda: self.files.entries(str(folder)))
        except _MissingError:
            return []
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, folder: Path) -> list[Path]:
        """The folders in a folder by name; none if it does not exist."""
        return [folder / entry.name for entry in self.entries(folder) if entry.is_dir()]

    def numbered(self, folder: Path) -> list[NumberedFile]:
        """The files named by twenty digits, ascending, without those that expire meanwhile."""
        found = []
        for entry in self.entries(folder):
            if SEGMENT_NAME.fullmatch(entry.name) and entry.is_file():
                path = folder / entry.name
                try:
                    found.append(NumberedFile(int(entry.name), path, self.size(path)))
                except _MissingError:
                    continue
        return found

    def size(self, path: Path) -> int:
        """Bytes of a file, which must exist."""
        return _read(path, lambda: self.files.status(str(path))).st_size

    def read_all(self, path: Path) -> bytes | None:
        """The bytes of a file; None if it does not exist."""
        try:
            return _read(path, lambda: self.files.read_all(str(path)))
        except _MissingError:
            return None

    def map(self, path: Path, size: int) -> Mapping:
        """Map a file of `size` bytes, which must exist."""
        try:
            return self.files.map(str(path), size, writable=False)
        except SegmentSizeError as error:
            raise StoreFormatError(str(error)) from error
        except BackendError as error:
            kind = _MissingError if error.errno == ENOENT else StoreError
            raise kind(str(error)) from error


class _MissingError(StoreFormatError):
    """There is no such file or folder."""


def _read(path: Path, call: Callable[[], T]) -> T:
    try:
        return call()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _MissingError(f"cannot read {path}: {error.strerror}") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
