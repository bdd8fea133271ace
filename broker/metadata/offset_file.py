"""consumerOffset.json, and a journal of the offsets that were acknowledged after it was written.

The reference writes consumerOffset.json every five seconds. An acknowledged offset must survive a
kill before that. The broker appends it to a journal, one small write for many offsets, instead of
writing the whole file.
"""

import threading

from congreve.broker.metadata.journaled_file import JournaledFile
from congreve.broker.metadata.offsets import Acknowledged, ConsumerOffsetManager, Line
from congreve.engine.state.state_file import DISK, FileSystem


class OffsetFile:
    """Loads and saves a ConsumerOffsetManager; any thread may call append() and replace().

    (RocketMQ: ConfigManager.)
    """

    def __init__(
        self,
        path: str,
        journal_path: str,
        offsets: ConsumerOffsetManager,
        files: FileSystem = DISK,
    ) -> None:
        self.path = path
        self.journal_path = journal_path
        self._file = JournaledFile(path, journal_path, list[Line], files)
        self._offsets = offsets
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read the file, and its journal. Raises StoreError when the file cannot be used."""
        self._file.load(self._offsets.load, self._offsets.replay)

    def append(self, acknowledged: Acknowledged) -> None:
        """Write these offsets to disk. Raises StoreError when that fails."""
        with self._lock:
            if self._file.wants_replace:
                # After a failure, `acknowledged` lacks what that write should have kept.
                self._file.replace(self._offsets.file_text())
            elif lines := self._offsets.lines(acknowledged):
                self._file.append(lines)

    def replace(self) -> None:
        """Write all offsets to consumerOffset.json. Raises StoreError when that fails."""
        with self._lock:
            self._file.replace(self._offsets.file_text())

    def close(self) -> None:
        """Close the journal. Idempotent."""
        with self._lock:
            self._file.close()
