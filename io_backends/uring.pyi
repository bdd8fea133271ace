"""The backend that writes through io_uring; there only where liburing was there at build time."""

import threading
from typing import Self, final

from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.mapping import Mapping
from congreve.io_backends.window import Window

@final
class UringSegment(Segment):
    """A segment whose newest bytes lie in the backend's window, all others in its file."""

    def __new__(
        cls, mapping: Mapping, backend: UringBackend, base_offset: int, written: int
    ) -> Self: ...
    @property
    def mapping(self) -> Mapping: ...

@final
class UringBackend(Backend):
    """O_DIRECT writes with RWF_DSYNC, several in flight, without a thread of its own.

    The eventfd is signalled by the kernel; whoever asks for `durable_offset` takes what has come
    back and sends what waits. After the first failed write nothing becomes durable any more.
    Segments must be multiples of 4096 bytes, on a file system that takes O_DIRECT.
    """

    def __new__(cls, *, window: int = 64 << 20, depth: int = 8) -> Self:
        """BackendError where the kernel gives no io_uring.

        `window`: bytes of locked memory for what is appended, a multiple of 1 MiB. When the disk
        is that far behind, segments give no more memory. `depth`: writes in flight, 1 to 16.
        """
    @property
    def window(self) -> Window: ...
    @property
    def depth(self) -> int: ...
    @property
    def in_flight(self) -> list[tuple[int, int]]:
        """Physical offsets [start, end) of the blocks of each write in flight."""
    def prewrite(self, segment: UringSegment) -> None:
        """Have zeros written behind what `segment` holds while it is used."""
    def run_prewrite(self, segment: UringSegment, before: threading.Thread | None) -> None:
        """The body of the thread that does so, after the thread `before`."""
    def check_size(self, path: str, size: int) -> None:
        """BackendError where segments of `size` bytes cannot be written by io_uring."""
