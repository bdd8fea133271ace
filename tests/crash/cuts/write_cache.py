"""A disk with a volatile write cache: one file in a FUSE file system, for a loop device.

`python -m cuts.write_cache MOUNTPOINT IMAGE CURRENT`, as root. IMAGE has what was flushed, CURRENT
all that was written. A line "PATH SEED" on standard input makes an image of a power cut at PATH,
which FICLONE must be able to make: what was flushed, and any of the sectors that were written
since. An empty line flushes. An empty line is the answer to both. The program ends with its mount.
(Linux: include/uapi/linux/fuse.h.)
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import select
import struct
import sys
from collections.abc import Callable
from pathlib import Path

FICLONE = 0x40049409  # linux/fs.h
FILE_NAME = "disk"
ROOT, FILE = 1, 2  # numbers of nodes
SECTORS = (512, 4096)
LARGEST_WRITE = 1 << 20
VERSION = (7, 31)
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
FOPEN_DIRECT_IO = 1
VALID_S = 3600
IN_HEADER = struct.Struct("<IIQQIIII")  # length, operation, request, node, …
OUT_HEADER = struct.Struct("<IiQ")
READ_OR_WRITE = struct.Struct("<QQII16x")  # handle, offset, size, …
ATTRIBUTES = struct.Struct("<6Q10I")

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR = 17, 18, 20, 25, 26, 27
RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 29, 36, 38, 42
NO_ANSWER = (FORGET, INTERRUPT, BATCH_FORGET)


class WriteCache:
    """The contents of the disk, and the answers to the kernel."""

    def __init__(self, image: Path, current: Path) -> None:
        self._durable = os.open(image, os.O_RDWR)
        self._current = os.open(current, os.O_RDWR)
        self._size = image.stat().st_size
        self._pending: list[tuple[int, bytes]] = []  # in the order of their writes
        self._answers: dict[int, Callable[[int, memoryview], bytes]] = {
            INIT: self._init,
            LOOKUP: self._lookup,
            GETATTR: self._getattr,
            SETATTR: self._getattr,
            OPEN: lambda *_: struct.pack("<QIi", 0, FOPEN_DIRECT_IO, 0),
            OPENDIR: lambda *_: struct.pack("<QIi", 0, 0, 0),
            READ: self._read,
            WRITE: self._write,
            FSYNC: self._fsync,
            STATFS: lambda *_: struct.pack("<5Q4I24x", 0, 0, 0, 2, 0, 4096, 255, 4096, 0),
            **dict.fromkeys((FLUSH, RELEASE, RELEASEDIR, DESTROY), lambda *_: b""),
        }

    def answer(self, request: memoryview) -> bytes:
        """The answer to a request; nothing for those that have none."""
        _, operation, number, node, *_ = IN_HEADER.unpack_from(request)
        if operation in NO_ANSWER:
            return b""
        try:
            work = self._answers[operation]
            body, error = work(node, request[IN_HEADER.size :]), 0
        except KeyError:
            body, error = b"", errno.ENOSYS
        except OSError as failure:
            body, error = b"", failure.errno or errno.EIO
        return OUT_HEADER.pack(OUT_HEADER.size + len(body), -error, number) + body

    def cut(self, path: Path, seed: int) -> None:
        """Write the image of a power cut."""
        chance = random.Random(seed)
        kept, sector = chance.choice((0, 0.1, 0.5, 0.9, 1)), chance.choice(SECTORS)
        with path.open("wb") as target:
            fcntl.ioctl(target, FICLONE, self._durable)
            for offset, data in self._pending:
                for at in range(0, len(data), sector):
                    if chance.random() < kept:
                        os.pwrite(target.fileno(), data[at : at + sector], offset + at)

    def flush(self) -> None:
        """Write what the cache has to the disk."""
        for offset, data in self._pending:
            os.pwrite(self._durable, data, offset)
        self._pending.clear()

    def _init(self, _: int, body: memoryview) -> bytes:
        flags = BIG_WRITES | MAX_PAGES
        pages = LARGEST_WRITE // 4096
        return struct.pack(
            "<4I2H2I2H8I", *VERSION, 0, flags, 16, 12, LARGEST_WRITE, 1, pages, *[0] * 9
        )

    def _lookup(self, _: int, body: memoryview) -> bytes:
        if bytes(body).rstrip(b"\0").decode() != FILE_NAME:
            raise OSError(errno.ENOENT, "there is one file")
        return struct.pack("<4Q2I", FILE, 0, VALID_S, VALID_S, 0, 0) + self._attributes(FILE)

    def _getattr(self, node: int, _: memoryview) -> bytes:
        return struct.pack("<Q2I", VALID_S, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        mode, size = (0o100600, self._size) if node == FILE else (0o40700, 0)
        return ATTRIBUTES.pack(
            *(node, size, size // 512), *(0, 0, 0), *(0, 0, 0), *(mode, 1, 0, 0, 0, 4096, 0)
        )

    def _read(self, _: int, body: memoryview) -> bytes:
        _, offset, size, _ = READ_OR_WRITE.unpack_from(body)
        return os.pread(self._current, size, offset)

    def _write(self, _: int, body: memoryview) -> bytes:
        _, offset, size, _ = READ_OR_WRITE.unpack_from(body)
        data = bytes(body[READ_OR_WRITE.size : READ_OR_WRITE.size + size])
        os.pwrite(self._current, data, offset)
        self._pending.append((offset, data))
        return struct.pack("<2I", size, 0)

    def _fsync(self, _: int, body: memoryview) -> bytes:
        self.flush()
        return b""


def mounted(path: Path) -> int:
    """Mount a FUSE file system; the descriptor for its requests. Raises OSError."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"write-cache", os.fsencode(path), b"fuse", 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return device


def main(mountpoint: Path, image: Path, current: Path) -> int:
    """Serve until it is unmounted."""
    cache = WriteCache(image, current)
    device = mounted(mountpoint)
    print(flush=True)
    request = memoryview(bytearray(LARGEST_WRITE + (1 << 16)))
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return 0
            path, _, seed = line.rpartition(" ")
            if path:
                cache.cut(Path(path), int(seed))
            else:
                cache.flush()
            print(flush=True)
        if device in ready:
            try:
                size = os.readv(device, [request])
                if answer := cache.answer(request[:size]):
                    os.write(device, answer)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return 0
                if error.errno not in (errno.ENOENT, errno.EINTR):
                    raise


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
