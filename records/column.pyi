from typing import Final, final

from congreve.records.columnbuffer import ColumnBuffer

#: Columns by name; "properties" is a map, "propertiesJson" the same as JSON text.
KINDS: Final[dict[str, int]]

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
