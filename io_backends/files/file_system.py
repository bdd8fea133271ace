"""The file layer: every access to the disk except for the log's segments."""

import errno
import fcntl
import os
from types import TracebackType
from typing import Final, Self

from congreve.io_backends.backend import sync_file_system, sync_folder
from congreve.io_backends.mapping import Mapping

_READ_AT_ONCE = 64 << 10


class File:
    """An open file or folder: its path and descriptor. It is closed at the end of a `with`."""

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class FileSystem:
    """Files and folders of the operating system; decorators (`intercepted.py`) wrap one.

    Methods raise OSError; those that take or return a Mapping raise BackendError, and SyncError
    where written bytes may be lost. Offsets and sizes are in bytes.
    """

    # --- files

    def open(self, path: str, flags: int, mode: int = 0o644) -> File:
        """Open `path` with `flags` of open(2); its descriptor is not inherited."""
        return File(path, os.open(path, flags | os.O_CLOEXEC, mode))

    def read(self, file: File, size: int, at: int) -> bytes:
        """Return `size` bytes from offset `at`, fewer at the end of the file."""
        pieces = []
        while size > 0 and (piece := os.pread(file.descriptor, size, at)):
            pieces.append(piece)
            size -= len(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, file: File, data: bytes | memoryview, at: int) -> None:
        """Write all of `data` at offset `at`."""
        left = memoryview(data)
        while left:
            written = os.pwrite(file.descriptor, left, at)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
            left, at = left[written:], at + written

    def next_data(self, file: File, at: int) -> tuple[int, int] | None:
        """The next part [start, end) at or after `at` that is not a hole; None without one."""
        try:
            start = os.lseek(file.descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
        return start, os.lseek(file.descriptor, start, os.SEEK_HOLE)

    def truncate(self, file: File, size: int) -> None:
        """Set the size of the file."""
        os.ftruncate(file.descriptor, size)

    def set_mode(self, file: File, mode: int) -> None:
        """Set the permission bits of the file."""
        os.fchmod(file.descriptor, mode)

    def sync(self, file: File) -> None:
        """Make the content and the attributes of the file durable."""
        os.fsync(file.descriptor)

    def sync_data(self, file: File) -> None:
        """Make the content of the file durable, and its size."""
        os.fdatasync(file.descriptor)

    def record_lock(self, file: File, command: int, lock: bytes) -> bytes:
        """Ask for or set a record lock; `command` and `lock` (struct flock) are those of fcntl(2).

        Returns the struct as the system filled it in.
        """
        return fcntl.fcntl(file.descriptor, command, lock)

    def lock(self, file: File) -> None:
        """Lock the whole file or folder, as flock(2) does. BlockingIOError if another has it."""
        fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    # --- mapped files

    def map(self, path: str, size: int, *, create: bool = False, writable: bool = True) -> Mapping:
        """Map the whole file of `size` bytes. Raises BackendError, SegmentSizeError."""
        return Mapping(path, size, create=create, writable=writable)

    def reserve(self, mapping: Mapping, start: int, end: int) -> None:
        """Allocate the disk blocks of [start, end). Raises BackendError."""
        mapping.reserve(start, end)

    def sync_map(self, mapping: Mapping, start: int = 0, end: int | None = None) -> None:
        """Make [start, end) of a mapped file durable. Raises SyncError."""
        mapping.flush(start, end)

    def zero_map(self, mapping: Mapping, start: int) -> None:
        """Make all from `start` to the end zero, durably. Raises BackendError, SyncError."""
        mapping.zero_from(start)

    # --- names

    def status(self, path: str) -> os.stat_result:
        """The result of stat(2) for `path`."""
        return os.stat(path)

    def exists(self, path: str) -> bool:
        """Whether there is something of this name, a dangling link too."""
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_folder(self, path: str) -> bool:
        """Whether `path` is a folder; False if the system does not say."""
        return os.path.isdir(path)

    def real_path(self, path: str) -> str:
        """The absolute path without links."""
        return os.path.realpath(path)

    def entries(self, folder: str) -> list["os.DirEntry[str]"]:
        """The entries of a folder, in no order."""
        with os.scandir(folder) as found:
            return list(found)

    def rename(self, path: str, target: str) -> None:
        """Move `path` to `target`, which it replaces, in one step."""
        os.replace(path, target)

    def link(self, path: str, target: str) -> None:
        """Give the file `path` a second name."""
        os.link(path, target)

    def remove(self, path: str) -> None:
        """Remove the name of a file."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder and its missing parents."""
        os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def sync_folder(self, path: str) -> None:
        """Make the entries of a folder durable."""
        sync_folder(path)

    def sync_all(self, folder: str) -> None:
        """Make all files of the file system of `folder` durable. Raises BackendError, SyncError."""
        sync_file_system(folder)

    # --- composed of the above

    def read_all(self, path: str) -> bytes:
        """Return the whole file."""
        pieces, at = [], 0
        with self.open(path, os.O_RDONLY) as file:
            while piece := self.read(file, _READ_AT_ONCE, at):
                pieces.append(piece)
                at += len(piece)
        return b"".join(pieces)


#: The real file system; it has no state.
DISK: Final = FileSystem()
