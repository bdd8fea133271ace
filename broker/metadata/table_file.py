"""The file of a table of settings (topics.json, subscriptionGroup.json) and its journal.

The reference writes the whole file at each change. Here a change is appended to a journal, and
the file is written soon after, for all changes together. A removal writes the whole file: a Java
broker that opens the store after a kill must not serve what was removed.
"""

from typing import Generic, Protocol, TypeVar

import msgspec

from congreve.broker.metadata.journaled_file import JournaledFile
from congreve.broker.metadata.state_writer import Changes
from congreve.engine.state.state_file import DISK, FileSystem
from congreve.remoting.messages.bodies import DataVersion

C = TypeVar("C")


class Entry(msgspec.Struct, Generic[C], array_like=True):
    """Settings that changed up to a data version."""

    version: DataVersion
    changed: dict[str, C]


class ConfigTable(Protocol[C]):
    """A table of settings with a data version (RocketMQ: ConfigManager)."""

    data_version: DataVersion

    def take_changed(self) -> Entry[C] | None:
        """The changes since the last call, None after a removal."""

    def file_text(self, version: DataVersion) -> str:
        """The file's content with this data version; one thread at a time may call it."""

    def load(self, text: str) -> bool:
        """Load the file's content."""

    def replay(self, entry: Entry[C]) -> None:
        """Apply an entry of the journal, after load()."""

    def note_saved(self, number: int) -> None:
        """Record that changes up to this number are on disk."""


class TableFile(Generic[C]):
    """Loads and saves a ConfigTable; owned by one event loop.

    The first change after a start writes the file, further ones are appended to the journal, and
    fold() brings them into the file. (RocketMQ: ConfigManager.)
    """

    def __init__(
        self,
        path: str,
        journal_path: str,
        table: ConfigTable[C],
        entry: type[Entry[C]],
        files: FileSystem = DISK,
    ) -> None:
        self.path = path
        self._table = table
        self._file = JournaledFile(path, journal_path, entry, files)
        self._file.distrust_journal()
        self._fold = False
        self.changes: Changes[tuple[DataVersion, Entry[C] | None]] = Changes(
            path, self._take, self._write, table.note_saved
        )
        """The changes of the table, and the writes that make them durable."""

    def load(self) -> bool:
        """Read the file and its journal; returns whether there was a file.

        Raises StoreError when the file cannot be used.
        """
        found = self._file.load(self._table.load, self._table.replay)
        self._table.take_changed()
        return found

    def fold(self) -> None:
        """Write the file soon when its journal has entries."""
        if self._file.has_entries:
            self._fold = True
            self.changes.changed()

    def close(self) -> None:
        """Close the journal, when no write is under way. Idempotent."""
        self._file.close()

    def _take(self) -> tuple[DataVersion, Entry[C] | None]:
        fold, self._fold = self._fold, False
        entry = self._table.take_changed()
        return self._table.data_version, None if fold else entry

    def _write(self, taken: tuple[DataVersion, Entry[C] | None]) -> None:
        version, entry = taken
        if entry is not None and not self._file.wants_replace:
            self._file.append(entry)
            return
        # After a failure the changes are in no journal, so the next write is of the file, too.
        self._file.distrust_journal()
        self._file.replace(self._table.file_text(version))
