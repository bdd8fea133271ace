"""Which backend a store's settings mean."""

import logging
import os

from congreve.engine.config import StoreConfig
from congreve.io_backends.backend import Backend
from congreve.io_backends.mapped import MmapBackend
from congreve.io_backends.probe import uring_refusal

log = logging.getLogger(__name__)


def make_backend(config: StoreConfig) -> Backend:
    """The backend of `ioBackend`; BackendError where it cannot work and must not be replaced.

    `uring` falls back to `mmap`, with a line in the log, where kernel, container or file system
    forbid it. Makes the log's folder, to try it there.
    """
    if config.io_backend == "uring":
        os.makedirs(config.commit_log_dir, exist_ok=True)
        refusal = uring_refusal(config.commit_log_dir)
        if refusal is None:
            from congreve.io_backends.uring import UringBackend

            return UringBackend()
        log.warning("ioBackend=uring cannot be used, mmap is: %s", refusal)
    return MmapBackend(prewrites=config.sync_flush)
