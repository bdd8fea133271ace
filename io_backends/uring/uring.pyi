from typing import Self, final

from congreve.io_backends.backend import Backend, FileSegment
from congreve.io_backends.mapping import Mapping
from congreve.io_backends.window import Window

@final
class UringSegment(FileSegment):
    def __new__(
        cls, mapping: Mapping, base_offset: int, written: int, backend: UringBackend
    ) -> Self: ...

@final
class UringBackend(Backend):
    def __new__(cls, *, window: int = 64 << 20, depth: int = 8) -> Self: ...
    @property
    def window(self) -> Window: ...
    @property
    def depth(self) -> int: ...
    @property
    def in_flight(self) -> list[tuple[int, int]]: ...
    def check_size(self, path: str, size: int) -> None: ...
