"""The base class of the decorators of a FileSystem."""

import os
from collections.abc import Callable
from typing import TypeVar

from congreve.io_backends.files.file_system import File, FileSystem
from congreve.io_backends.mapping import Mapping

T = TypeVar("T")


class InterceptedFileSystem(FileSystem):
    """Passes every call through around(), which a decorator overrides."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner

    def around(self, call: str, path: str, size: int, make: Callable[[], T]) -> T:
        """Do the call `make`, whose name is `call`; `size` is the number of bytes, or 0.

        The name is that of the method; `create` and `create_map` stand for an open() and a map()
        that may make the file.
        """
        raise NotImplementedError

    def open(self, path: str, flags: int, mode: int = 0o644) -> File:
        name = "create" if flags & os.O_CREAT else "open"
        return self.around(name, path, 0, lambda: self.inner.open(path, flags, mode))

    def read(self, file: File, size: int, at: int) -> bytes:
        return self.around("read", file.path, size, lambda: self.inner.read(file, size, at))

    def write(self, file: File, data: bytes | memoryview, at: int) -> None:
        size = memoryview(data).nbytes
        self.around("write", file.path, size, lambda: self.inner.write(file, data, at))

    def next_data(self, file: File, at: int) -> tuple[int, int] | None:
        return self.around("next_data", file.path, 0, lambda: self.inner.next_data(file, at))

    def truncate(self, file: File, size: int) -> None:
        self.around("truncate", file.path, size, lambda: self.inner.truncate(file, size))

    def set_mode(self, file: File, mode: int) -> None:
        self.around("set_mode", file.path, 0, lambda: self.inner.set_mode(file, mode))

    def sync(self, file: File) -> None:
        self.around("sync", file.path, 0, lambda: self.inner.sync(file))

    def sync_data(self, file: File) -> None:
        self.around("sync_data", file.path, 0, lambda: self.inner.sync_data(file))

    def record_lock(self, file: File, command: int, lock: bytes) -> bytes:
        return self.around(
            "record_lock", file.path, 0, lambda: self.inner.record_lock(file, command, lock)
        )

    def lock(self, file: File) -> None:
        self.around("lock", file.path, 0, lambda: self.inner.lock(file))

    def map(self, path: str, size: int, *, create: bool = False, writable: bool = True) -> Mapping:
        return self.around(
            *("create_map" if create else "map", path, size),
            lambda: self.inner.map(path, size, create=create, writable=writable),
        )

    def reserve(self, mapping: Mapping, start: int, end: int) -> None:
        size = max(min(end, mapping.size) - start, 0)
        self.around("reserve", mapping.path, size, lambda: self.inner.reserve(mapping, start, end))

    def sync_map(self, mapping: Mapping, start: int = 0, end: int | None = None) -> None:
        size = (mapping.size if end is None else end) - start
        self.around(
            "sync_map", mapping.path, size, lambda: self.inner.sync_map(mapping, start, end)
        )

    def zero_map(self, mapping: Mapping, start: int) -> None:
        self.around(
            *("zero_map", mapping.path, mapping.size - start),
            lambda: self.inner.zero_map(mapping, start),
        )

    def status(self, path: str) -> os.stat_result:
        return self.around("status", path, 0, lambda: self.inner.status(path))

    def exists(self, path: str) -> bool:
        return self.around("exists", path, 0, lambda: self.inner.exists(path))

    def is_folder(self, path: str) -> bool:
        return self.around("is_folder", path, 0, lambda: self.inner.is_folder(path))

    def real_path(self, path: str) -> str:
        return self.around("real_path", path, 0, lambda: self.inner.real_path(path))

    def entries(self, folder: str) -> list["os.DirEntry[str]"]:
        return self.around("entries", folder, 0, lambda: self.inner.entries(folder))

    def rename(self, path: str, target: str) -> None:
        self.around("rename", target, 0, lambda: self.inner.rename(path, target))

    def link(self, path: str, target: str) -> None:
        self.around("link", target, 0, lambda: self.inner.link(path, target))

    def remove(self, path: str) -> None:
        self.around("remove", path, 0, lambda: self.inner.remove(path))

    def make_folder(self, path: str) -> None:
        self.around("make_folder", path, 0, lambda: self.inner.make_folder(path))

    def remove_folder(self, path: str) -> None:
        self.around("remove_folder", path, 0, lambda: self.inner.remove_folder(path))

    def sync_folder(self, path: str) -> None:
        self.around("sync_folder", path, 0, lambda: self.inner.sync_folder(path))

    def sync_all(self, folder: str) -> None:
        self.around("sync_all", folder, 0, lambda: self.inner.sync_all(folder))
