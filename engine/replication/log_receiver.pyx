"""The log of a master, appended byte for byte."""

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from congreve.engine.atomic cimport store_release
from congreve.engine.log.commit_log cimport CommitLog
from congreve.io_backends.backend cimport Segment
from congreve.records cimport layout
from congreve.records.cursor cimport load_i32

from congreve.engine.errors import StoreFormatError
from congreve.engine.log.segment_files import remove_files
from congreve.engine.recovery import scan
from congreve.engine.recovery.scan import LogScanner


@cython.final
cdef class LogReceiver:
    """Appends bytes of a master's log to the log of an open store (RocketMQ: appendToCommitLog).

    The bytes are written where they stay: room() gives memory of the open segment, a socket fills
    it, take() checks each whole record, lets the log end after it and adds its queue entry. A
    record that has not arrived completely is not part of the log yet. Nothing else may append to
    this log. One thread uses the receiver.
    """

    def __init__(self, store not None):
        self.log = store.log
        self.arrived = set()
        self.checker = LogScanner(grows=True)
        self.dispatcher = LogScanner(
            store.queues, verify_crc=False, grows=True, parking=store.repair.parking,
            arrived=self.arrived,
        )
        self.received = self.dispatched = self.log.max_offset
        self.last_record = store.recovery.last_record if store.recovery is not None else -1

    def room(self, int64_t most):
        """Writable memory for the next bytes, `most` at most; empty while the disk is behind.

        Raises BackendError if the log needs a segment and gets none.
        """
        cdef int64_t used
        cdef Segment segment
        with self.log.lock:
            segment = self.log.active
            if segment is None or self.received == segment.base_offset + segment.size:
                self.log.next_segment()
                segment = self.log.active
            most = min(most, segment.base_offset + segment.size - self.received)
            used = self.received + most - segment.base_offset
            if used > segment.ready and not segment.extend(used):
                most = 0
        if not most:
            self.log.backend.request_durable(self.log.max_offset)
        return PyMemoryView_FromMemory(
            <char *> segment.data + (self.received - segment.base_offset), most, PyBUF_WRITE
        )

    def begin_at(self, int64_t offset):
        """Let the log, which has no record yet, begin at this physical offset.

        Raises StoreFormatError unless a segment can begin there, StoreError and BackendError.
        """
        cdef CommitLog log = self.log
        if log.max_offset != log.min_offset or offset % log.segment_size:
            raise StoreFormatError(
                f"the log from {log.min_offset} to {log.max_offset} cannot begin at {offset} with "
                f"mappedFileSizeCommitLog={log.segment_size}"
            )
        with log.lock:
            unused = [segment.path for segment in log.segments]
            log.segments, log.active = (), None
            log.min_offset = log.max_offset = offset
            log.backend.skip_to(offset)
            remove_files(log.files, log.folder, unused)
            log.next_segment()
        self.received = self.dispatched = offset

    def assume_zeros(self, int64_t count):
        """Count the next `count` bytes as arrived: zeros, which the master does not send.

        Raises BackendError as room() does.
        """
        self.room(count)[:] = bytes(count)
        self.received += count

    def take(self, int64_t count):
        """Take the first `count` bytes of room(); returns the watched queues with new entries.

        Raises StoreFormatError for bytes that are not records of this place in the log, which then
        are not taken, and BackendError if a queue finds no space: the next call tries it again.
        """
        cdef int64_t end
        self.received += count
        end = self.whole_records_end()
        with self.log.lock:
            if end > self.log.max_offset:
                self.publish(end)
            self.dispatch()
        found = set(self.arrived)
        self.arrived.clear()
        return found

    cdef int64_t whole_records_end(self) except -1:
        """The end of the last whole record or blank that has arrived."""
        cdef Segment segment = self.log.active
        cdef int64_t base = segment.base_offset
        cdef int64_t segment_end = base + segment.size
        cdef int64_t position
        cdef int32_t size = 0
        stop = self.checker.scan(
            memoryview(segment)[:self.received - base], base, self.log.max_offset
        )
        if self.checker.records:
            self.last_record = self.checker.last_record
        position = self.checker.position
        if stop == scan.LIMIT:
            return position
        if self.received - position < layout.BLANK_MIN:
            return position
        size = load_i32(segment.data + (position - base))
        if stop == scan.BLANK:
            if position + size != segment_end:
                raise StoreFormatError(
                    f"the master's segment ends at {position + size}, this broker's at "
                    f"{segment_end}: set the master's mappedFileSizeCommitLog"
                )
            return segment_end if self.received == segment_end else position
        if (
            stop == scan.BAD
            and load_i32(segment.data + (position - base) + layout.AT_MAGIC) == layout.RECORD_MAGIC
            and self.received < position + size <= segment_end - layout.BLANK_MIN
        ):
            return position
        raise StoreFormatError(
            f"the {self.received - position} bytes that arrived for {position} are not a record"
        )

    cdef void publish(self, int64_t end) noexcept nogil:
        self.log.active.publish(end - self.log.active.base_offset)
        store_release(&self.log.max_offset, end)
        if end >= self.log.next_report:
            self.log.report_position()

    cdef dispatch(self):
        cdef Segment segment
        cdef int64_t end = self.log.max_offset
        cdef int64_t base, segment_end
        while self.dispatched < end:
            segment = self.log.segment_at(self.dispatched)
            base = segment.base_offset
            segment_end = base + segment.size
            stop = self.dispatcher.scan(
                memoryview(segment)[:min(end, segment_end) - base], base, self.dispatched
            )
            self.dispatched = self.dispatcher.position
            if stop == scan.BLANK:
                self.dispatched = segment_end
            elif stop != scan.LIMIT:
                raise StoreFormatError(f"the record at {self.dispatched} has a damaged header")
        if self.dispatcher.last_store_timestamp:
            self.log.last_store_timestamp = self.dispatcher.last_store_timestamp

    def drop_partial(self):
        """Drop the bytes after the last whole record; the next connection sends them again."""
        cdef Segment segment = self.log.active
        cdef int64_t used
        if segment is not None and self.received > self.log.max_offset:
            used = self.log.max_offset - segment.base_offset
            memset(segment.data + used, 0, self.received - self.log.max_offset)
        self.received = self.log.max_offset
