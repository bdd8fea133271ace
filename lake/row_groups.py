"""Where the messages of queues are in a table's files: row groups by queue and offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from congreve.lake.data_files import BrokerQueue, DataFiles, RowGroup
from congreve.lake.errors import TableError
from congreve.lake.progress import EndOffsets
from congreve.lake.table import TopicTable

EXTENT = ("queueOffset", "storeTimestamp", "commitLogOffset")
READ = ("brokerName", "queueId", *EXTENT)


class RowGroups:
    """The row groups of each queue of a table, as of the last refresh().

    A file's footer is read once: files do not change.
    """

    def __init__(self) -> None:
        self._of_file: dict[str, dict[BrokerQueue, list[RowGroup]]] = {}
        self.of_queue: dict[BrokerQueue, list[RowGroup]] = {}
        """By queue: row groups in the order of their first offsets."""
        self.ends: EndOffsets = {}
        """The table's progress."""
        self.table = ""
        """The table's UUID, empty without a table."""
        self.files = DataFiles({})

    def refresh(self, table: TopicTable) -> None:
        """Follow the current snapshots of a table and of its dead letters, which are messages, too.

        Raises TableError, also if the table does not have whole bodies, or ProgressError.
        """
        if not table.load():
            self._of_file, self.of_queue, self.ends, self.table = {}, {}, {}, ""
            return
        table.check_bodies()
        dead = table.dead_letters()
        files = DataFiles(table.iceberg.io.properties)
        try:
            of_dead = [] if dead is None else _paths(dead)
            paths = [*_paths(table), *of_dead]
            known = self._of_file
            of_file = {p: known[p] if p in known else _groups(files, p) for p in paths}
        except OSError as error:
            raise TableError(f"files of {table.name} cannot be read: {error}") from error
        ends, dead_paths = table.progress(), {*of_dead}
        found: dict[BrokerQueue, list[RowGroup]] = {}
        for path, groups in of_file.items():
            for queue, more in groups.items():
                # Beyond the table's progress the neighbours of dead letters are missing.
                end = ends.get(queue[0], {}).get(queue[1], 0) if path in dead_paths else None
                found.setdefault(queue, []).extend(_before(end, more))
        for groups_of_queue in found.values():
            groups_of_queue.sort(key=lambda group: (group.first, group.stop))
        self._of_file, self.of_queue, self.files = of_file, found, files
        self.ends, self.table = ends, table.uuid

    def first_offset(self, queue: BrokerQueue) -> int | None:
        """The offset of a queue's first message in the table, None if there is none."""
        groups = self.of_queue.get(queue)
        return groups[0].first if groups else None


def _paths(table: TopicTable) -> list[str]:
    return [task.file.file_path for task in table.iceberg.scan().plan_files()]


def _before(end: int | None, groups: list[RowGroup]) -> list[RowGroup]:
    if end is None:
        return groups
    return [replace(each, stop=min(each.stop, end)) for each in groups if each.first < end]


def _groups(files: DataFiles, path: str) -> dict[BrokerQueue, list[RowGroup]]:
    found: dict[BrokerQueue, list[RowGroup]] = {}
    with files.open(path) as stream:
        file = pq.ParquetFile(stream)
        columns = {
            file.metadata.schema.column(number).path: number
            for number in range(file.metadata.num_columns)
        }
        for number in range(file.num_row_groups):
            footer = file.metadata.row_group(number)
            bounds = {name: _bounds(footer.column(columns[name])) for name in READ}
            for queue, extent in _extents(file, number, bounds):
                (first, last), (begin, end), places = extent
                found.setdefault(queue, []).append(
                    RowGroup(path, number, first, last + 1, begin // 1000, end // 1000, *places)
                )
    return found


Bounds = tuple[int | str, int | str]


def _extents(
    file: pq.ParquetFile, number: int, bounds: Mapping[str, Bounds | None]
) -> Iterator[tuple[BrokerQueue, list[tuple[int, int]]]]:
    """Each queue of a row group with the bounds of EXTENT, from the footer if that has them."""
    brokers, queues = bounds["brokerName"], bounds["queueId"]
    known = [both for name in EXTENT if (both := bounds[name]) is not None]
    if (
        (brokers is not None and brokers[0] == brokers[1])
        and (queues is not None and queues[0] == queues[1])
        and len(known) == len(EXTENT)
    ):
        yield (str(brokers[0]), int(queues[0])), [(int(low), int(high)) for low, high in known]
        return
    rows = file.read_row_group(number, list(READ), use_threads=False)
    for name in EXTENT:
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, rows[name].cast(pa.int64()))
    wanted = [(name, how) for name in EXTENT for how in ("min", "max")]
    groups = rows.group_by(["brokerName", "queueId"], use_threads=False).aggregate(wanted)
    for row in groups.to_pylist():
        extent = [(row[f"{name}_min"], row[f"{name}_max"]) for name in EXTENT]
        yield (row["brokerName"], row["queueId"]), extent


def _bounds(column: pq.ColumnChunkMetaData) -> Bounds | None:
    """The least and the greatest value of a column chunk: numbers and times as integers."""
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    if column.physical_type == "BYTE_ARRAY":
        return str(statistics.min), str(statistics.max)
    return int(statistics.min_raw), int(statistics.max_raw)
