from collections.abc import Iterable
from typing import Any, final

import numpy as np
from typing_extensions import Buffer

from congreve.records.columns.column import KINDS, Column
from congreve.records.filter.record_filter import RecordFilter

__all__ = ["KINDS", "RecordColumns"]

@final
class RecordColumns:
    def __init__(
        self,
        names: Iterable[str],
        *,
        tags: Iterable[str] | None = None,
        records: RecordFilter | None = None,
        verify_crc: bool = False,
        keep_corrupt: bool = False,
        decompress: bool = True,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def corrupt(self) -> list[tuple[int, str]]: ...
    def add_entries(
        self,
        log: Buffer,
        base_offset: int,
        physical_offsets: np.ndarray[Any, np.dtype[np.int64]],
        sizes: np.ndarray[Any, np.dtype[np.int32]],
        queue_offsets: np.ndarray[Any, np.dtype[np.int64]],
        tags_codes: np.ndarray[Any, np.dtype[np.int64]],
    ) -> int: ...
    def add_records(self, buffer: Buffer, begin_offset: int = 0, end_offset: int = ...) -> int: ...
    def take(self) -> dict[str, Column]: ...
