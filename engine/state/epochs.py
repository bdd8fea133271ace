"""Which master wrote which part of the log, and where two logs begin to differ."""

import zlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

from congreve.engine.errors import StoreFormatError
from congreve.engine.state.state_file import DISK, FileSystem, StateFile


class Epoch(NamedTuple):
    """One master's part of the log: it begins at the physical offset `start`.

    RocketMQ: EpochEntry.
    """

    number: int
    start: int


@dataclass(frozen=True, slots=True)
class Epochs:
    """The epochs of a log; numbers and starts both rise (RocketMQ: EpochFileCache).

    An epoch ends where the next one starts, the last one at the log's end. Epochs without a byte
    are left out, but never the first one: it shows that two logs belong to the same group. (5.x
    compares logs without it, and then never accepts a slave whose only epoch the master does not
    have.)
    Raises StoreFormatError for entries that do not rise.
    """

    entries: tuple[Epoch, ...] = ()

    def __post_init__(self) -> None:
        """Check the order."""
        for index, (one, following) in enumerate(pairwise(self.entries)):
            is_empty = one.start == following.start and index > 0
            if one.number >= following.number or one.start > following.start or is_empty:
                raise StoreFormatError(f"epoch {following} does not come after {one}")
        if self.entries and (self.entries[0].number < 0 or self.entries[0].start < 0):
            raise StoreFormatError(f"{self.entries[0]} is not an epoch: a number is negative")

    @property
    def last(self) -> Epoch | None:
        """The newest epoch; None if there is none."""
        return self.entries[-1] if self.entries else None

    @property
    def newest(self) -> int:
        """The number of the newest epoch; -1 without any."""
        return self.entries[-1].number if self.entries else -1

    def begun(self, number: int, start: int) -> Self:
        """With a new epoch.

        Raises StoreFormatError if `number` is not the highest, or `start` is before the last start.
        """
        if number <= self.newest:
            raise StoreFormatError(f"epoch {number} does not come after epoch {self.newest}")
        if self.entries and start < self.entries[-1].start:
            raise StoreFormatError(f"epoch {number} starts at {start}, before {self.entries[-1]}")
        return type(self)((*self.cut(start).entries, Epoch(number, start)))

    def cut(self, end: int) -> Self:
        """Of a log that ends at `end` (RocketMQ: truncateSuffixByOffset)."""
        return type(self)(
            tuple(entry for entry in self.entries if entry.start < end) or self.entries[:1]
        )

    def without_expired(self, log_begin: int) -> Self:
        """Of a log that begins at `log_begin` (RocketMQ: truncatePrefixByOffset)."""
        kept = [one for one, following in pairwise(self.entries) if following.start > log_begin]
        return type(self)((*kept, *self.entries[-1:]))

    def at(self, offset: int) -> Epoch | None:
        """The epoch of the byte at this offset; None before the first one."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start) - 1
        return self.entries[index] if index >= 0 else None

    def end_of(self, entry: Epoch, log_end: int) -> int:
        """Where an epoch of these ends, in a log that ends at `log_end`."""
        index = self.entries.index(entry) + 1
        return self.entries[index].start if index < len(self.entries) else log_end

    def common_end(self, log_end: int, other: "Epochs", other_end: int) -> int | None:
        """Up to where two logs have the same bytes; None if no epoch is in both.

        The newest epoch with the same start in both logs was written by one master, so the shorter
        part of it is the beginning of the longer one (RocketMQ: findConsistentPoint).
        """
        shared = set(other.entries)
        for entry in reversed(self.entries):
            if entry in shared:
                return min(self.end_of(entry, log_end), other.end_of(entry, other_end))
        return None


class EpochFile:
    """The epochs of a store on disk, in RocketMQ 5's format (RocketMQ: CheckpointFile).

    The number of entries, their CRC-32, then a line `number-start` for each.
    """

    def __init__(self, path: str, files: FileSystem = DISK) -> None:
        self._file = StateFile(path, files=files)

    def load(self) -> Epochs:
        """The epochs; none if there is no file. Raises StoreError as StateFile does.

        Raises StoreFormatError if the file and its backup are damaged: the content of the log is
        unknown then, and the store must not take part in an election.
        """
        epochs = self._file.load(decode_epochs)
        if epochs is None and self._file.was_damaged:
            raise StoreFormatError(
                f"{self._file.path} is damaged: remove this member's store, and let it copy"
                " the log of the master again"
            )
        return epochs or Epochs()

    def save(self, epochs: Epochs) -> None:
        """Replace the file; it is durable when this returns. Raises StoreError."""
        self._file.replace(encode_epochs(epochs.entries))


def encode_epochs(entries: Iterable[Epoch]) -> str:
    """The text of the file."""
    lines = [f"{entry.number}-{entry.start}\n" for entry in entries]
    return f"{len(lines)}\n{_crc(lines)}\n" + "".join(lines)


def decode_epochs(text: str) -> Epochs:
    """The epochs of a file's text. Raises ValueError or StoreFormatError for a damaged one."""
    count, crc, *lines = text.splitlines(keepends=True)
    if int(count) != len(lines):
        raise ValueError(f"{len(lines)} epochs instead of {int(count)}")
    if int(crc) not in (0, _crc(lines)):
        raise ValueError("the CRC of its epochs is wrong")
    pairs = (line.split("-") for line in lines)
    return Epochs(tuple(Epoch(int(number), int(start)) for number, start in pairs))


def _crc(lines: Iterable[str]) -> int:
    return zlib.crc32("".join(lines).encode()) & 0x7FFFFFFF
