"""The durable part of the store: RocketMQ's checkpoint in time, and Congreve's in offsets."""

import logging
import os
import struct
from collections.abc import Callable, Iterable

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.file_sizes import FILLER_SIZE
from congreve.engine.queue.consume_queue import ConsumeQueue, newest_of
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.queue.sums import sums_to
from congreve.engine.state.sealed import seal, unseal
from congreve.engine.state.state_file import StateFile
from congreve.io_backends.backend import Backend
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.parked import ParkingRule

_TIMES = struct.Struct(">qqq")
_FILE_SIZE = 4096
_SAFETY_MS = 3_000

#: Most parking rules in a checkpoint.
PARKING_RULES_MAX = 16

logger = logging.getLogger(__name__)


class Checkpoint:
    """Store times up to which everything is on disk, in ms (RocketMQ: StoreCheckpoint).

    It is for the reference, whose recovery starts with it; Congreve uses QueueCheckpoint.
    """

    def __init__(self, path: str, files: FileSystem = DISK) -> None:
        self.path = path
        self._files = files
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0

    def load(self) -> None:
        """Read the file; after a missing or short one all times are 0."""
        try:
            with self._files.open(self.path, os.O_RDONLY) as file:
                head = self._files.read(file, _TIMES.size, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}") from error
        if len(head) < _TIMES.size:
            logger.warning("%s is too short; ignored", self.path)
            return
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
        ) = _TIMES.unpack(head)

    def flush(self) -> None:
        """Write the file and sync it. The three numbers share a sector, so they are never torn."""
        times = _TIMES.pack(
            self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp
        )
        try:
            with self._files.open(self.path, os.O_RDWR | os.O_CREAT) as file:
                self._files.truncate(file, _FILE_SIZE)
                self._files.write(file, times, 0)
                self._files.sync_data(file)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    @property
    def min_timestamp(self) -> int:
        """Log and consume queues are on disk up to here (RocketMQ: getMinTimestamp)."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS, 0)


class QueuePromise(msgspec.Struct, array_like=True):
    """A queue's entries [min, max); the record of the last one ends at `max_physical`.

    `sums` are CRC-32 of its last files, that of the last one up to `max` (`engine/queue/sums.py`).
    """

    min: int
    max: int
    max_physical: int
    sums: list[int] = []


class QueueCheckpoint(msgspec.Struct, kw_only=True, rename="camel"):
    """Every queue is complete and on disk for the records before `log_end`, and has no others.

    It has the last record before `log_end`, to recognise a log that another broker has truncated
    and written again.
    """

    log_begin: int
    log_end: int
    last_record: int  # physical offset, -1 for an empty log
    last_store_timestamp: int
    queue_file_size: int
    parking: list[ParkingRule] = []  # rules of parked messages' entries, the newest first
    queues: dict[str, dict[int, QueuePromise]]  # by topic and queue id

    def end_of(self, topic: str, queue_id: int) -> int:
        """The end of a queue; 0 for one created later."""
        promise = self.queues.get(topic, {}).get(queue_id)
        return 0 if promise is None else promise.max


class QueueCheckpointFile:
    """`ROOT/congreve/queues.json`, sealed."""

    def __init__(self, own_dir: str, *, files: FileSystem = DISK, read_only: bool = False) -> None:
        path = os.path.join(own_dir, "queues.json")
        self._files = files
        self._file = StateFile(path, files=files, read_only=read_only)

    def written_ns(self) -> int:
        """When the checkpoint was saved, in ns since 1970; 0 without one."""
        try:
            return self._files.status(self._file.path).st_mtime_ns
        except OSError:
            return 0

    def load(self) -> QueueCheckpoint | None:
        """The saved checkpoint, or None without a valid one; then recovery scans the log."""
        try:
            return self._file.load(
                lambda text: msgspec.json.decode(unseal(text), type=QueueCheckpoint, strict=False)
            )
        except StoreError as error:
            logger.warning("%s; the log will be scanned instead", error)
            return None

    def replace(self, checkpoint: QueueCheckpoint) -> None:
        """Save the checkpoint; it is durable when this returns. Raises StoreError."""
        self._file.replace(seal(msgspec.json.encode(checkpoint)))


class Checkpointer:
    """Makes the store durable up to a record and writes both checkpoints.

    It may run while the one writer appends: a record's entry is put before the next record is
    appended, so all records before the newest entry of all queues are in their queues.
    """

    def __init__(
        self,
        config: StoreConfig,
        backend: Backend,
        queues: QueueTable,
        *,
        log_begin: Callable[[], int],
        store_time: Callable[[int, int], int],
        written: Callable[[], None] = lambda: None,
        files: FileSystem = DISK,
    ) -> None:
        """`store_time(physical_offset, size)` reads a record's store time in ms.

        `written()` is called after each checkpoint.
        """
        self._file = QueueCheckpointFile(config.own_dir, files=files)
        self._backend = backend
        self._queues = queues
        self.times = Checkpoint(config.checkpoint_path, files)
        self._log_begin = log_begin
        self._store_time = store_time
        self._written = written
        self._newest = (-1, 0)
        self._queue_file_size = queues.file_size
        self._config = config
        self.parking = [config.parking]
        self.log_end = 0  # of the last checkpoint written

    def load(self) -> QueueCheckpoint | None:
        """Read both checkpoints. Raises StoreError."""
        self.times.load()
        known = self._file.load()
        if known is not None:
            former = [rule for rule in known.parking if rule != self.parking[0]]
            self.parking += former[: PARKING_RULES_MAX - 1]
        return known

    def resume(self, last_record: int, size: int) -> None:
        """Start from recovery: all queues are complete up to the end of `last_record`.

        The log may end after that: a blank ends a segment.
        """
        self._newest = (last_record, size)

    def note_newest(self, removed: Iterable[ConsumeQueue] | None = None) -> tuple[int, int]:
        """(physical offset, size) of the last record that ever had an entry; (-1, 0) without one.

        Call it also before queues are `removed`, so that their records are not dispatched again.
        """
        newest = newest_of(self._queues if removed is None else removed)
        # The last record of a queue with entries may have expired, after newer queues were removed.
        last = newest.last_record() if newest is not None and newest.max_physical_offset else None
        if last is not None:
            self._newest = max(self._newest, last)
        return self._newest

    def _note_parking(self) -> None:
        """Record the current parking rule, whose settings may change while the store is open."""
        rule = self._config.parking
        if rule != self.parking[0]:
            self.parking[:] = [rule, *(old for old in self.parking if old != rule)]
            del self.parking[PARKING_RULES_MAX:]

    def write(self, timeout_s: float = 60.0) -> bool:
        """Write both checkpoints; False if the log did not become durable in `timeout_s`.

        Raises BackendError, StoreError.
        """
        self._note_parking()
        last_record, size = self.note_newest()
        log_end = last_record + size if size else self._log_begin()
        promised: dict[str, dict[int, QueuePromise]] = {}
        for queue in self._queues:
            promised.setdefault(queue.topic, {})[queue.queue_id] = _promise_of(queue, log_end)
        stored = self._store_time(last_record, size) if size else 0
        if not self._backend.wait_durable(log_end, timeout_s):
            return False
        self._queues.flush()
        self._file.replace(
            QueueCheckpoint(
                log_begin=self._log_begin(),
                log_end=log_end,
                last_record=last_record,
                last_store_timestamp=stored,
                queue_file_size=self._queue_file_size,
                parking=self.parking,
                queues=promised,
            )
        )
        self.times.physic_msg_timestamp = self.times.logics_msg_timestamp = stored
        self.times.flush()
        self.log_end = log_end
        self._written()
        return True


def _promise_of(queue: ConsumeQueue, log_end: int) -> QueuePromise:
    """The promise for records before `log_end`; the writer may have appended others."""
    end, max_physical = queue.max, queue.max_physical_offset
    if max_physical > log_end:
        end = queue.first_after(log_end)
        max_physical = 0
        if end > queue.min:
            physical_offset, size, _ = queue[end - 1]
            max_physical = 0 if size == FILLER_SIZE else physical_offset + size
    return QueuePromise(queue.min, end, max_physical, sums_to(queue, end))
