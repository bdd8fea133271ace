"""Messages of a store's queues as columns, in batches: for programs that only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from congreve.engine.store_files.files import Entries, StoreFiles
from congreve.records.columns.builder import RecordColumns

WINDOW = 32_768
"""Entries to read at once."""
BATCH_ROWS = 32_768
BATCH_BYTES = 16 << 20
EXT_ADDRESS = -(2**31)

ReadEntries = Callable[[int, int], Entries]
"""A function that returns the entries of the offsets [start, stop), which must exist."""
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]


class EntryColumns(NamedTuple):
    """The fields of entries, one array each."""

    physical_offsets: Int64s
    sizes: Int32s
    queue_offsets: Int64s
    tags_codes: Int64s

    def part(self, rows: slice) -> EntryColumns:
        """Some of the rows."""
        physical_offsets, sizes, queue_offsets, tags_codes = self
        return EntryColumns(
            physical_offsets[rows], sizes[rows], queue_offsets[rows], tags_codes[rows]
        )


def entry_windows(
    read: ReadEntries, start: int, stop: int, codes: Sequence[int] | None = None
) -> Iterator[EntryColumns]:
    """Entries of the offsets [start, stop), WINDOW at a time.

    With `codes`, only those with one of these tags codes, which are hashes and may collide.
    """
    for first in range(start, stop, WINDOW):
        entries = read(first, min(first + WINDOW, stop))
        offsets = np.arange(first, first + len(entries), dtype=np.int64)
        if codes is not None:
            hashes = entries["tags_code"].astype(np.int64)
            # The entry may have an address in a consumequeue_ext file in place of the hash.
            mask = _among(hashes, codes) | (hashes < EXT_ADDRESS)
            entries, offsets = entries[mask], offsets[mask]
        yield EntryColumns(
            entries["physical_offset"].astype(np.int64),
            entries["size"].astype(np.int32),
            offsets,
            entries["tags_code"].astype(np.int64),
        )


def gather_batches(
    files: StoreFiles,
    windows: Iterator[EntryColumns],
    gather: RecordColumns,
    *,
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[None]:
    """Add the records of all entries to `gather`; the caller takes a batch at each step.

    A batch has at most `batch_rows` records of `batch_bytes` bytes, but at least one record.
    Raises CorruptRecordError or StoreFormatError for a record that does not match its entry.
    """
    held = 0
    for window in windows:
        taken, count = 0, len(window.sizes)
        sizes = np.cumsum(np.maximum(window.sizes, 0), dtype=np.int64)
        while taken < count:
            spent = int(sizes[taken - 1]) if taken else 0
            end = int(np.searchsorted(sizes, spent + batch_bytes - held, side="right"))
            end = min(max(end, taken + 1), taken + batch_rows - gather.rows, count)
            _gather(files, gather, window.part(slice(taken, end)))
            held += int(sizes[end - 1]) - spent
            taken = end
            if gather.rows >= batch_rows or held >= batch_bytes:
                held = 0
                if gather.rows:
                    yield
    if gather.rows:
        yield


def _gather(files: StoreFiles, gather: RecordColumns, entries: EntryColumns) -> None:
    """Records of entries, segment by segment."""
    for base, rows in files.runs(entries.physical_offsets):
        gather.add_entries(files.segment(base), base, *entries.part(rows))


def _among(values: Int64s, wanted: Sequence[int]) -> Any:
    return np.isin(values, np.array(wanted, np.int64)) if len(wanted) != 1 else values == wanted[0]
