"""The backends by their name in ioBackend, one row each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from congreve.io_backends.errors import BackendError
from congreve.io_backends.probe import PROBE_SIZE, uring_refusal

if TYPE_CHECKING:
    from congreve.io_backends.backend import Backend


class Options(NamedTuple):
    """What backends can be told; each takes what it has. Times in ms, sizes in bytes."""

    prewrites: bool = True
    buffers: int = 5
    locked: bool = False
    commit_interval_ms: int = 200
    commit_least_pages: int = 4
    commit_thorough_ms: int = 200
    window: int = 64 << 20
    segment_size: int = 0


class BackendKind(NamedTuple):
    """One way to write the log; `make` raises BackendError for options that cannot work.

    `refusal(folder, segment size)` is why it cannot write there, None if it can; where it cannot,
    the store takes `instead`. `survives_kill`: with ASYNC_FLUSH, a killed process loses nothing.
    """

    name: str
    text: str
    make: Callable[[Options], Backend]
    survives_kill: bool = False
    refusal: Callable[[str, int], str | None] = lambda folder, size: None
    instead: str = ""


def refusal(name: str, folder: str, segment_size: int = PROBE_SIZE) -> str | None:
    """Why a backend cannot write segments of this size in `folder`, None if it can."""
    return BACKENDS[name].refusal(folder, segment_size)


# Each imports its backend itself: those who need only names do not load numpy.


def _mmap(options: Options) -> Backend:
    from congreve.io_backends.mapped.mapped import MmapBackend

    return MmapBackend(prewrites=options.prewrites)


def _pool(options: Options) -> Backend:
    from congreve.io_backends.pool import PoolBackend

    size = options.buffers * options.segment_size
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if options.locked and size > memory:
        raise BackendError(
            f"transientStorePoolSize={options.buffers} buffers of {options.segment_size} bytes lock"
            f" {size >> 20} MiB, this machine has {memory >> 20}: lower it or"
            " mappedFileSizeCommitLog"
        )
    return PoolBackend(
        buffers=options.buffers,
        locked=options.locked,
        prewrites=options.prewrites,
        commit_interval_ms=options.commit_interval_ms,
        commit_least_pages=options.commit_least_pages,
        commit_thorough_ms=options.commit_thorough_ms,
    )


def _uring(options: Options) -> Backend:
    # A build without liburing does not have it.
    from congreve.io_backends.uring.uring import UringBackend

    return UringBackend(window=options.window)


BACKENDS: Mapping[str, BackendKind] = {
    kind.name: kind
    for kind in (
        BackendKind("mmap", "appends to a mapped file, `msync`", _mmap, survives_kill=True),
        BackendKind("pool", "appends to locked buffers, `pwrite` and `fdatasync`", _pool),
        BackendKind(
            "uring",
            "appends to a window of registered memory, several O_DIRECT writes in flight",
            _uring,
            refusal=uring_refusal,
            instead="pool",
        ),
    )
}
