"""Upkeep of a table: small files merged, snapshots expired, files without a snapshot removed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from congreve.base.steps import at_once
from congreve.lake.commit_files import SORTED_BY, CommitFiles
from congreve.lake.errors import CommitConflictError, TableError
from congreve.lake.table import TopicTable

MERGE_BYTES = 256 << 20
KEEP_SNAPSHOTS = 10
SNAPSHOT_AGE_S = 5 * 86_400.0
ORPHAN_AGE_S = 86_400.0
BATCH_ROWS = 32_768
ORDER = [(name, "ascending") for name in SORTED_BY]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UpkeepRules:
    """Rules for merges, and for how long unused snapshots and files are kept.

    `merge_bytes` are bytes of columns before compression: files with less than half of it are
    merged up to it, in memory. Ages in seconds.
    """

    merge_bytes: int = MERGE_BYTES
    keep_snapshots: int = KEEP_SNAPSHOTS
    snapshot_age_s: float = SNAPSHOT_AGE_S
    orphan_age_s: float = ORPHAN_AGE_S


@dataclass(frozen=True)
class UpkeepDone:
    """How many files were merged into how many, how many snapshots and files were removed."""

    merged: int = 0
    into: int = 0
    expired: int = 0
    removed: int = 0


class Upkeep:
    """Merges and removes files of one table. Exporters and readers may use the table meanwhile.

    `clock` returns seconds since 1970. A kill at any moment leaves the table's rows as they were.
    """

    def __init__(
        self, table: TopicTable, rules: UpkeepRules, clock: Callable[[], float] = time.time
    ) -> None:
        self._table = table
        self._rules = rules
        self._clock = clock
        self.table_name = table.name

    def run(self) -> UpkeepDone:
        """Merge, expire, remove. Raises what these methods raise."""
        return at_once(self.steps())

    def merge(self) -> tuple[int, int]:
        """Merge small files of a partition; returns how many became how many. Raises TableError."""
        return at_once(self._merges())

    def steps(self) -> Generator[None, None, UpkeepDone]:
        """run() in steps, one for each merged file; the exporter of this process may work between.

        Raises what run() raises.
        """
        try:
            merged, into = yield from self._merges()
            return UpkeepDone(merged, into, self.expire(), self.remove_orphans())
        except OSError as error:
            raise TableError(f"files of table {self.table_name}: {error}") from error

    def _merges(self) -> Generator[None, None, tuple[int, int]]:
        """One commit for each merged file. A merge whose commit conflicts with an exporter's is
        abandoned, and the next call repeats it."""
        merged = into = 0
        if not self._table.load():
            return merged, into
        for files in self._small_files():
            try:
                self._merge(files)
            except CommitConflictError as error:
                logger.info("%s; the merge is left for the next time", error)
                break
            merged, into = merged + len(files), into + 1
            yield
        return merged, into

    def expire(self) -> int:
        """Expire old snapshots; returns their number.

        The newest snapshots, the current one, and the newest with the table's progress stay.
        Raises TableError.
        """
        if not self._table.load():
            return 0
        oldest_ms = (self._clock() - self._rules.snapshot_age_s) * 1000
        chain = self._table.chain()
        kept = {snapshot.snapshot_id for snapshot in chain[: self._rules.keep_snapshots]}
        kept |= self._table.with_progress()
        old = [
            snapshot.snapshot_id
            for snapshot in self._table.iceberg.snapshots()
            if snapshot.timestamp_ms < oldest_ms and snapshot.snapshot_id not in kept
        ]
        self._table.expire(old)
        return len(old)

    def remove_orphans(self) -> int:
        """Remove files below the table's location that no snapshot refers to; returns their number.

        A file younger than the rules' age may belong to a commit that is being prepared, and stays.
        Raises TableError.
        """
        if not self._table.load():
            return 0
        table = self._table.iceberg
        if not isinstance(table.io, PyArrowFileIO):
            raise TableError(f"orphans of {self.table_name} need py-io-impl=PyArrowFileIO to list")
        location = urlparse(table.location())
        system = table.io.fs_by_scheme(location.scheme or "file", location.netloc)
        below = fs.FileSelector(location.netloc + location.path, recursive=True)
        # The listing comes first: what a commit adds later is not in it.
        listed = [info for info in system.get_file_info(below) if info.is_file]
        self._table.load()
        used = {_path_of(location) for location in _referred(self._table.iceberg)}
        oldest = self._clock() - self._rules.orphan_age_s
        orphans = [
            info.path
            for info in listed
            if info.path not in used and info.mtime.timestamp() <= oldest
        ]
        for path in orphans:
            with suppress(FileNotFoundError):  # another upkeep has removed it
                system.delete_file(path)
        return len(orphans)

    def _small_files(self) -> list[list[DataFile]]:
        """Files to merge, each list into one."""
        found: dict[tuple[int, Record], list[tuple[int, DataFile]]] = {}
        for task in self._table.iceberg.scan().plan_files():
            file = task.file
            if sum(file.column_sizes.values()) < self._rules.merge_bytes // 2:  # compressed
                size = _column_bytes(self._table.iceberg, file)
                if size < self._rules.merge_bytes // 2:
                    found.setdefault((file.spec_id, file.partition), []).append((size, file))
        lists: list[list[DataFile]] = []
        spec = self._table.iceberg.spec().spec_id
        for (spec_id, _), files in found.items():
            if spec_id == spec:  # the files of an older partition spec stay
                lists += _packed(sorted(files, key=lambda f: self._begin(f[1])), self._rules)
        return lists

    def _begin(self, file: DataFile) -> int:
        """The place in the log of a file's first message, so that neighbours are merged."""
        field = self._table.iceberg.schema().find_field("commitLogOffset").field_id
        return int.from_bytes(file.lower_bounds[field], "little")

    def _merge(self, files: list[DataFile]) -> None:
        table = self._table.iceberg
        parts = []
        for file in files:
            with table.io.new_input(file.file_path).open() as stream:
                parts.append(pq.read_table(stream))
        # Files may be older than columns of bodies, or than the present types of these.
        rows = pa.concat_tables(parts, promote_options="permissive").sort_by(ORDER)
        del parts
        with CommitFiles(table) as merged:
            for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
                merged.write(batch)
            self._table.replace(files, merged)


def _packed(files: list[tuple[int, DataFile]], rules: UpkeepRules) -> Iterator[list[DataFile]]:
    packed: list[DataFile] = []
    held = 0
    for size, file in files:
        if packed and held + size > rules.merge_bytes:
            if len(packed) > 1:
                yield packed
            packed, held = [], 0
        packed.append(file)
        held += size
    if len(packed) > 1:
        yield packed


def _column_bytes(table: Table, file: DataFile) -> int:
    """Bytes of a file's columns before compression."""
    with table.io.new_input(file.file_path).open() as stream:
        footer = pq.read_metadata(stream)
    return sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))


def _referred(table: Table) -> Iterator[str]:
    """Locations of all files that the table's state refers to."""
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    yield from (statistics.statistics_path for statistics in table.metadata.statistics)
    seen: set[str] = set()
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    yield entry.data_file.file_path


def _path_of(location: str) -> str:
    parts = urlparse(location)
    return parts.netloc + parts.path
