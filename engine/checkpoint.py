"""How far the store is on disk: the reference's checkpoint in time, and our own in offsets."""

import logging
import os
import struct
from collections.abc import Callable

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.queuetable import QueueTable
from congreve.engine.statefile import StateFile
from congreve.io_backends.backend import Backend

_TIMES = struct.Struct(">qqq")
_FILE_SIZE = 4096
_SAFETY_MS = 3_000

log = logging.getLogger(__name__)


class Checkpoint:
    """Store times up to which everything is on disk, in ms (RocketMQ: StoreCheckpoint).

    We keep it for the reference, which starts its recovery by it; ours is QueueCheckpoint.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0

    def load(self) -> None:
        """A missing or short file says that nothing is known."""
        try:
            with open(self.path, "rb") as file:
                head = file.read(_TIMES.size)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}") from error
        if len(head) < _TIMES.size:
            log.warning("%s is too short; ignored", self.path)
            return
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
        ) = _TIMES.unpack(head)

    def flush(self) -> None:
        """Durable when it returns. The three numbers share a sector, so that no half is seen."""
        times = _TIMES.pack(
            self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp
        )
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.ftruncate(descriptor, _FILE_SIZE)
                os.pwrite(descriptor, times, 0)
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    @property
    def min_timestamp(self) -> int:
        """Log and consume queues are on disk up to here (RocketMQ: getMinTimestamp)."""
        return max(min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SAFETY_MS, 0)

    @property
    def min_timestamp_index(self) -> int:
        """The same with the index (RocketMQ: getMinTimestampIndex)."""
        return min(self.min_timestamp, self.index_msg_timestamp)


class QueueCheckpoint(msgspec.Struct, kw_only=True, rename="camel"):
    """Every queue is complete and on disk for the records before `log_end`.

    The last record before `log_end` is named, so that a log that was cut and written anew by
    another broker is recognised.
    """

    log_begin: int
    log_end: int
    last_record: int  # physical offset, -1 for an empty log
    last_store_timestamp: int
    queues: dict[str, dict[int, tuple[int, int]]]  # topic: {queue id: [min, max]}


class QueueCheckpointFile:
    """`ROOT/congreve/queues.json`."""

    def __init__(self, own_dir: str) -> None:
        self._file = StateFile(os.path.join(own_dir, "queues.json"))

    def load(self) -> QueueCheckpoint | None:
        """None where there is none or none that can be read: then the log is scanned."""
        try:
            return self._file.load(
                lambda text: msgspec.json.decode(text, type=QueueCheckpoint, strict=False)
            )
        except StoreError as error:
            log.warning("%s; the log will be scanned instead", error)
            return None

    def replace(self, checkpoint: QueueCheckpoint) -> None:
        """Durable when it returns; StoreError."""
        self._file.replace(msgspec.json.encode(checkpoint).decode())


class Checkpointer:
    """Makes the store durable up to a record and writes both checkpoints.

    Safe beside the one writer: a record's entry is put before the next record is appended, so the
    newest entry of all queues says that everything before it is in its queue.
    """

    def __init__(
        self,
        config: StoreConfig,
        backend: Backend,
        queues: QueueTable,
        *,
        log_begin: Callable[[], int],
        store_time: Callable[[int, int], int],
    ) -> None:
        """`store_time(physical_offset, size)` reads a record's store time in ms."""
        self._file = QueueCheckpointFile(config.own_dir)
        self._backend = backend
        self._queues = queues
        self.times = Checkpoint(config.checkpoint_path)
        self._log_begin = log_begin
        self._store_time = store_time
        self._newest = (-1, 0)
        self.log_end = 0  # of the last checkpoint written

    def load(self) -> QueueCheckpoint | None:
        """Read both; StoreError."""
        self.times.load()
        return self._file.load()

    def resume(self, last_record: int, end: int) -> None:
        """Recovery's word: all queues are complete up to `end`, where `last_record` ends."""
        self._newest = (last_record, end - last_record) if last_record >= 0 else (-1, 0)

    def note_newest(self) -> tuple[int, int]:
        """(physical offset, size) of the last record that ever had an entry; (-1, 0) without one.

        Called before queues are removed, too: their records must not come back.
        """
        newest = max(self._queues, key=lambda queue: queue.max_physical_offset, default=None)
        if newest is not None and newest.max_physical_offset > 0:
            physical_offset, size, _ = newest[newest.max - 1]
            self._newest = max(self._newest, (physical_offset, size))
        return self._newest

    def write(self, timeout_s: float = 60.0) -> bool:
        """False where the log did not become durable; BackendError, StoreError."""
        promised: dict[str, dict[int, tuple[int, int]]] = {}
        for queue in self._queues:
            promised.setdefault(queue.topic, {})[queue.queue_id] = (queue.min, queue.max)
        last_record, size = self.note_newest()
        log_end = last_record + size if size else self._log_begin()
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
                queues=promised,
            )
        )
        self.times.physic_msg_timestamp = self.times.logics_msg_timestamp = stored
        self.times.flush()
        self.log_end = log_end
        return True
