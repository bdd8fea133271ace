"""Which backend a store's settings mean."""

import logging
import os

from congreve.engine.config import StoreConfig
from congreve.engine.tuned import load_tuned
from congreve.io_backends.backend import Backend
from congreve.io_backends.errors import BackendError
from congreve.io_backends.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend
from congreve.io_backends.probe import uring_refusal

log = logging.getLogger(__name__)


#: Smaller segments are ended too soon for zeros to be written ahead of the log.
_URING_SEGMENT = 64 << 20


def make_backend(config: StoreConfig) -> Backend:
    """The backend of `ioBackend`; BackendError where its settings cannot work.

    `auto` is what `congreve tune` chose for this store. Where nothing was tuned it is `uring` for
    SYNC_FLUSH in segments of 64 MiB and more, if a probe succeeds, else `mmap`.

    `uring` falls back to `pool`, with a line in the log, where kernel, container or file system
    forbid it.
    """
    name = config.io_backend
    if name == "auto":
        name = _choose(config)
    if name == "pool":
        return make_pool(config, locked=config.transient_store_pool_locked)
    if name == "uring":
        refusal = _uring_refusal(config)
        if refusal is None:
            return _make_uring()
        log.warning("ioBackend=uring cannot be used, pool is: %s", refusal)
        return make_pool(config, locked=False)
    return MmapBackend(prewrites=config.sync_flush)


def _choose(config: StoreConfig) -> str:
    tuned = load_tuned(config.root_dir)
    if tuned is not None:
        log.info("ioBackend=auto is %s: %s", tuned.io_backend, tuned.reason)
        return tuned.io_backend
    if not config.sync_flush or config.mapped_file_size_commit_log < _URING_SEGMENT:
        return "mmap"
    refusal = _uring_refusal(config)
    if refusal is not None:
        log.warning("ioBackend=auto is mmap: %s", refusal)
    return "mmap" if refusal is not None else "uring"


def _uring_refusal(config: StoreConfig) -> str | None:
    # Beside the log: its own folder must hold nothing but segments, should this be killed.
    folder = os.path.dirname(os.path.abspath(config.commit_log_dir))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return uring_refusal(folder, config.mapped_file_size_commit_log)


def _make_uring() -> Backend:
    from congreve.io_backends.uring import UringBackend

    return UringBackend()


def make_pool(config: StoreConfig, *, locked: bool) -> PoolBackend:
    """The pool of RocketMQ's transientStorePool and commit settings; BackendError."""
    size = config.transient_store_pool_size * config.mapped_file_size_commit_log
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if locked and size > memory:
        raise BackendError(
            f"transientStorePoolSize={config.transient_store_pool_size} buffers of "
            f"{config.mapped_file_size_commit_log} bytes lock {size >> 20} MiB, this machine has "
            f"{memory >> 20}: lower it or mappedFileSizeCommitLog"
        )
    return PoolBackend(
        buffers=config.transient_store_pool_size,
        locked=locked,
        prewrites=config.sync_flush,
        commit_interval_ms=config.commit_interval_commit_log,
        commit_least_pages=config.commit_commit_log_least_pages,
        commit_thorough_ms=config.commit_commit_log_thorough_interval,
    )
