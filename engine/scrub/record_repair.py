"""Damaged records are written over with the same records of another log."""

import os

from congreve.engine.errors import StoreError, StoreFormatError
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.queue.queue_table import QueueTable
from congreve.engine.recovery import scan
from congreve.engine.recovery.repair import QueueRepair
from congreve.engine.recovery.scan import LogScanner
from congreve.engine.scrub.damage import Damage
from congreve.io_backends.backend import Segment
from congreve.io_backends.files.file_system import DISK, File, FileSystem
from congreve.records.record import decode_record

BLOCK = 4096
"""Bytes of the least write of any backend."""


class BusyError(StoreError):
    """The log's end cannot be repaired while messages arrive there."""


class RecordRepair:
    """Checks what another log has in the place of damage, and writes it there.

    Any thread may use it. (RocketMQ has no counterpart.)
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        repair: QueueRepair,
        files: FileSystem = DISK,
    ) -> None:
        self._log = log
        self._queues = queues
        self._repair = repair
        self._files = files

    def write(self, damage: Damage, data: bytes) -> int:
        """Write the whole records `data` at the beginning of the damage; returns where they end.

        They are on disk then, and the entries of their queues lead to them again. Raises
        StoreFormatError for bytes that are not whole records of this place, BusyError if it has to
        be tried again, OSError and BackendError.
        """
        segment = self._log.segment_at(damage.begin)
        if segment is None:
            return damage.end  # it has expired
        end = self._checked_end(damage, data, segment)
        with self._files.open(segment.path, os.O_RDWR) as file:
            if self._log.segment_at(damage.begin) is not segment:
                return damage.end
            start = damage.begin - segment.base_offset
            if -(-end // BLOCK) * BLOCK <= self._log.backend.durable_offset:
                self._put(file, segment, start, data)
            else:
                # The backend writes the log's last block again with the next message.
                with self._log.lock:
                    if self._log.backend.durable_offset < self._log.max_offset:
                        raise BusyError("the end of the log is being written")
                    self._put(file, segment, start, data)
        self._lead_to(damage.begin, data)
        return end

    def _put(self, file: File, segment: Segment, start: int, data: bytes) -> None:
        self._files.write(file, data, start)
        self._files.sync_data(file)
        if segment.correct(start, data):
            # The backend may have written its own bytes again meanwhile.
            self._files.write(file, data, start)
            self._files.sync_data(file)

    def _checked_end(self, damage: Damage, data: bytes, segment: Segment) -> int:
        scanner = LogScanner(grows=True)
        why = scanner.scan(data, damage.begin, damage.begin)
        end = scanner.position
        segment_end = segment.base_offset + segment.size
        if why == scan.BLANK:
            size = scanner.claimed_size(data[end - damage.begin :], segment_end - end)
            end = segment_end if end + size == segment_end else end
        if not damage.begin < end <= damage.end or end != damage.begin + len(data):
            raise StoreFormatError(
                f"the {len(data)} bytes for {damage.begin} are not whole records of that place"
            )
        return end

    def _lead_to(self, begin: int, data: bytes) -> None:
        """Repair the queue entries of the records, which recovery may have replaced by filler."""
        scanner, position = LogScanner(grows=True), begin
        while scanner.scan(data, begin, position, position + 1) == scan.LIMIT:
            record = decode_record(data[position - begin : scanner.position - begin])
            position = scanner.position
            queue = self._queues.find(record.topic, record.queue_id)
            offset = record.queue_offset
            if queue is None or not queue.min <= offset < queue.max:
                continue
            if not self._repair.is_valid(queue, offset):
                self._repair.repair(queue, offset, offset + 1)
            if position >= begin + len(data):
                return
