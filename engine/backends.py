"""The backend that a store's settings select."""

import logging
import os

from congreve.engine.config import StoreConfig
from congreve.engine.state.tuned import Tuned, load_tuned, machine_of
from congreve.io_backends.backend import Backend
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend
from congreve.io_backends.probe import uring_refusal

logger = logging.getLogger(__name__)


#: Smaller segments fill up before zeros can be written ahead of the log.
_URING_SEGMENT = 64 << 20


def make_backend(config: StoreConfig, files: FileSystem = DISK) -> Backend:
    """The backend of `ioBackend`. Raises BackendError if its settings cannot work.

    `auto` selects what `congreve tune` chose for this store and its flush policy. Without such a
    choice it selects `uring` for SYNC_FLUSH in segments of 64 MiB and more, if a probe succeeds,
    else `mmap`: a killed process loses nothing of a mapped file.

    `uring` falls back to `pool`, with a warning in the log, if the kernel, container or file system
    forbids io_uring.
    """
    name = config.io_backend
    if name == "auto":
        name = _choose(config, files)
    elif name != "mmap" and not config.sync_flush:
        logger.warning(
            "flushDiskType=ASYNC_FLUSH with ioBackend=%s: a killed broker loses the messages that"
            " it acknowledged but had not yet written; with ioBackend=mmap only a power cut does",
            name,
        )
    if name == "pool":
        return make_pool(config, locked=config.transient_store_pool_locked)
    if name == "uring":
        refusal = _uring_refusal(config, files)
        if refusal is None:
            return _make_uring()
        logger.warning("ioBackend=uring does not work, using pool: %s", refusal)
        return make_pool(config, locked=False)
    return MmapBackend(prewrites=config.sync_flush)


def _choose(config: StoreConfig, files: FileSystem) -> str:
    tuned = load_tuned(config.root_dir, files)
    choice = None if tuned is None else tuned.choice(config.flush_disk_type)
    if choice is not None:
        logger.info("ioBackend=auto is %s: %s", choice.io_backend, choice.reason)
        _compare_machine(tuned, config.root_dir)
        return choice.io_backend
    if not config.sync_flush or config.mapped_file_size_commit_log < _URING_SEGMENT:
        return "mmap"
    refusal = _uring_refusal(config, files)
    if refusal is not None:
        logger.warning("ioBackend=auto is mmap: %s", refusal)
    return "mmap" if refusal is not None else "uring"


def _compare_machine(tuned: Tuned | None, root: str) -> None:
    """Warn if the disk or the kernel has changed since it was measured."""
    if tuned is None or tuned.machine is None:
        return
    try:
        changes = tuned.machine.differences(machine_of(root))
    except BackendError:
        return
    if changes:
        logger.warning(
            "`congreve tune` measured another machine: %s; run it again", ", ".join(changes)
        )


def _uring_refusal(config: StoreConfig, files: FileSystem) -> str | None:
    # Beside the log, because its folder must hold only segments, even if this process is killed.
    folder = os.path.dirname(os.path.abspath(config.commit_log_dir))
    while not files.is_folder(folder):
        folder = os.path.dirname(folder)
    return uring_refusal(folder, config.mapped_file_size_commit_log)


def _make_uring() -> Backend:
    from congreve.io_backends.uring.uring import UringBackend

    return UringBackend()


def make_pool(config: StoreConfig, *, locked: bool) -> PoolBackend:
    """The pool with RocketMQ's transientStorePool and commit settings. Raises BackendError."""
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
