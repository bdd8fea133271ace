"""How far the store is on disk: the reference's checkpoint in time, and our own in offsets."""

import logging
import os
import struct

import msgspec

from congreve.engine.errors import StoreError
from congreve.engine.statefile import StateFile

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
