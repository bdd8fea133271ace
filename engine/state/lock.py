"""One process per store folder (RocketMQ: DefaultMessageStore's lock file)."""

import fcntl
import os
import struct
from contextlib import suppress

from congreve.base.forks import in_each_child
from congreve.engine.errors import StoreError, StoreLockedError
from congreve.io_backends.files.file_system import DISK, File, FileSystem

_CONTENT = b"lock"
_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid


def _flock(kind: int, start: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, 1, 0)


def _missing(files: FileSystem, folder: str) -> list[str]:
    """`folder` and its parents, as far as they are missing, the deepest first."""
    missing = []
    while not files.is_folder(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def is_held(path: str, files: FileSystem = DISK) -> bool:
    """Whether a broker of RocketMQ or Congreve holds the store's lock, without taking it.

    Raises StoreError if the system does not say.
    """
    try:
        with files.open(path, os.O_RDONLY) as file:
            answer = files.record_lock(file, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, 0))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"cannot read the store's lock {path}: {error.strerror}") from error
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


class FolderLock:
    """Keeps the stores of two roots from using one folder of log files.

    The lock is on the folder itself: the reference does not start with a foreign file in it, and
    two paths may lead to it.
    """

    def __init__(self, folder: str, files: FileSystem = DISK) -> None:
        self.folder = folder
        self._files = files
        self._file: File | None = None
        in_each_child(self.release)

    def acquire(self) -> None:
        """Create the folder if it is missing, and lock it.

        Raises StoreLockedError if another store has it, StoreError if it cannot be opened.
        """
        try:
            self._files.make_folder(self.folder)
            file = self._files.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StoreError(
                f"cannot open the log's folder {self.folder}: {error.strerror}"
            ) from error
        try:
            self._files.lock(file)
        except BlockingIOError as error:
            file.close()
            raise StoreLockedError(
                f"{self.folder} is in use by the store of another storePathRootDir: "
                "stop that broker, or choose another storePathCommitLog"
            ) from error
        except OSError as error:
            file.close()
            raise StoreError(f"cannot lock {self.folder}: {error.strerror}") from error
        self._file = file

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None


class StoreLock:
    """Exclusive lock on byte 0 of the file `lock`, the same as RocketMQ's.

    It is an open-file-description lock, which also excludes a second store of this process. Such
    locks have no owner, so a plain record lock on byte 1 identifies the process.
    """

    def __init__(self, path: str, files: FileSystem = DISK) -> None:
        self.path = path
        self._files = files
        self._file: File | None = None
        self._made: list[str] = []
        self.is_new = False
        """Whether acquire() made the file."""
        in_each_child(self.release)

    def acquire(self) -> None:
        """Take the lock.

        Raises StoreLockedError, which names the holder, and StoreError if the file cannot be
        created.
        """
        self._made = _missing(self._files, os.path.dirname(os.path.abspath(self.path)))
        try:
            self.is_new = not self._files.exists(self.path)
            self._files.make_folder(os.path.dirname(self.path))
            file = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreError(
                f"cannot open the store's lock {self.path}: {error.strerror}"
            ) from error
        try:
            self._files.record_lock(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, 0))
        except (BlockingIOError, PermissionError) as error:
            with file:
                owner = self._owner(file)
            raise StoreLockedError(
                f"{os.path.dirname(self.path)} is in use by {owner}: "
                "stop that broker, or choose another folder"
            ) from error
        except OSError as error:
            file.close()
            raise StoreError(f"cannot lock {self.path}: {error.strerror}") from error
        try:
            self._files.record_lock(file, fcntl.F_SETLK, _flock(fcntl.F_WRLCK, 1))
            self._files.write(file, _CONTENT, 0)
            self._files.sync(file)
        except OSError as error:
            file.close()
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self._file = file

    def release(self) -> None:
        """Release the lock; idempotent. The file stays, as RocketMQ leaves it."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Release the lock, and remove the file and the folders that acquire() created."""
        with suppress(OSError):
            self._files.remove(self.path)
        self.release()
        for folder in self._made:
            with suppress(OSError):
                self._files.remove_folder(folder)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def _owner(self, file: File) -> str:
        for byte in (0, 1):
            answer = self._files.record_lock(file, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, byte))
            kind, _, _, _, pid = struct.unpack(_FLOCK, answer)
            if kind != fcntl.F_UNLCK and pid > 0:
                return f"process {pid}"
        return f"another broker, or another store of this process ({os.getpid()})"
