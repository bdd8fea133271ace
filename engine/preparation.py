"""The next segment of the log, made before it is needed."""

import logging
import os
from concurrent.futures import Future, ThreadPoolExecutor

from congreve.io_backends.backend import Backend, Segment
from congreve.io_backends.errors import BackendError

log = logging.getLogger(__name__)


class SegmentPreparation:
    """Makes one segment ahead (RocketMQ: AllocateMappedFileService), on a thread of its own.

    The file is made in a folder beside the log, on the same file system, and moved in when it is
    taken: the log's folder never holds anything but finished segments. begin(), take() and
    close() belong to the one thread that appends.
    """

    def __init__(self, log_folder: str, segment_size: int, backend: Backend) -> None:
        self._folder = log_folder.rstrip("/") + ".prepared"
        self._path = os.path.join(self._folder, "segment")
        self._size = segment_size
        self._backend = backend
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare")
        self._made: Future[Segment] | None = None

    def begin(self) -> None:
        """Start making a segment, unless one is made already; returns at once."""
        if self._made is None:
            self._made = self._executor.submit(self._make_ahead)

    def take(self, path: str, base_offset: int) -> Segment:
        """The segment, in its place in the log; made here and now where it must be.

        BackendError; then the log's folder is as it was.
        """
        segment = self._finish()
        if segment is None:
            segment = self._make()
        try:
            self._backend.rename(segment, path, base_offset)
        except BackendError:
            self._remove()
            raise
        return segment

    def close(self) -> None:
        """Remove what was made and not taken."""
        self._finish()
        self._executor.shutdown()
        self._remove()
        if os.path.isdir(self._folder) and not os.listdir(self._folder):
            os.rmdir(self._folder)

    def _finish(self) -> Segment | None:
        made, self._made = self._made, None
        if made is None:
            return None
        try:
            return made.result()
        except BackendError as error:
            log.warning("no segment could be prepared ahead: %s", error)
            return None

    def _make_ahead(self) -> Segment:
        segment = self._make()
        segment.prewrite()
        return segment

    def _make(self) -> Segment:
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise BackendError(f"cannot make {self._folder}: {error.strerror}") from error
        self._remove()
        return self._backend.create(self._path, 0, self._size)

    def _remove(self) -> None:
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise BackendError(f"cannot remove {self._path}: {error.strerror}") from error
