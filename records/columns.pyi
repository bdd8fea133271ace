from collections.abc import Iterable
from typing import Any, Final, final

import numpy as np
from typing_extensions import Buffer

#: Columns by name; "properties" is a map, "propertiesJson" the same as JSON text.
KINDS: Final[dict[str, int]]

@final
class ColumnBuffer:
    """Bytes of one column, exported through the buffer protocol (1-d, read-only)."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Column:
    """The values of one column as Arrow lays them out, native byte order.

    Numbers and times stand in `values` alone: int32, int64, microseconds since 1970. Texts and
    bodies stand behind `offsets` (int32, rows + 1). A map's `offsets` count entries, whose names
    stand behind `name_offsets` in `names` and whose values behind `entry_offsets` in `values`.
    """

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    @property
    def validity(self) -> ColumnBuffer:
        """A bit a row, 0 where there is no value; empty where each row has one."""
    @property
    def offsets(self) -> ColumnBuffer: ...
    @property
    def values(self) -> ColumnBuffer: ...
    @property
    def entry_offsets(self) -> ColumnBuffer: ...
    @property
    def name_offsets(self) -> ColumnBuffer: ...
    @property
    def names(self) -> ColumnBuffer: ...

@final
class RecordColumns:
    """Gathers columns from stored records, or from the body of a pull; runs without the GIL.

    records.arrow makes Arrow arrays of what comes out, without a copy.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        tags: Iterable[str] | None = None,
        verify_crc: bool = False,
        keep_corrupt: bool = False,
        decompress: bool = True,
    ) -> None:
        """Columns out of KINDS; RecordError for another name.

        With `tags` only messages with one of these are taken. A damaged record raises
        CorruptRecordError, or with `keep_corrupt` becomes a row without values. Bodies that their
        client compressed are decompressed (bodyCRC and storeSize are those of what is stored).
        """

    @property
    def rows(self) -> int:
        """Taken since the last take()."""
    @property
    def bytes_touched(self) -> int:
        """Bytes of records that were read so far; bodies only where a column or the CRC asked."""
    @property
    def corrupt(self) -> list[tuple[int, str]]:
        """(row, what is wrong) since the last take()."""
    def add_entries(
        self,
        log: Buffer,
        base_offset: int,
        physical_offsets: np.ndarray[Any, np.dtype[np.int64]],
        sizes: np.ndarray[Any, np.dtype[np.int32]],
        queue_offsets: np.ndarray[Any, np.dtype[np.int64]],
        tags_codes: np.ndarray[Any, np.dtype[np.int64]],
    ) -> int:
        """Take the records that entries of a queue name; how many.

        `log` holds the log's bytes from `base_offset` on. What lies there must be a record of that
        size and queue offset. CorruptRecordError, TypeError, ValueError; RecordError where a column
        grows beyond 2 GiB.
        """
    def add_records(self, buffer: Buffer, begin_offset: int = 0, end_offset: int = ...) -> int:
        """Take records that stand one behind the other, with queue offsets in [begin, end).

        How many; RecordError where the bytes are no records.
        """
    def take(self) -> dict[str, Column]:
        """The columns so far, by name; the next rows begin anew."""
