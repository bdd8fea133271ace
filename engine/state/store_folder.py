"""The folders of a store: their locks and owner, and the marker of an unclean stop."""

import logging
import os
from contextlib import suppress

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.log.segment_files import has_segments
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.state.identity import IDENTITY_FILE, IdentityFile
from congreve.engine.state.left_files import LeftFilesFile
from congreve.engine.state.lock import FolderLock, StoreLock
from congreve.engine.state.part_owners import PartOwners
from congreve.engine.state.sizes import SIZES_FILE, SizesFile
from congreve.io_backends.files.file_system import DISK, FileSystem

logger = logging.getLogger(__name__)


class StoreFolder:
    """The locks of one store and its file `abort` (RocketMQ: DefaultMessageStore.start)."""

    def __init__(self, config: StoreConfig, files: FileSystem = DISK) -> None:
        self._config = config
        self._files = files
        self.parts = PartOwners(config, files)
        """Whose the parts are that lie outside the root."""
        self.sizes = SizesFile(config.own_dir, files=files)
        """With which sizes its files were made."""
        self._lock = StoreLock(config.lock_path, files)
        self._log_lock = FolderLock(config.commit_log_dir, files)

    @property
    def clean(self) -> bool:
        """Whether the store was last closed cleanly. Raises OSError."""
        return not self._files.exists(self._config.abort_path)

    def acquire(self) -> None:
        """Lock the store's root; raises StoreLockedError, StoreError."""
        self._lock.acquire()

    def acquire_log(self, queues: QueueTable) -> None:
        """Lock the folder of the log; raises StoreLockedError.

        Raises StoreError if there are queues but no log.
        """
        self._demand_log(queues)
        self._log_lock.acquire()

    def _demand_log(self, queues: QueueTable) -> None:
        folder = self._config.commit_log_dir
        try:
            without_log = not has_segments(self._files, folder) and queues.has_files()
        except OSError as error:
            raise StoreError(f"cannot list {error.filename}: {error.strerror}") from error
        if without_log:
            raise StoreError(
                f"{folder} holds no log, but {queues.folder} holds its queues: restore the log's "
                f"folder, or remove {queues.folder} to start with an empty store"
            )

    def check(self) -> None:
        """Raise the StoreError with which a start would refuse the parts; it writes nothing."""
        self._demand_log(QueueTable(self._config.consume_queue_dir, files=self._files))
        self.parts.check(
            IdentityFile(self._config.own_dir, files=self._files, read_only=True).load()
        )

    def identify(self) -> str:
        """The store's id, after a check that its parts are its own; both are made if they are new.

        Raises StoreError.
        """
        identity = IdentityFile(self._config.own_dir, files=self._files)
        self.parts.check(identity.load())
        made = identity.load_or_make()
        self.parts.claim(made)
        return made

    def mark_running(self) -> None:
        """Create the marker, durably; raises StoreError."""
        path = self._config.abort_path
        try:
            self._files.open(path, os.O_WRONLY | os.O_CREAT).close()
            self._files.sync_folder(self._config.root_dir)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error

    def changes(self, log_end: int | None = None) -> list[str]:
        """How the files beside the log differ from what the last stop left, if that was clean.

        Raises StoreError.
        """
        if not self.clean:
            return []
        return LeftFilesFile(self._config, self._files, read_only=True).changes(log_end)

    def mark_stopped(self, log_end: int) -> None:
        """Note what is left, and remove the marker; if that fails, the next start recovers the log.

        `log_end` is the end of the log.
        """
        try:
            LeftFilesFile(self._config, self._files).save(log_end)
            self._files.remove(self._config.abort_path)
        except (StoreError, OSError) as error:
            logger.warning("the next start recovers the log: %s", error)

    def release(self) -> None:
        """Release both locks; idempotent."""
        self._log_lock.release()
        self._lock.release()

    def undo(self) -> None:
        """Release both locks, and remove what is new: empty folders, the lock file, the id."""
        self._log_lock.release()
        if not self._lock.is_new:
            self._lock.release()
            return
        self._forget_first_state()
        for folder in (self._config.commit_log_dir, self._config.own_dir):
            with suppress(OSError):
                self._files.remove_folder(folder)
        self._lock.remove()

    def _forget_first_state(self) -> None:
        """Remove what a start writes first, where there is no other state."""
        own_dir = self._config.own_dir
        with suppress(OSError):
            names = {entry.name for entry in self._files.entries(own_dir)}
            if names <= {IDENTITY_FILE, SIZES_FILE}:
                for name in names:
                    self._files.remove(os.path.join(own_dir, name))
