"""The backend that a store's settings select."""

import logging
import os

from congreve.engine.config import StoreConfig
from congreve.engine.state.tuned import Tuned, load_tuned, machine_of
from congreve.io_backends.backend import Backend
from congreve.io_backends.backends import BACKENDS, BackendKind, Options
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem

logger = logging.getLogger(__name__)


#: Smaller segments fill up before zeros can be written ahead of the log.
_URING_SEGMENT = 32 << 20


def make_backend(config: StoreConfig, files: FileSystem = DISK) -> Backend:
    """The backend of `ioBackend`. Raises BackendError if its settings cannot work.

    `auto` selects what `congreve tune` chose for this store and its flush policy. Without such a
    choice it selects `uring` for SYNC_FLUSH in segments of 32 MiB and more, if a probe succeeds,
    else `mmap`: a killed process loses nothing of a mapped file.

    A backend that the kernel, the container or the file system refuses is replaced by another, with
    a warning in the log: `uring` by `pool`.
    """
    name = config.io_backend
    if name == "auto":
        name = _choose(config, files)
    elif not BACKENDS[name].survives_kill and not config.sync_flush:
        logger.warning(
            "flushDiskType=ASYNC_FLUSH with ioBackend=%s: a killed broker loses the messages that"
            " it acknowledged but had not yet written; with ioBackend=mmap only a power cut does",
            name,
        )
    kind = BACKENDS[name]
    refusal = _refusal(kind, config, files)
    if refusal is None:
        return kind.make(_options(config, locked=config.transient_store_pool_locked))
    logger.warning("ioBackend=%s does not work, using %s: %s", name, kind.instead, refusal)
    return BACKENDS[kind.instead].make(_options(config, locked=False))


def _choose(config: StoreConfig, files: FileSystem) -> str:
    tuned = load_tuned(config.root_dir, files)
    choice = None if tuned is None else tuned.choice(config.flush_disk_type)
    if choice is not None:
        logger.info("ioBackend=auto is %s: %s", choice.io_backend, choice.reason)
        _compare_machine(tuned, config.root_dir)
        return choice.io_backend
    if not config.sync_flush or config.mapped_file_size_commit_log < _URING_SEGMENT:
        return "mmap"
    refusal = _refusal(BACKENDS["uring"], config, files)
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


def _refusal(kind: BackendKind, config: StoreConfig, files: FileSystem) -> str | None:
    # Beside the log, because its folder must hold only segments, even if this process is killed.
    folder = os.path.dirname(os.path.abspath(config.commit_log_dir))
    while not files.is_folder(folder):
        folder = os.path.dirname(folder)
    return kind.refusal(folder, config.mapped_file_size_commit_log)


def _options(config: StoreConfig, *, locked: bool) -> Options:
    """RocketMQ's transientStorePool and commit settings."""
    return Options(
        buffers=config.transient_store_pool_size,
        locked=locked,
        segment_size=config.mapped_file_size_commit_log,
        prewrites=config.sync_flush,
        commit_interval_ms=config.commit_interval_commit_log,
        commit_least_pages=config.commit_commit_log_least_pages,
        commit_thorough_ms=config.commit_commit_log_thorough_interval,
    )
