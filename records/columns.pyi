from collections.abc import Iterable
from typing import Any, final

import numpy as np
from typing_extensions import Buffer

from congreve.records.column import KINDS, Column
from congreve.records.recordfilter import RecordFilter

__all__ = ["KINDS", "RecordColumns"]

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
        records: RecordFilter | None = None,
        verify_crc: bool = False,
        keep_corrupt: bool = False,
        decompress: bool = True,
    ) -> None:
        """Columns out of KINDS; RecordError for another name.

        With `tags` only messages with one of these are taken, with `records` those that it accepts.
        A damaged record raises
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
