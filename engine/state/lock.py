"""One process per store folder (RocketMQ: DefaultMessageStore's lock file)."""

import fcntl
import os
import struct
from contextlib import suppress

from congreve.engine.errors import StoreError, StoreLockedError

_CONTENT = b"lock"
_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid


def _flock(kind: int, start: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, start, 1, 0)


def _missing(folder: str) -> list[str]:
    """`folder` and those above it that are not there, the deepest first."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def is_held(path: str) -> bool:
    """Whether a broker, of RocketMQ or ours, holds the store's lock; asked without taking it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, 0))
    finally:
        os.close(descriptor)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


class FolderLock:
    """Keeps the stores of two roots from using one folder of log files.

    The lock is on the folder itself: a file in it would keep the reference from starting, and two
    paths may lead to it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Make the folder where it is missing, and lock it.

        Raises StoreLockedError where another store has it, StoreError where it cannot be opened.
        """
        try:
            os.makedirs(self.folder, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(
                f"cannot open the log's folder {self.folder}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreLockedError(
                f"{self.folder} is in use by the store of another storePathRootDir: "
                "stop that broker, or choose another storePathCommitLog"
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class StoreLock:
    """Exclusive lock on byte 0 of `lock`, as the reference takes it: each keeps the other out.

    An open-file-description lock also keeps a second store of this same process out. Those name no
    owner, so a plain record lock on byte 1 names the process.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._made: list[str] = []

    def acquire(self) -> None:
        """Take the lock.

        Raises StoreLockedError, which names the holder, and StoreError where the file cannot be
        made.
        """
        self._made = _missing(os.path.dirname(os.path.abspath(self.path)))
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(
                f"cannot open the store's lock {self.path}: {error.strerror}"
            ) from error
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, 0))
        except (BlockingIOError, PermissionError) as error:
            owner = self._owner(descriptor)
            os.close(descriptor)
            raise StoreLockedError(
                f"{os.path.dirname(self.path)} is in use by {owner}: "
                "stop that broker, or choose another folder"
            ) from error
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLK, _flock(fcntl.F_WRLCK, 1))
            os.pwrite(descriptor, _CONTENT, 0)
            os.fsync(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; idempotent. The file stays, as RocketMQ leaves it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Release the lock, and remove the file and the folders that acquire() made for it."""
        with suppress(OSError):
            os.unlink(self.path)
        self.release()
        for folder in self._made:
            with suppress(OSError):
                os.rmdir(folder)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def _owner(self, descriptor: int) -> str:
        for byte in (0, 1):
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _flock(fcntl.F_WRLCK, byte))
            kind, _, _, _, pid = struct.unpack(_FLOCK, answer)
            if kind != fcntl.F_UNLCK and pid > 0:
                return f"process {pid}"
        return f"another broker, or another store of this process ({os.getpid()})"
