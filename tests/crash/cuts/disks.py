"""Disks that lose power: an ext4 in an image, on a loop device, on a file system that clones files.

A clone of the image is what the disk had at that moment: without what the page cache of ext4 still
held, and with everything that ext4 has written, flushed or not.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEBIBYTE = 1 << 20
CLONING = 1200 * MEBIBYTE
"""The sparse image of the file system that clones; mkfs.xfs wants 300 MiB at least."""
SIZE = 384 * MEBIBYTE
COMMIT_S = 600
"""ext4 writes all metadata each 5 s by default; if it is later, a missing sync shows more."""
CLONE_NEWNS = 0x00020000  # linux/sched.h
FICLONE = 0x40049409  # linux/fs.h
UMOUNT_S = 60.0
CLONERS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "btrfs": ["mkfs.btrfs", "-q"]}
EXT4 = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]


class NoDisksError(Exception):
    """This machine cannot make such disks; the text says why."""


class Disk:
    """A mounted ext4; `clone` and `become` are a power cut."""

    def __init__(self, images: Path, path: Path, options: str) -> None:
        self.path = path
        self._options = f"loop,commit={COMMIT_S}{options}"
        self._images = images / path.name
        self._images.mkdir()
        self._clones = 0
        self._image = self._images / "0"
        _make_file(self._image, SIZE)
        _run(*EXT4, str(self._image))
        path.mkdir()
        self._mount()

    def sync(self) -> None:
        """Make all of it durable."""
        _run("sync", "--file-system", str(self.path))

    def clone(self) -> Path:
        """An image with what the disk has now."""
        return _clone(self._image, self._next_image())

    def become(self, image: Path) -> None:
        """Continue with a clone; no process may have a file of the disk open."""
        self.unmount()
        self._image.unlink()
        self._image = image
        self._mount()

    def unmount(self) -> None:
        """The loop device goes with it. A killed process may have files open for a moment."""
        _unmount(self.path)

    def _mount(self) -> None:
        self._mount_ext4(self._image)

    def _mount_ext4(self, image: Path) -> None:
        # The kernel frees the loop device of `-o loop` with the mount.
        _run("mount", "-t", "ext4", "-o", self._options, str(image), str(self.path))

    def _next_image(self) -> Path:
        self._clones += 1
        return self._images / str(self._clones)


class CachingDisk(Disk):
    """The same on a disk that keeps what was not flushed in a volatile cache: a power cut takes any
    of it."""

    def clone(self) -> Path:
        image = self._next_image()
        self._tell(f"{image} {self._clones}\n")
        return image

    def sync(self) -> None:
        super().sync()
        self._tell("\n")

    def unmount(self) -> None:
        super().unmount()
        _unmount(self._images / "cache")
        self._cache.communicate()

    def _mount(self) -> None:
        folder = self._images / "cache"
        folder.mkdir(exist_ok=True)
        current = _clone(self._image, self._images / "current")
        command = [sys.executable, "-m", "cuts.write_cache", folder, self._image, current]
        self._cache = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        self._await_answer()
        self._mount_ext4(folder / "disk")

    def _tell(self, line: str) -> None:
        assert self._cache.stdin is not None
        self._cache.stdin.write(line)
        self._cache.stdin.flush()
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._cache.stdout is not None
        if not self._cache.stdout.readline():
            raise NoDisksError("no disk with a write cache: no FUSE file system can be mounted")


class Disks:
    """Makes disks; they are mounted for this process and its children only.

    A guard gives them back if this process dies. Raises NoDisksError.
    """

    def __init__(self, folder: Path, kind: type[Disk] = Disk, options: str = "") -> None:
        """`options` are more ones for ext4, each after a comma."""
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        self._kind = kind
        self._options = options
        self._disks: list[Disk] = []
        self._made = 0
        maker = next((kind for kind, make in CLONERS.items() if shutil.which(make[0])), None)
        if maker is None or shutil.which(EXT4[0]) is None:
            raise NoDisksError("it needs mkfs.xfs or mkfs.btrfs, and mkfs.ext4")
        _keep_mounts_private()
        command = [sys.executable, "-m", "cuts.guard", self._folder]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, env=_environment())
        image = self._folder / "cloning"
        self._images = self._folder / "images"
        self._images.mkdir()
        _make_file(image, CLONING)
        _run(*CLONERS[maker], str(image))
        _run("mount", "-t", maker, "-o", "loop", str(image), str(self._images))
        image.unlink()  # the loop device keeps it
        try:
            self.remove(self.add())
        except NoDisksError:
            self.close()
            raise

    def __enter__(self) -> Disks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmount all of them."""
        for disk in self._disks:
            disk.unmount()
        _run("umount", str(self._images))
        self._guard.communicate()

    def add(self) -> Disk:
        """A new disk, mounted in the folder."""
        self._made += 1
        disk = self._kind(self._images, self._folder / f"disk-{self._made}", self._options)
        self._disks.append(disk)
        return disk

    def remove(self, disk: Disk) -> None:
        """Unmount a disk, and delete its images."""
        self._disks.remove(disk)
        disk.unmount()
        shutil.rmtree(self._images / disk.path.name)


def _environment() -> dict[str, str]:
    """For programs of this package."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}


def _keep_mounts_private() -> None:
    """Once: mounts of an earlier namespace would stay while a thread of it lives."""
    if _mount_namespace("self") != _mount_namespace(str(os.getppid())):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise NoDisksError(f"no mounts of its own: {os.strerror(ctypes.get_errno())}")
    _run("mount", "--make-rprivate", "/")


def _mount_namespace(process: str) -> str:
    try:
        return os.readlink(f"/proc/{process}/ns/mnt")
    except OSError as error:
        raise NoDisksError(str(error)) from error


def _make_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _clone(image: Path, clone: Path) -> Path:
    with image.open("rb") as source, clone.open("wb") as target:
        fcntl.ioctl(target, FICLONE, source.fileno())
    return clone


def _unmount(path: Path) -> None:
    if not path.is_mount():
        return
    deadline = time.monotonic() + UMOUNT_S
    while (error := _refusal("umount", str(path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    if error:
        raise NoDisksError(error)


def _refusal(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{command[0]}: {done.stderr.strip()}" if done.returncode else ""


def _run(*command: str) -> None:
    if error := _refusal(*command):
        raise NoDisksError(error)
