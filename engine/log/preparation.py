"""The next segment of the log, created before it is needed."""

import logging
import os
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from congreve.engine.log.segment_files import remove_files
from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.file_system import DISK, FileSystem

logger = logging.getLogger(__name__)

PREWRITTEN_AT_ONCE = 64 << 20


class SegmentPreparation:
    """Creates one segment ahead, on a separate thread (RocketMQ: AllocateMappedFileService).

    It creates the file in a folder beside the log, on the same file system, and moves it when it
    is complete: the log's folder holds only finished segments, of which the last may be empty. An
    expired segment waits in that folder to become the next one. Its old bytes cannot appear in
    the log: the file leaves the log's folder first, and returns only when zeros are on disk; a
    file that a crash leaves in between is overwritten by the next run.

    Zeros for the segment are left out after one that was needed before it was ready: a log of small
    segments must not wait for them.

    Only the appending thread calls begin(), take() and close(); any other thread calls recycle().
    """

    def __init__(
        self, log_folder: str, segment_size: int, backend: Backend, files: FileSystem = DISK
    ) -> None:
        self._log_folder = log_folder
        self._folder = log_folder.rstrip("/") + ".prepared"
        self._path = os.path.join(self._folder, "segment")
        self._expired_path = os.path.join(self._folder, "expired")
        self._size = segment_size
        self._backend = backend
        self._files = files
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare")
        self._made: Future[Segment | None] | None = None
        self._is_late = False  # the last segment was needed before it was ready
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._expired: weakref.ref[Segment] | None = None

    def begin(self, path: str, base_offset: int) -> None:
        """Start to create the next segment, unless that has already begun; returns at once."""
        if self._made is None:
            self._made = self._executor.submit(self._make_ahead, path, base_offset)

    def take(self, path: str, base_offset: int) -> Segment:
        """Move the segment to its place in the log; without a prepared one, create it now.

        Raises BackendError; the log's folder is unchanged then.
        """
        segment = self._finish()
        return self._moved(self._make(), path, base_offset) if segment is None else segment

    def recycle(self, segment: Segment) -> bool:
        """Move an expired segment out of the log, to reuse it; False if one already waits.

        The file is overwritten only when no reference to the segment and no view of it remains. A
        segment whose pages sockets may still hold is refused.
        """
        if segment.is_sent_from:
            return False
        with self._lock:
            if self._files.exists(self._expired_path):
                return False
            try:
                self._files.make_folder(self._folder)
                self._files.rename(segment.path, self._expired_path)
                self._files.sync_folder(self._log_folder)
                self._files.sync_folder(self._folder)
            except OSError as error:
                logger.warning("%s cannot be kept for reuse: %s", segment.path, error.strerror)
                return not self._files.exists(segment.path)
            self._expired = weakref.ref(segment)
            return True

    def close(self) -> None:
        """Remove a created segment that was not taken."""
        self._closing.set()
        segment = self._finish()
        self._executor.shutdown()
        if segment is not None:
            remove_files(self._files, self._log_folder, [segment.path])
        self._remove(self._path)
        self._remove(self._expired_path)
        with suppress(OSError):
            self._files.remove_folder(self._folder)

    def _finish(self) -> Segment | None:
        made, self._made = self._made, None
        if made is None:
            return None
        self._is_late = not made.done()
        try:
            return made.result()
        except (BackendError, OSError, MemoryError) as error:
            logger.warning("cannot prepare the next segment ahead: %s", error)
            return None

    def _make_ahead(self, path: str, base_offset: int) -> Segment | None:
        segment = self._reuse()
        if segment is None:
            segment = self._make()
            if self._backend.prewrites and not self._is_late:
                self._prewrite(segment)
        if self._closing.is_set():
            return None
        # It syncs the folder, too, which takes long on a busy disk.
        return self._moved(segment, path, base_offset)

    def _prewrite(self, segment: Segment) -> None:
        """Write zeros to the whole segment; close() stops it early, because it may take seconds."""
        for upto in range(PREWRITTEN_AT_ONCE, self._size + PREWRITTEN_AT_ONCE, PREWRITTEN_AT_ONCE):
            if self._closing.is_set():
                return
            segment.prewrite(upto)

    def _moved(self, segment: Segment, path: str, base_offset: int) -> Segment:
        try:
            self._backend.rename(segment, path, base_offset)
        except BackendError:
            self._remove(segment.path)
            raise
        return segment

    def _reuse(self) -> Segment | None:
        """The expired segment as a new one, all zeros on disk; None if there is none to reuse."""
        self._remove(self._path)
        with self._lock:
            if self._expired is not None and self._expired() is not None:
                return None
            self._expired = None
            try:
                self._files.rename(self._expired_path, self._path)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise BackendError(
                    f"cannot move {self._expired_path}: {error.strerror}", error.errno or 0
                ) from error
        try:
            segment = self._backend.open(self._path, 0, self._size, 0)
            self._prewrite(segment)
        except BackendError as error:
            logger.warning("cannot reuse an expired segment: %s", error)
            return None
        return segment

    def _make(self) -> Segment:
        try:
            self._files.make_folder(self._folder)
        except OSError as error:
            raise BackendError(
                f"cannot create {self._folder}: {error.strerror}", error.errno or 0
            ) from error
        self._remove(self._path)
        return self._backend.create(self._path, 0, self._size)

    def _remove(self, path: str) -> None:
        try:
            self._files.remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise BackendError(
                f"cannot remove {path}: {error.strerror}", error.errno or 0
            ) from error
