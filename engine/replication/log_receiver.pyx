"""The log of a master, appended byte for byte."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from congreve.base.atomic cimport store_release
from congreve.base.cursor cimport load_i32
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.recovery.scan cimport (
    STOP_BAD,
    STOP_BLANK,
    STOP_LIMIT,
    LogScanner,
    Stop,
)
from congreve.io_backends.backend cimport Segment
from congreve.records cimport layout

import logging

from congreve.engine.errors import StoreFormatError
from congreve.engine.log.segment_files import remove_files

logger = logging.getLogger(__name__)


cdef int REFUSED_MAX = 10_000  # damaged places that are refused at once


@cython.final
cdef class LogReceiver:
    """Appends bytes of a master's log to the log of an open store (RocketMQ: appendToCommitLog).

    The bytes are written where they stay: writable() gives memory of the open segment, a socket
    fills it, take() checks each whole record, lets the log end after it and adds its queue entry. A
    record that has not arrived completely is not part of the log yet. No other code may append to
    this log. One thread uses the receiver.

    Bytes that are not a record are refused once, with all such bytes that have arrived, and the
    next connection sends them again. If they are not a record again, the master's own log is
    damaged there: they are taken, as its recovery passed them, as soon as the next record or the
    end of the segment shows where the damage ends.
    """

    def __init__(self, store not None):
        self.store, self.log, self.index = store, store.log, store.index
        self.arrived = set()
        self.checker = LogScanner(grows=True)
        self.dispatcher = LogScanner(
            store.queues, verify_crc=False, grows=True, parking=store.repair.parking,
            arrived=self.arrived,
        )
        self.received = self.dispatched = self.log.max_offset
        self.last_record = store.recovery.last_record if store.recovery is not None else -1
        self.refused, self.searched = set(), -1

    def writable(self, int64_t most):
        """Writable memory for the next bytes, `most` at most; empty while the disk is behind.

        Raises BackendError if the log needs a segment that cannot be created.
        """
        cdef uint8_t *at = NULL
        cdef int64_t size
        with nogil:
            size = self.writable_at(most, &at)
        return PyMemoryView_FromMemory(<char *> at, size, PyBUF_WRITE)

    cdef int64_t writable_at(self, int64_t most, uint8_t **at) except -1 nogil:
        cdef int64_t base, used
        if (
            self.log.active is None
            or self.received == self.log.active.base_offset + self.log.active.size
        ):
            self.next_segment()
        self.log.lock.take()
        base = self.log.active.base_offset
        most = min(most, base + self.log.active.size - self.received)
        used = self.received + most - base
        if used > self.log.active.ready and not self.log.active.extend(used):
            most = 0
        at[0] = self.log.active.data + (self.received - base)
        self.log.lock.drop()
        if not most:
            self.log.backend.request_durable(self.log.max_offset)
        return most

    cdef int next_segment(self) except -1 with gil:
        with self.log.lock:
            self.log.next_segment()
        return 0

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
            remove_files(log.files, log.folder, [segment.path for segment in log.segments])
            log.segments, log.active = (), None
            log.min_offset = log.max_offset = self.received = self.dispatched = offset
            log.backend.skip_to(offset)
            log.next_segment()  # if this fails, writable() tries it again

    def assume_zeros(self, int64_t count):
        """Count the next `count` bytes as arrived: zeros, which the master does not send.

        Raises BackendError as writable() does.
        """
        self.writable(count)[:] = bytes(count)
        self.received += count

    def take(self, int64_t count):
        """Take the first `count` bytes of writable(); returns the watched queues with new entries.

        Raises StoreFormatError for bytes that are not records of this place in the log, which then
        are not taken, and BackendError if a queue finds no space: the next call tries it again.
        """
        with nogil:
            self.take_bytes(count)
        return self.take_arrived()

    cdef int take_bytes(self, int64_t count) except -1 nogil:
        cdef int64_t end
        self.received += count
        end = self.whole_records_end()
        self.log.lock.take()
        try:
            if end > self.log.max_offset:
                self.publish(end)
                if self.checker.last_record >= 0:
                    self.last_record = self.checker.last_record
                    store_release(&self.log.last_record, self.last_record)
            self.dispatch()
        finally:
            self.log.lock.drop()
        if self.index is not None:
            self.index.wake()
        return 0

    cdef bint has_arrived(self) noexcept nogil:
        return self.dispatcher.has_arrived

    cdef set take_arrived(self):
        found = set(self.arrived)
        self.arrived.clear()
        self.dispatcher.has_arrived = False
        return found

    cdef int64_t whole_records_end(self) except -1 nogil:
        """The end of the last whole record or blank that has arrived."""
        cdef int64_t base = self.log.active.base_offset
        cdef Stop stop
        cdef int64_t position, start = self.log.max_offset
        self.checker.last_record = -1  # an earlier one may have been dropped
        while True:
            stop = self.checker.scan_bytes(
                self.log.active.data, self.received - base, base, start, self.received
            )
            position = self.checker.position
            if stop == STOP_LIMIT or self.received - position < layout.BLANK_MIN:
                return position
            if stop == STOP_BLANK or not self.was_refused(position):
                return self.end_of_partial(position, stop)
            start = self.end_of_damage(position)
            if start == position:
                return position
            self.tell_damage(position, start)

    cdef bint was_refused(self, int64_t position) except -1 with gil:
        return position in self.refused

    cdef int tell_damage(self, int64_t position, int64_t end) except -1 with gil:
        logger.error("the log of the master is damaged from %d to %d: taken as it is",
                     position, end)
        return 0

    cdef int64_t end_of_damage(self, int64_t position) except -1 with gil:
        """Where the log goes on behind bytes that were refused before, `position` as long as the
        bytes that have arrived do not show it.
        """
        cdef int64_t base = self.log.active.base_offset
        cdef int64_t segment_end = base + self.log.active.size
        cdef object arrived = PyMemoryView_FromMemory(
            <char *> self.log.active.data, self.received - base, PyBUF_READ
        )
        if self.checker.pass_body(arrived, base, position):
            end = self.checker.position
        else:
            end = self.checker.resync(arrived, base, max(position + 1, self.searched))
            if end is None:
                self.searched = self.checker.searched
                end = segment_end if self.received == segment_end else position
        return end

    cdef bint goes_on(self, int64_t position, int stop):
        """Whether the bytes at `position` may be a record that has not arrived completely."""
        cdef Segment segment = self.log.active
        cdef const uint8_t *at = segment.data + (position - segment.base_offset)
        return (
            stop == STOP_BAD and load_i32(at + layout.AT_MAGIC) == layout.RECORD_MAGIC
            and self.received < position + load_i32(at)
            and position + load_i32(at) <= segment.base_offset + segment.size - layout.BLANK_MIN
        )

    cdef int note_refused(self, int64_t position) except -1 with gil:
        """Note where damage begins in the bytes that have arrived, from `position` on."""
        cdef int64_t base = self.log.active.base_offset
        cdef Stop stop
        cdef int64_t end
        self.refused = {each for each in self.refused if each >= self.log.max_offset}
        self.refused.add(position)
        while len(self.refused) < REFUSED_MAX and (end := self.end_of_damage(position)) > position:
            stop = self.checker.scan_bytes(
                self.log.active.data, self.received - base, base, end, self.received
            )
            position = self.checker.position
            if (
                stop == STOP_LIMIT or stop == STOP_BLANK
                or self.received - position < layout.BLANK_MIN or self.goes_on(position, stop)
            ):
                break
            self.refused.add(position)
        self.searched = -1
        return 0

    cdef int64_t end_of_partial(self, int64_t position, int stop) except -1 with gil:
        """The end of the blank at `position`, or `position` if it has not arrived completely."""
        cdef Segment segment = self.log.active
        cdef int64_t base = segment.base_offset
        cdef int64_t segment_end = base + segment.size
        cdef int32_t size = load_i32(segment.data + (position - base))
        if stop == STOP_BLANK:
            if position + size != segment_end:
                raise StoreFormatError(
                    f"the master's segment ends at {position + size}, this broker's at "
                    f"{segment_end}: set mappedFileSizeCommitLog={position + size - base}, as the "
                    "master has it, and begin with an empty store"
                )
            return segment_end if self.received == segment_end else position
        if self.goes_on(position, stop):
            return position
        if stop == STOP_BAD and position + size > segment_end - layout.BLANK_MIN and (
            load_i32(segment.data + (position - base) + layout.AT_MAGIC) == layout.RECORD_MAGIC
        ):
            raise StoreFormatError(
                f"the master's record at {position} goes beyond this broker's segment, which ends "
                f"at {segment_end}: set mappedFileSizeCommitLog as the master has it, larger than "
                f"{segment.size}, and begin with an empty store"
            )
        self.note_refused(position)
        raise StoreFormatError(
            f"the {self.received - position} bytes that arrived for {position} are not a record"
        )

    cdef void publish(self, int64_t end) noexcept nogil:
        self.log.active.publish(end - self.log.active.base_offset)
        store_release(&self.log.max_offset, end)
        if end >= self.log.next_report:
            self.log.report_position()

    cdef int dispatch(self) except -1 nogil:
        cdef const uint8_t *data = NULL
        cdef int64_t base, segment_end, end = self.log.max_offset
        cdef Stop stop
        while self.dispatched < end:
            data, base = self.log.active.data, self.log.active.base_offset
            if self.dispatched < base:
                self.find_segment(&data, &base)
            segment_end = base + self.log.segment_size
            stop = self.dispatcher.scan_bytes(
                data, min(end, segment_end) - base, base, self.dispatched, min(end, segment_end)
            )
            self.dispatched = self.dispatcher.position
            if stop == STOP_BLANK:
                self.dispatched = segment_end
            elif stop != STOP_LIMIT:
                self.dispatched = self.pass_header(min(end, segment_end))
        if self.dispatcher.last_store_timestamp:
            self.log.last_store_timestamp = self.dispatcher.last_store_timestamp
        return 0

    cdef int find_segment(self, const uint8_t **data, int64_t *base) except -1 with gil:
        cdef Segment segment = self.log.segment_at(self.dispatched)
        data[0], base[0] = segment.data, segment.base_offset
        return 0

    cdef int64_t pass_header(self, int64_t limit) except -1 with gil:
        """Where the next record is that the master has behind damage, `limit` without one."""
        cdef Segment segment = self.log.segment_at(self.dispatched)
        cdef object data = PyMemoryView_FromMemory(
            <char *> segment.data, limit - segment.base_offset, PyBUF_READ
        )
        found = self.dispatcher.resync(data, segment.base_offset, self.dispatched + 1)
        return limit if found is None else found

    def remove_topic(self, str topic not None, int64_t log_end):
        """Remove the queues of a topic that the master has deleted before `log_end`.

        If the topic has later records, because it was made again, the queues without such are
        emptied. False, without a change: another thread works with the files now. Raises
        StoreError.
        """
        with self.log.lock:
            queues = self.store.queues.queues_of(topic)
            if any(queue.max_physical_offset > log_end for queue in queues):
                return self.store.try_drop_queues_before(topic, log_end)
            if not self.store.try_remove_topic(topic):
                return False
            self.dispatcher.forget_queues()
        return True

    def drop_partial(self):
        """Drop the bytes after the last whole record; the next connection sends them again."""
        cdef Segment segment = self.log.active
        cdef int64_t used
        if segment is not None and self.received > self.log.max_offset:
            used = self.log.max_offset - segment.base_offset
            memset(segment.data + used, 0, self.received - self.log.max_offset)
        self.received = self.log.max_offset
        self.searched = -1
