"""Inspection and verification of a store's folder, which changes no file."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery import scan
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.state.checkpoint import Checkpoint, QueueCheckpoint, QueueCheckpointFile
from congreve.engine.state.durable_mark import DurableMarkFile
from congreve.engine.state.found_damage import PLACES_MAX, FoundDamage
from congreve.engine.state.left_files import LeftFilesFile
from congreve.engine.state.lock import is_held
from congreve.engine.state.sizes import SIZES_FILE, FileSizes, sizes_in
from congreve.engine.store_files.read_only import NumberedFile, ReadOnlyFiles
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.mapping import Mapping
from congreve.records.message.parked import ParkingRule


class QueueInfo(msgspec.Struct, frozen=True):
    """One queue: offsets [min, max)."""

    topic: str
    queue_id: int
    min: int
    max: int


class StoreInfo(msgspec.Struct, frozen=True):
    """The content of a store's folder; physical offsets [log_begin, log_end), times in ms."""

    root: str
    clean: bool  # whether the last stop was clean
    segment_size: int
    segments: int
    log_begin: int
    log_end: int
    first_store_timestamp: int
    last_store_timestamp: int
    checkpoint_timestamp: int
    index_files: int
    sizes: FileSizes
    queues: list[QueueInfo]
    problems: list[str]  # missing and truncated segments; verify() finds more


class VerifyReport(msgspec.Struct, frozen=True):
    """The result of a verification; `problems` are sentences, at most `limit` of them.

    `places` are the physical offsets of the first damaged records, in the order of the log,
    `changes` are sentences about files that differ from what the last stop left, if that was clean.
    """

    records: int
    bytes: int
    entries: int
    problems: list[str]
    more_problems: int
    places: list[int]
    changes: list[str]


class _Problems:
    """The first `limit` problems, and the number of the others."""

    def __init__(self, limit: int) -> None:
        self.first: list[str] = []
        self.more = 0
        self._limit = limit

    def add(self, problem: str) -> None:
        """Note a problem, which is a sentence."""
        if len(self.first) < self._limit:
            self.first.append(problem)
        else:
            self.more += 1


class StoreExaminer:
    """Inspects a store for `congreve store info|verify`.

    Raises StoreError without a store, and where a file cannot be read, for instance after an I/O
    error. (RocketMQ has no counterpart.)
    """

    def __init__(self, root: str, commit_log_dir: str = "", files: FileSystem = DISK) -> None:
        self._root = Path(root)
        self._files = files
        self._reader = ReadOnlyFiles(files)
        self._log_folder = Path(commit_log_dir) if commit_log_dir else self._root / "commitlog"
        if not self._reader.is_folder(self._log_folder):
            raise StoreError(f"{root} is not a store: the folder {self._log_folder} does not exist")
        self._segments = self._reader.numbered(self._log_folder)
        self._held = is_held(str(self._root / "lock"), self._files)
        if self._held and self._segments and self._segments[-1].size == 0:
            self._segments.pop()  # the broker is creating it
        self._size = _complete(self._segments, default=0)
        self._misfits = list(self._find_misfits())
        self._places: list[int] = []

    def _find_misfits(self) -> Iterator[str]:
        """Segments of a wrong size, and gaps between two."""
        end = self._segments[0][0] if self._segments else 0
        for base, path, size in self._segments:
            if base != end:
                yield f"bytes {end} to {base} of the log are missing: {path} is the next segment"
            if size != self._size:
                yield f"{path} has {size} bytes instead of {self._size}"
            end = base + self._size

    def info(self) -> StoreInfo:
        """Read the heads of the files and the records of the last segment only."""
        times = Checkpoint(str(self._root / "checkpoint"), self._files)
        times.load()
        first, last = LogScanner(verify_crc=False), LogScanner(verify_crc=False)
        if self._segments:
            base, path, _ = self._segments[0]
            first.scan(self._map(path), base, base, base + 1)
            base, path, _ = self._segments[self._last_used()]
            last.scan(self._map(path), base, base)
        return StoreInfo(
            root=str(self._root),
            clean=not self._reader.exists(self._root / "abort"),
            segment_size=self._size,
            segments=len(self._segments),
            log_begin=self._segments[0][0] if self._segments else 0,
            log_end=last.position,
            first_store_timestamp=first.last_store_timestamp,
            last_store_timestamp=last.last_store_timestamp,
            checkpoint_timestamp=times.min_timestamp,
            index_files=len(self._reader.entries(self._root / "index")),
            sizes=self._sizes(),
            queues=[
                QueueInfo(queue.topic, queue.queue_id, queue.min, queue.max)
                for queue in self._queues()
            ],
            problems=self._misfits,
        )

    def _sizes(self) -> FileSizes:
        """Those that the store keeps, or else RocketMQ's with the size of the segments."""
        kept = self._reader.read_all(self._root / "congreve" / SIZES_FILE)
        with suppress(ValueError, msgspec.MsgspecError):
            if kept is not None:
                return sizes_in(kept.decode())
        return FileSizes(mapped_file_size_commit_log=self._size) if self._size else FileSizes()

    def _last_used(self) -> int:
        """Index of the last segment that begins with a record; the reference prepares empty ones.

        It reads only the heads.
        """
        for number in reversed(range(len(self._segments))):
            base, path, _ = self._segments[number]
            scanner = LogScanner(verify_crc=False)
            scanner.scan(self._map(path), base, base, base + 1)
            if scanner.records:
                return number
        return 0

    def verify(
        self,
        parking: ParkingRule | None = None,
        *,
        limit: int = 100,
        progress: Callable[[int], None] | None = None,
    ) -> VerifyReport:
        """Check the CRC of every record, and compare every queue entry with its record.

        `parking` is the rule for parked messages from the broker's settings; by default, the rules
        saved in the store, or RocketMQ's defaults. It calls `progress` with the bytes of each
        segment after reading it. If a broker is running, it ignores messages after the call. The
        last entries of a queue may be missing in the copy of a running store, and after a kill.
        """
        own_dir, self._places = str(self._root / "congreve"), []
        mark = DurableMarkFile(own_dir, self._files).load()
        log_end = self.info().log_end if self._held else None
        known = QueueCheckpointFile(own_dir, read_only=True, files=self._files).load()
        queues = self._queues()
        problems = _Problems(limit)
        for misfit in self._misfits:
            problems.add(misfit)
        if known is not None:
            self._compare_with_checkpoint(queues, known, problems.add)
        scanner = LogScanner(
            queues,
            compare=True,
            lags=not self._held and self._reader.exists(self._root / "abort"),
            parking=self._parking_rules(parking, known),
            report=problems.add,
        )
        durable = 0 if mark is None else mark.end
        end = self._verify_segments(scanner, problems.add, log_end, durable, progress)
        for topic, queue_id in scanner.missing:
            # Without Congreve's checkpoint a deleted topic looks like a lost one.
            if known is None or known.end_of(topic, queue_id) > 0:
                problems.add(f"queue {queue_id} of {topic} is missing")
        entries = sum(_end(queue, log_end) - queue.min for queue in queues)
        if entries != scanner.dispatched:
            problems.add(
                f"the queues have {entries} entries, but the log has {scanner.dispatched} messages"
            )
        return VerifyReport(
            records=scanner.records,
            bytes=end - self._segments[0][0] if self._segments else 0,
            entries=entries,
            problems=problems.first,
            more_problems=problems.more,
            places=self._places,
            changes=self._changes(end),
        )

    def _changes(self, log_end: int) -> list[str]:
        if self._reader.exists(self._root / "abort"):
            return []
        config = StoreConfig(root_dir=str(self._root))
        return LeftFilesFile(config, self._files, read_only=True).changes(log_end)

    def tell_broker(self, report: VerifyReport) -> bool:
        """Let a broker that uses the store look at the damage; whether there is one, and damage.

        It repairs what another broker has. Raises StoreError.
        """
        if not self._held or not report.places:
            return False
        FoundDamage(str(self._root / "congreve"), self._files).tell(report.places)
        return True

    def _parking_rules(
        self, current: ParkingRule | None, known: QueueCheckpoint | None
    ) -> list[ParkingRule]:
        rules = [] if current is None else [current]
        if known is not None:
            rules += known.parking
        return rules or [StoreConfig(root_dir=str(self._root)).parking]

    def _verify_segments(
        self,
        scanner: LogScanner,
        report: Callable[[str], None],
        log_end: int | None,
        durable: int,
        progress: Callable[[int], None] | None,
    ) -> int:
        """Verify all segments; returns the end of the records.

        The log was on disk up to `durable`: zeros before it are damage.
        """
        last_used = self._last_used()
        end = 0
        for number, (base, path, _) in enumerate(self._segments):
            zeros_from = durable if number >= last_used else base + self._size
            self._verify_segment(scanner, base, path, report, log_end, zeros_from)
            if number <= last_used:
                end = scanner.position
            if progress is not None:
                progress(self._size)
        return end

    def _compare_with_checkpoint(
        self, queues: QueueTable, known: QueueCheckpoint, report: Callable[[str], None]
    ) -> None:
        expired = bool(self._segments) and self._segments[0][0] > known.log_begin
        for topic, spans in known.queues.items():
            for queue_id, span in spans.items():
                queue = queues.find(topic, queue_id)
                if queue is None:
                    continue
                if queue.max < span.max or (queue.min > span.min and not expired):
                    report(
                        f"queue {queue_id} of {topic} has entries {queue.min} to {queue.max}, "
                        f"the checkpoint has {span.min} to {span.max}"
                    )

    def _verify_segment(
        self,
        scanner: LogScanner,
        base: int,
        path: Path,
        report: Callable[[str], None],
        log_end: int | None,
        zeros_from: int,
    ) -> None:
        if log_end is not None and base >= log_end:
            return
        data = self._map(path)
        why = scanner.scan(data, base, base, log_end)
        while why == scan.BAD or (why == scan.END and scanner.position < zeros_from):
            bad = scanner.position
            if len(self._places) < PLACES_MAX:
                self._places.append(bad)
            found = scanner.resync(data, base, bad + 1)
            end = base + self._size if found is None else found
            if found is None and why == scan.END:
                end = min(end, zeros_from)
            is_rest = end == base + self._size
            where = "the rest of the segment" if is_rest else f"{end - bad} bytes"
            report(f"{where} at {bad} in {path} hold no valid record")
            if found is None:
                return
            why = scanner.scan(data, base, found, log_end)

    def _queues(self) -> QueueTable:
        folder = self._root / "consumequeue"
        found = [
            file
            for topic in self._reader.folders(folder)
            for queue in self._reader.folders(topic)
            for file in self._reader.numbered(queue)
        ]
        queues = QueueTable(folder, _complete(found, default=6_000_000), files=self._files)
        queues.load()
        begin = self._segments[0][0] if self._segments else 0
        for queue in queues:
            queue.correct_min_offset(begin)
        return queues

    def _map(self, path: Path) -> Mapping | bytes:
        size = min(self._reader.size(path), self._size)
        return self._reader.map(path, size) if size else b""


def _complete(files: Iterable[NumberedFile], default: int) -> int:
    """Bytes of a complete file: the most frequent size, the larger of two, without empty files.

    A crash may leave a file empty, and a broker creates it so.
    """
    sizes = Counter(file.size for file in files if file.size)
    return max(sizes, key=lambda size: (sizes[size], size), default=default)


def _end(queue: ConsumeQueue, log_end: int | None) -> int:
    """Offset after the last entry whose record ends at or before `log_end`."""
    return queue.max if log_end is None else min(queue.first_after(log_end), queue.max)
