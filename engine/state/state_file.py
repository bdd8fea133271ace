"""Small text files that are replaced atomically and survive a power cut at any time."""

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec

from congreve.base.errors import CongreveError
from congreve.engine.errors import StoreError, StoreFormatError
from congreve.io_backends.files.file_system import DISK, File, FileSystem

# The file layer is here for the broker, too, which does not know the I/O backends.
__all__ = ["DAMAGED_MAX", "DISK", "File", "FileSystem", "StateFile"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

SECRET_MODE = 0o600
DAMAGED_MAX = 9  # damaged files kept beside each file; a further one replaces the last

# The errors of a parser for an invalid text.
_UNUSABLE = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
    msgspec.MsgspecError,
    CongreveError,
)
# These errors do not mean that the file is damaged: a retry may read it.
_NOT_THE_FILE = frozenset(
    (
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN),
        *(errno.EACCES, errno.EPERM),  # the file's owner or mode is wrong, not its content
        errno.ENOTDIR,  # a part of the folder's path is a file
    )
)


class StateFile:
    """One state file with its predecessor beside it as NAME.bak (RocketMQ: ConfigManager).

    At every moment NAME holds the complete old or the complete new text: the new one is written,
    synced and read back as NAME.tmp, then renamed, then the folder is synced.
    """

    def __init__(
        self,
        path: str,
        *,
        files: FileSystem = DISK,
        read_only: bool = False,
        secret: bool = False,
    ) -> None:
        """`read_only`: load() does not rename a damaged file; replace() raises StoreError.

        `secret`: only its owner may read the file (mode 0600), and no .bak keeps the old secrets.
        """
        self.path = path
        self._files = files
        self._read_only = read_only
        self._secret = secret
        self.backup_path = path + ".bak"
        self.was_damaged = False
        """Whether NAME was damaged when it was loaded."""
        self.source: str | None = None
        """The file that load() read, or None."""
        self._in_the_way = False  # and is still there: it must not replace a good .bak

    def load(self, parse: Callable[[str], T]) -> T | None:
        """The result of `parse` for the file, or else for its .bak; None if neither is valid.

        It renames a damaged file to NAME.damaged-N (unless `read_only`), and logs that. `parse`
        raises ValueError, TypeError, KeyError, msgspec's errors or CongreveError for an invalid
        text. Raises StoreError if a shortage (descriptors, memory), the file's permissions, or a
        file in the place of its folder prevent the read.
        """
        for path in (self.path, self.backup_path):
            try:
                text = self._read(path)
                value = parse(text)
            except FileNotFoundError:
                continue
            except (OSError, *_UNUSABLE) as error:
                if isinstance(error, OSError) and error.errno in _NOT_THE_FILE:
                    raise StoreError(f"cannot read {path}: {error.strerror}") from error
                self.was_damaged |= path == self.path
                if self._read_only:
                    logger.error("%s is damaged (%s)", path, error)
                else:
                    self._keep_aside(path, error)
                continue
            if path == self.backup_path:
                logger.warning("%s is missing or damaged; using its backup %s", self.path, path)
            self.source = path
            return value
        if self.was_damaged:
            logger.error("%s is damaged and has no valid backup: continuing without it", self.path)
        return None

    def replace(self, text: str) -> None:
        """Replace the text; it is durable when this returns.

        Raises StoreError; the old text stays then.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise StoreError(f"cannot write {self.path}: {error}") from error
        self.replace_pieces(lambda: (data,))

    def replace_pieces(self, pieces: Callable[[], Iterable[bytes]]) -> None:
        """replace() for a long text, which `pieces` returns whenever it is called."""
        if self._read_only:
            raise StoreError(f"cannot write {self.path}: it was opened read-only")
        temporary = self.path + ".tmp"
        try:
            self._files.make_folder(os.path.dirname(self.path))
            with self._open_alike(temporary) as file:
                self._write_pieces(file, pieces)
            if not self._in_the_way and not self._secret:
                self._keep_backup()
            self._files.rename(temporary, self.path)
            self._in_the_way = False
            self._files.sync_folder(os.path.dirname(self.path))
        except (OSError, StoreError) as error:
            with suppress(OSError):
                self._files.remove(temporary)
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    def _write_pieces(self, file: File, pieces: Callable[[], Iterable[bytes]]) -> None:
        end = at = 0
        for piece in pieces():
            self._files.write(file, piece, end)
            end += len(piece)
        self._files.sync(file)
        for piece in pieces():
            next_at = at + len(piece)
            more = next_at == end  # which the last read would find
            if self._files.read(file, len(piece) + more, at) != piece:
                raise StoreError(f"cannot write {self.path}: reading it back gives other bytes")
            at = next_at

    def remove(self) -> None:
        """Remove the file and its backup, durably. Raises StoreError."""
        try:
            for path in (self.backup_path, self.path):
                with suppress(FileNotFoundError):
                    self._files.remove(path)
            self._files.sync_folder(os.path.dirname(self.path))
        except FileNotFoundError:
            return  # there is no folder either
        except OSError as error:
            raise StoreError(f"cannot remove {self.path}: {error.strerror}") from error

    def replace_checked(self, text: str, is_same: Callable[[str], bool]) -> None:
        """replace(), if `is_same` accepts the text: it reads back as its original.

        Otherwise raises StoreFormatError; the old text stays then.
        """
        try:
            same = is_same(text)
        except _UNUSABLE as error:
            raise StoreFormatError(
                f"{self.path} is not written: its text cannot be read back ({error})"
            ) from error
        if not same:
            raise StoreFormatError(
                f"{self.path} is not written: its text reads back as something else"
            )
        self.replace(text)

    def _keep_aside(self, path: str, why: Exception) -> None:
        names = [f"{path}.damaged-{number}" for number in range(1, DAMAGED_MAX + 1)]
        kept = names[-1]
        try:
            kept = next((name for name in names if not self._files.exists(name)), kept)
            self._files.rename(path, kept)
        except OSError as error:
            self._in_the_way |= path == self.path
            logger.error(
                "%s is damaged (%s) and cannot be renamed to %s: %s",
                path,
                why,
                kept,
                error.strerror,
            )
        else:
            logger.error("%s is damaged (%s): renamed to %s", path, why, kept)

    def _open_alike(self, path: str) -> File:
        # The new file gets the mode of the old one: it may hold secrets.
        mode = SECRET_MODE if self._secret else 0o666
        file = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        try:
            if not self._secret:
                mode = stat.S_IMODE(self._files.status(self.path).st_mode)
            self._files.set_mode(file, mode)
        except FileNotFoundError:
            pass
        except OSError:
            file.close()
            raise
        return file

    def _keep_backup(self) -> None:
        # A hard link to the old text, renamed to .bak.
        link = self.backup_path + ".tmp"
        with suppress(FileNotFoundError):
            self._files.remove(link)
        try:
            self._files.link(self.path, link)
        except FileNotFoundError:
            return
        self._files.rename(link, self.backup_path)

    def _read(self, path: str) -> str:
        """The text. Raises OSError, and ValueError for an empty or non-UTF-8 file."""
        text = self._files.read_all(path).decode()
        if not text.strip("\0 \t\r\n"):
            raise ValueError("it is empty")
        return text
