"""Copies of a whole store: all its parts, in the order that a running broker allows."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from congreve.base.errors import CongreveError
from congreve.base.version import __version__
from congreve.engine.state.identity import IdentityFile
from congreve.io_backends.files.file_system import DISK, File

MARK = "backup.json"
"""Written last: a folder without it is no complete backup."""
LOG = "commitlog"
LEFT_OUT = frozenset(("lock", MARK))
PIECE = 8 << 20
BLOCK = 4096
_ZEROS = bytes(BLOCK)


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds, and of which store: its identity, its root, and its log's folder."""

    identity: str | None
    root: str
    commit_log: str
    made_ms: int
    version: str
    files: int
    bytes: int
    length: int | None = None
    """Bytes of the files with their holes; earlier versions did not note it."""
    checksums: dict[str, int] | None = None
    """Of each file, by its path in the backup; earlier versions did not note them."""


Progress = Callable[[int], object]
"""Called with the bytes of each piece that was copied."""


def make_backup(root: Path, commit_log: Path, target: Path, progress: Progress) -> Backup:
    """Copy a store, also one that a broker is using, into the new folder `target`.

    The log comes last, so that it has each message that the queues name; parts on other disks and
    behind links become folders of the copy. Raises CongreveError for a target that exists, and
    for files that cannot be copied.
    """
    if target.exists():
        raise CongreveError(f"{target} exists: a backup goes into a new folder")
    if target.resolve().is_relative_to(root.resolve()):
        raise CongreveError(f"{target} is inside the store {root}: choose a folder outside of it")
    copy = _Copy(progress)
    try:
        target.mkdir(parents=True)
        for entry in sorted(root.iterdir()):
            if entry.name not in LEFT_OUT | {LOG}:
                copy.tree(entry, target / entry.name, entry.name)
        copy.tree(commit_log, target / LOG, LOG)
        made = Backup(
            identity=IdentityFile(str(target / "congreve"), read_only=True).load(),
            root=str(root.resolve()),
            commit_log=str(commit_log.resolve()),
            made_ms=int(time.time() * 1000),
            version=__version__,
            files=copy.files,
            bytes=copy.bytes,
            length=copy.length,
            checksums=copy.checksums,
        )
        (target / MARK).write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2))
    except OSError as error:
        raise CongreveError(f"the backup {target} is incomplete: {error}: remove it") from error
    return made


def read_mark(backup: Path) -> Backup:
    """What a backup holds. Raises CongreveError for a folder that is no complete one."""
    try:
        return msgspec.json.decode((backup / MARK).read_bytes(), type=Backup)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CongreveError(
            f"{backup} is no complete backup of `congreve store backup` ({error})"
        ) from error


def restore_backup(backup: Path, root: Path, commit_log: Path, progress: Progress) -> Backup:
    """Copy a whole backup to a new root, and its log to `commit_log`, which may be in it.

    Both must not exist, or be empty: a log or queues of another state are never mixed with the
    backup's. The folders get their names when all of the copy is on the disk. Raises CongreveError,
    also for a backup in which files are missing, cut, changed, or another store's.
    """
    made = read_mark(backup)
    _check_whole(backup, made)
    is_apart = commit_log.absolute() != (root / LOG).absolute()
    for folder in (root, commit_log) if is_apart else (root,):
        if folder.is_symlink() or (folder.exists() and (folder.is_file() or any(folder.iterdir()))):
            raise CongreveError(
                f"{folder} is in use: a restore needs a new folder, or move that one away first"
            )
    copy = _Copy(progress)
    parts = [(backup / LOG, commit_log)] if is_apart else []
    try:
        for source, folder in parts:
            copy.tree(source, _unfinished(folder), LOG)
        for entry in sorted(backup.iterdir()):
            if entry.name not in LEFT_OUT and not (is_apart and entry.name == LOG):
                copy.tree(entry, _unfinished(root) / entry.name, entry.name)
        if made.checksums is not None and (found := copy.checksums) != made.checksums:
            for _, folder in [*parts, (backup, root)]:
                with suppress(FileNotFoundError):
                    shutil.rmtree(_unfinished(folder))
            names = found.keys() | made.checksums.keys()
            name = min(each for each in names if found.get(each) != made.checksums.get(each))
            raise CongreveError(
                f"{backup / name} is not the file that was backed up: it has changed, or is of"
                " another store; take another copy of the backup"
            )
        for _, folder in [*parts, (backup, root)]:
            with suppress(FileNotFoundError):
                folder.rmdir()
            _unfinished(folder).rename(folder)
            # That of another store's log, which was here before.
            folder.with_name(f"{folder.name}.owner.json").unlink(missing_ok=True)
    except OSError as error:
        raise CongreveError(
            f"{root} was not restored: {error}: remove {_unfinished(root)}, and try again"
        ) from error
    return made


def _check_whole(backup: Path, made: Backup) -> None:
    entries = [entry for entry in backup.iterdir() if entry.name not in LEFT_OUT]
    paths = [path for each in entries for path in ([each] if each.is_file() else _files(each))]
    length = sum(path.stat().st_size for path in paths)
    if len(paths) != made.files or made.length not in (None, length):
        raise CongreveError(
            f"{backup} has {len(paths)} files of {length:,} bytes; its {MARK} says {made.files} of"
            f" {made.length or made.bytes:,}: files are missing or cut, take another copy of it"
        )


def size_of(*folders: Path) -> int:
    """Bytes of the files in these folders that have data."""
    return sum(_allocated(path) for folder in folders for path in _files(folder))


def _unfinished(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.restoring")


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, followlinks=True):
        yield from (Path(parent, name) for name in names)


def _allocated(path: Path) -> int:
    try:
        status = path.stat()
    except OSError:
        return 0
    return min(status.st_size, status.st_blocks * 512)


class _Copy:
    """Copies files with their times, permissions and holes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.files = 0
        self.bytes = 0
        self.length = 0
        self.checksums: dict[str, int] = {}

    def tree(self, source: Path, target: Path, name: str) -> None:
        """Copy a file or a folder, whose path in the backup is `name`; links are followed. What a
        broker has just removed is left out."""
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for each in sorted(os.listdir(source)):
                self.tree(source / each, target / each, f"{name}/{each}")
            shutil.copystat(source, target)
            DISK.sync_folder(str(target))
            return
        with suppress(FileNotFoundError):
            self._file(source, target, name)

    def _file(self, source: Path, target: Path, name: str) -> None:
        with DISK.open(str(source), os.O_RDONLY) as read:
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with DISK.open(str(target), flags) as written:
                size = os.fstat(read.descriptor).st_size
                at, checksum = 0, size
                while at < size and (part := DISK.next_data(read, at)):
                    begin, at = part
                    checksum = self._range(read, written, begin, min(at, size), checksum)
                DISK.truncate(written, size)
                DISK.sync(written)
        shutil.copystat(source, target)
        self.files += 1
        self.length += size
        self.checksums[name] = checksum & 0xFFFFFFFF

    def _range(self, source: File, target: File, begin: int, end: int, checksum: int) -> int:
        """Returns the checksum with this range in it."""
        while begin < end:
            piece = DISK.read(source, min(PIECE, end - begin), begin)
            if not piece:
                break
            DISK.write(target, piece, begin)
            checksum = _checksum(piece, begin, checksum)
            begin += len(piece)
            self.bytes += len(piece)
            self._progress(len(piece))
        return checksum


def _checksum(piece: bytes, begin: int, checksum: int) -> int:
    """The CRC of what is not zero, with its place: another file system has other holes."""
    for at in range(0, len(piece), BLOCK):
        block = piece[at : at + BLOCK]
        if block != _ZEROS[: len(block)]:
            checksum = zlib.crc32(block, zlib.crc32((begin + at).to_bytes(8, "big"), checksum))
    return checksum
