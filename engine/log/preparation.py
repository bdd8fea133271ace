"""The next segment of the log, made before it is needed."""

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
    """Makes one segment ahead (RocketMQ: AllocateMappedFileService), on a thread of its own.

    The file is made in a folder beside the log, on the same file system, and moved in when it is
    complete: the log's folder never holds anything but finished segments, and its last one may
    still be empty. An expired segment waits in that folder to become the next one. Its old bytes
    are no danger: they leave the log's folder first, and come back only as zeros that are on disk;
    a crash in between leaves a file that the next run overwrites as well.

    begin(), take() and close() belong to the one thread that appends, recycle() to any other.
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
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._expired: weakref.ref[Segment] | None = None

    def begin(self, path: str, base_offset: int) -> None:
        """Start making the segment that comes next, unless that began already; returns at once."""
        if self._made is None:
            self._made = self._executor.submit(self._make_ahead, path, base_offset)

    def take(self, path: str, base_offset: int) -> Segment:
        """The segment, in its place in the log; made here and now where it must be.

        BackendError; then the log's folder is as it was.
        """
        segment = self._finish()
        return self._moved(self._make(), path, base_offset) if segment is None else segment

    def recycle(self, segment: Segment) -> bool:
        """Take an expired segment out of the log; False, and nothing done, where one waits already.

        The file is overwritten only when no reference to the segment and no view of it is left. A
        segment whose pages sockets may still hold is not taken.
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
        """Remove a segment that was made and not taken."""
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
        try:
            return made.result()
        except (BackendError, OSError, MemoryError) as error:
            logger.warning("no segment could be prepared ahead: %s", error)
            return None

    def _make_ahead(self, path: str, base_offset: int) -> Segment | None:
        segment = self._reuse()
        if segment is None:
            segment = self._make()
            if self._backend.prewrites:
                self._prewrite(segment)
        if self._closing.is_set():
            return None
        # A folder is synced here, too: behind a busy disk that takes a tenth of a second.
        return self._moved(segment, path, base_offset)

    def _prewrite(self, segment: Segment) -> None:
        """Write zeros to the whole segment; stop early in close(), a slow disk takes seconds."""
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
        """The expired segment as a new one, all zeros on disk; None where none can be used."""
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
            logger.warning("an expired segment could not be used again: %s", error)
            return None
        return segment

    def _make(self) -> Segment:
        try:
            self._files.make_folder(self._folder)
        except OSError as error:
            raise BackendError(
                f"cannot make {self._folder}: {error.strerror}", error.errno or 0
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
