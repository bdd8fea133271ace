from typing import final

import pyarrow as pa

from congreve.records.columns.buffer import ColumnBuffer

@final
class ArrowRows:
    def __init__(self, batch: pa.RecordBatch) -> None: ...
    @property
    def rows(self) -> int: ...

@final
class PageScratch:
    @property
    def page(self) -> ColumnBuffer: ...
    @property
    def dictionary_page(self) -> ColumnBuffer: ...

@final
class PageEncoder:
    def __init__(
        self,
        scratch: PageScratch,
        column: int,
        part: int,
        width: int,
        *,
        optional: bool,
        dictionary: bool,
        statistics: bool,
    ) -> None: ...
    @property
    def has_dictionary(self) -> bool: ...
    @property
    def dictionary_values(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    @property
    def minimum(self) -> bytes | None: ...
    @property
    def maximum(self) -> bytes | None: ...
    def begin(self, rows: ArrowRows) -> None: ...
    def next_page(self) -> int: ...
