"""Which backend a store's settings mean."""

import logging
import os

from congreve.engine.config import StoreConfig
from congreve.io_backends.backend import Backend
from congreve.io_backends.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend
from congreve.io_backends.probe import uring_refusal

log = logging.getLogger(__name__)


def make_backend(config: StoreConfig) -> Backend:
    """The backend of `ioBackend`; BackendError where its settings cannot work.

    `uring` falls back to `pool`, with a line in the log, where kernel, container or file system
    forbid it; to try it, the log's folder is made. `auto` is `mmap`.
    """
    if config.io_backend == "pool":
        return make_pool(config, locked=config.transient_store_pool_locked)
    if config.io_backend == "uring":
        os.makedirs(config.commit_log_dir, exist_ok=True)
        refusal = uring_refusal(config.commit_log_dir)
        if refusal is None:
            from congreve.io_backends.uring import UringBackend

            return UringBackend()
        log.warning("ioBackend=uring cannot be used, pool is: %s", refusal)
        return make_pool(config, locked=False)
    return MmapBackend(prewrites=config.sync_flush)


def make_pool(config: StoreConfig, *, locked: bool) -> PoolBackend:
    """The pool of RocketMQ's transientStorePool and commit settings."""
    return PoolBackend(
        buffers=config.transient_store_pool_size,
        locked=locked,
        prewrites=config.sync_flush,
        commit_interval_ms=config.commit_interval_commit_log,
        commit_least_pages=config.commit_commit_log_least_pages,
        commit_thorough_ms=config.commit_commit_log_thorough_interval,
    )
