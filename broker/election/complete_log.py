"""Whether a member's log still has everything that the member ever reported to a master."""

import os
from typing import Protocol

import msgspec

from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class CleanStop(msgspec.Struct, frozen=True):
    """What a complete log was like when its store was closed: the mark of a clean stop.

    `store` is the store's id, `end` the log's end, `epoch` the newest one of its epoch file.
    """

    store: str
    end: int
    epoch: int


class MarkFile(Protocol):
    """Where the mark is between two lives of a member."""

    def take(self) -> CleanStop | None:
        """The mark of the last stop, which is gone durably when this returns."""
        ...

    def save(self, mark: CleanStop) -> None:
        """Leave a mark, durably."""
        ...


class CleanStopFile:
    """`ROOT/congreve/clean-stop.json`, sealed: there only while the member does not run."""

    def __init__(self, own_dir: str, files: FileSystem = DISK) -> None:
        self._file = StateFile(os.path.join(own_dir, "clean-stop.json"), files=files)

    def take(self) -> CleanStop | None:
        """The mark; None without a valid file. Raises StoreError."""
        mark = self._file.load(_parse)
        self._file.remove()
        return mark

    def save(self, mark: CleanStop) -> None:
        """Write the mark; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(mark)))


def _parse(text: str) -> CleanStop:
    return msgspec.json.decode(unseal(text), type=CleanStop)


class CompleteLog:
    """Follows one member's log through the times its store is opened and closed.

    After a stop that was not clean, the log may have lost its end, whatever it looks like. It is
    complete again once it has what a master's log had at that master's election: what that master
    has acknowledged since needs this member, unless it has left the in-sync set.
    """

    def __init__(self, file: MarkFile) -> None:
        self._file = file
        self._mark: CleanStop | None = None
        self.is_whole = False
        """Whether the log was complete when the store was closed last, and is as it was then."""
        self.admitted_in = -1
        """The epoch whose master has admitted the log since the store was opened; -1: none has."""

    def load(self) -> None:
        """Take the mark of the last life. Raises StoreError."""
        self._mark = self._file.take()

    def opened(self, found: CleanStop, *, found_clean: bool) -> None:
        """The store is open, and nothing is appended yet.

        `found_clean` says whether its last user, maybe another version, closed it.
        """
        self.is_whole = found_clean and found == self._mark
        self.admitted_in = -1

    def admitted(self, epoch: int) -> None:
        """The log has all from before this epoch, and its master admits it; or is this member."""
        self.admitted_in = epoch

    def closed(self, left: CleanStop, *, left_clean: bool) -> None:
        """The store is closed; `left_clean` says whether everything is on disk."""
        complete = self.is_whole or self.admitted_in >= 0
        self._mark = left if complete and left_clean else None

    def save(self) -> None:
        """Leave the mark for the next life, if the log is complete. Raises StoreError."""
        if self._mark is not None:
            self._file.save(self._mark)
