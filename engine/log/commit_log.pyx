"""The commit log: all messages of all topics, one after the other, in segments."""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from congreve.base.atomic cimport load_acquire, store_release
from congreve.base.clock cimport Clock
from congreve.base.cursor cimport load_i32, load_i64
from congreve.engine.log.append_lock cimport AppendLock
from congreve.engine.log.batch_entries cimport put_batch
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.io_backends.backend cimport Backend, Segment, signal
from congreve.records cimport layout
from congreve.records.record cimport (
    RECORD_OK, Message, Outgoing, RecordView, check, encode, encode_blank, encoded_size,
    is_legal, read_batch_element,
)

from congreve.engine.errors import MessageIllegalError, StoreError, StoreFormatError
from congreve.engine.log.append_result import AppendResult
from congreve.engine.log.named_record import NamedRecord
from congreve.engine.log.preparation import SegmentPreparation
from congreve.engine.log.segment_files import find_segments, remove_files, segment_path
from congreve.io_backends.errors import NoBufferError
from congreve.io_backends.files.file_system import DISK

# Smaller segments fill too quickly to start at half, and zeros need time, too.
cdef int64_t PREPARE_AT_ONCE = 64 << 20
cdef int64_t REPORT_STEP = 1 << 20  # bytes between two reports of its position to the backend


cdef inline bint has_entry(const Message *message) noexcept nogil:
    cdef int32_t kind = message.sys_flag & layout.SYS_TRANSACTION_MASK
    return kind == 0 or kind == layout.SYS_TRANSACTION_COMMIT


@cython.final
cdef class CommitLog:
    """All messages of all topics, one after the other, in segments (RocketMQ: CommitLog).

    Appends hold `lock`; others may read. Life: load(), recovery's scan, set_end(), the backend's
    start(), appends, the backend's stop(), close(). A log without a segment skips set_end().

    `segment_size` is in bytes. The constructor opens no file; it raises StoreFormatError for a size
    of 2 GiB or more.
    """

    def __cinit__(self, str folder, int64_t segment_size, Backend backend, Clock clock,
                  files=DISK):
        if not layout.RECORD_FIXED + layout.BLANK_MIN <= segment_size < 1 << 31:
            raise StoreFormatError(
                f"mappedFileSizeCommitLog={segment_size}: use "
                f"{layout.RECORD_FIXED + layout.BLANK_MIN} to 2147483647 bytes"
            )
        self.folder = folder
        self.segment_size = segment_size
        self.backend = backend
        self.clock = clock
        self.files = files
        self.lock = AppendLock()
        self.segments = ()
        self.prepare_at = INT64_MAX
        self.follower = self.last_record = -1
        self.shown = INT64_MAX
        self.preparation = SegmentPreparation(folder, segment_size, backend, files)

    # --- what readers see

    @property
    def shown_end(self):
        """Readers see the records that end at or before this physical offset."""
        return min(load_acquire(&self.shown), load_acquire(&self.max_offset))

    def show_below(self, int64_t physical_offset):
        """Hide the records that end behind this offset from readers; at first all are shown.

        (RocketMQ 5: DefaultMessageStore.getConfirmOffset, up to which it dispatches.)
        """
        store_release(&self.shown, physical_offset)

    def check_below(self, physical_offset):
        """Let pulls check the CRC of each body before this offset; at first they check none."""
        store_release(&self.unchecked_end, physical_offset)

    def is_hiding(self, ConsumeQueue queue not None):
        """Whether the queue has an entry that readers do not see yet."""
        return self.hides(queue)

    def end_of(self, ConsumeQueue queue not None):
        """The offset after the last entry of the queue that readers see."""
        cdef int64_t stop = load_acquire(&queue.max_offset)
        return queue.end_before(load_acquire(&self.shown), stop) if self.hides(queue) else stop

    # --- appending

    cdef AppendStatus append(self, const Message *message, ConsumeQueue queue, int64_t now_ms,
                             Appended *appended) noexcept nogil:
        cdef int64_t size = encoded_size(message)
        if not is_legal(message):
            return APPEND_ILLEGAL
        if size + layout.BLANK_MIN > self.segment_size:
            return APPEND_TOO_LARGE
        if queue.free_entries == 0 and has_entry(message):
            return APPEND_QUEUE_ROOM
        if not self.has_room(size):
            return APPEND_NEXT_SEGMENT
        appended.physical_offset = self.max_offset
        appended.queue_offset = queue.max_offset if has_entry(message) else 0
        appended.store_timestamp = now_ms
        appended.count = 1
        self.write(message, size, queue, appended.store_timestamp)
        appended.end = self.max_offset
        return APPEND_OK

    cdef AppendStatus append_batch(self, const Message *message, const uint8_t *batch,
                                   int32_t length, ConsumeQueue queue, int64_t now_ms,
                                   Appended *appended) noexcept nogil:
        cdef Message element = message[0]
        cdef int64_t total = 0
        cdef int64_t count = 0
        cdef int64_t last
        cdef int32_t position = 0
        cdef int32_t size
        if message.sys_flag & layout.SYS_TRANSACTION_MASK or length <= 0:
            return APPEND_ILLEGAL
        element.prepared_offset = 0
        while position < length:
            size = read_batch_element(batch + position, length - position, &element)
            if size == 0 or not is_legal(&element):
                return APPEND_ILLEGAL
            total += encoded_size(&element)
            position += size
            count += 1
        if total + layout.BLANK_MIN > self.segment_size:
            return APPEND_TOO_LARGE
        if not self.has_room(total):
            return APPEND_NEXT_SEGMENT
        if queue.free_entries == 0 or queue.reserved < queue.max_offset + count:
            queue.wanted = count
            return APPEND_QUEUE_ROOM
        appended.physical_offset = self.max_offset
        appended.queue_offset = queue.max_offset
        appended.store_timestamp = now_ms
        appended.count = <int32_t> count
        appended.end = self.max_offset + total
        last = self.encode_batch(&element, batch, length, appended)
        self.active.publish(appended.end - self.active.base_offset)
        store_release(&self.max_offset, appended.end)
        store_release(&self.last_record, last)
        self.last_store_timestamp = appended.store_timestamp
        if not put_batch(queue, &element, batch, length, appended.physical_offset):
            return APPEND_QUEUE_ROOM
        if self.max_offset >= self.next_report:
            self.report_position()
        return APPEND_OK

    # Encodes the first record last: after a kill before that, the log ends where the batch begins.
    # Returns the physical offset of the batch's last record.
    cdef int64_t encode_batch(self, Message *element, const uint8_t *batch, int32_t length,
                              const Appended *appended) noexcept nogil:
        cdef uint8_t *first = (
            self.active.data + (appended.physical_offset - self.active.base_offset)
        )
        cdef int32_t position = read_batch_element(batch, length, element)
        cdef int64_t size = encoded_size(element)
        cdef int64_t at = 0
        cdef int64_t number = 0
        while position < length:
            at += size
            number += 1
            position += read_batch_element(batch + position, length - position, element)
            size = encoded_size(element)
            encode(first + at, element, size, appended.queue_offset + number,
                   appended.physical_offset + at, appended.store_timestamp)
        read_batch_element(batch, length, element)
        encode(first, element, encoded_size(element), appended.queue_offset,
               appended.physical_offset, appended.store_timestamp)
        return appended.physical_offset + at

    # Ends the open segment with a blank if `size` bytes and a later blank do not fit.
    cdef bint has_room(self, int64_t size) noexcept nogil:
        cdef int64_t used, left
        if self.active is None:
            return False
        used = self.max_offset - self.active.base_offset
        left = self.active.size - used
        if size + layout.BLANK_MIN <= left:
            if used + size > self.active.ready and not self.active.extend(used + size):
                self.starved = True
            return not self.starved
        if not self.active.extend(self.active.size):
            self.starved = True
            return False
        if left >= layout.BLANK_MIN:
            encode_blank(self.active.data + used, left)
        self.active.publish(self.active.size)
        store_release(&self.max_offset, self.active.base_offset + self.active.size)
        return False

    # Bytes, then the log's end, then the queue's entry: no reader sees an entry without its record.
    cdef void write(self, const Message *message, int64_t size, ConsumeQueue queue,
                    int64_t store_timestamp) noexcept nogil:
        cdef int64_t start = self.max_offset
        cdef int64_t used = start - self.active.base_offset
        cdef bint entry = has_entry(message)
        encode(self.active.data + used, message, size, queue.max_offset if entry else 0, start,
               store_timestamp)
        self.active.publish(used + size)
        store_release(&self.max_offset, start + size)
        store_release(&self.last_record, start)
        self.last_store_timestamp = store_timestamp
        if entry:
            queue.put(start, <int32_t> size, message.tags_code)
        if self.max_offset >= self.next_report:
            self.report_position()

    cdef void report_position(self) noexcept nogil:
        self.next_report = self.max_offset + REPORT_STEP
        if self.follower >= 0:
            signal(self.follower)
            self.follower = -1
        self.backend.reached(self.max_offset)
        if self.max_offset >= self.prepare_at:
            prepare(self)

    cdef void signal_append(self, int event_fd) noexcept nogil:
        self.lock.take()
        self.follower = event_fd
        self.next_report = 0
        self.lock.drop()

    cpdef next_segment(self):
        """Open the next segment unless the open one has space. Raises BackendError."""
        cdef int64_t base = self.max_offset
        cdef Segment segment
        if self.starved:
            self.starved = False
            raise NoBufferError("no buffer is free, because the disk is behind: send more slowly")
        if self.active is not None and base < self.active.base_offset + self.active.size:
            return
        try:
            if self.made is None:
                self.made = self.preparation.take(segment_path(self.folder, base), base)
        except NoBufferError:
            self.backend.request_durable(base)  # buffers become free when these bytes are on disk
            raise
        segment = self.made
        self.backend.attach(segment)
        self.made = None
        self.open_segment(segment, not self.segments)
        self.segments = (*self.segments, segment)

    cdef object open_segment(self, Segment segment, bint first):
        self.active = segment
        self.backend.reached(self.max_offset)
        self.next_report = segment.base_offset
        self.prepare_at = segment.base_offset
        if self.segment_size >= PREPARE_AT_ONCE and not self.backend.prewrites:
            self.prepare_at += self.segment_size // 2
        elif first:
            # A few messages need one segment only. Smaller segments have no report in between.
            self.prepare_at += self.segment_size // 8 // REPORT_STEP * REPORT_STEP

    # --- reading

    cpdef Segment segment_at(self, int64_t physical_offset):
        """The segment that holds this offset; None outside the log."""
        cdef tuple segments = self.segments
        cdef int64_t first
        if not segments:
            return None
        first = (<Segment> segments[0]).base_offset
        if not first <= physical_offset < first + len(segments) * self.segment_size:
            return None
        return segments[(physical_offset - first) // self.segment_size]

    def read(self, int64_t physical_offset):
        """The record that starts here, as a view of the log; None if there is no valid one."""
        cdef Segment segment = self.segment_at(physical_offset)
        cdef RecordView view
        cdef int64_t at
        if segment is None:
            return None
        at = physical_offset - segment.base_offset
        if check(segment.data + at, segment.published() - at, physical_offset, True,
                 &view) != RECORD_OK:
            return None
        return memoryview(segment)[at:at + view.size]

    def newest_record(self):
        """The last record that this run has appended, as a NamedRecord; None before the first."""
        cdef int64_t last = load_acquire(&self.last_record)
        return None if last < 0 else self.named_record(last)

    def named_record(self, int64_t physical_offset):
        """What the header here says, whether it is a record or not; None outside the log."""
        cdef Segment segment = self.segment_at(physical_offset)
        cdef const uint8_t *at
        cdef int64_t born_host = layout.HOST_V4
        if segment is None or physical_offset + layout.RECORD_FIXED > (
            segment.base_offset + segment.size
        ):
            return None
        at = segment.data + (physical_offset - segment.base_offset)
        if load_i32(at + layout.AT_SYS_FLAG) & layout.SYS_BORN_HOST_V6:
            born_host = layout.HOST_V6
        return NamedRecord(
            physical_offset, load_i32(at + layout.AT_SIZE), load_i32(at + layout.AT_BODY_CRC),
            load_i64(at + layout.AT_BORN_HOST + born_host),
        )

    # --- opening, cutting, closing

    def load(self):
        """Open the files; all of them count as full until set_end().

        It skips files that are not segments, with a warning (D27). Raises StoreFormatError for
        wrong sizes or names, BackendError and StoreError.
        """
        try:
            self.files.make_folder(self.folder)
            bases = find_segments(self.files, self.folder, self.segment_size)
        except OSError as error:
            raise StoreError(f"cannot read the log's folder {self.folder}: {error}") from error
        self.segments = tuple(
            self.backend.open(
                segment_path(self.folder, base), base, self.segment_size, self.segment_size
            )
            for base in bases
        )
        if bases:
            self.min_offset = bases[0]
            self.max_offset = bases[len(bases) - 1] + self.segment_size

    def set_end(self, int64_t physical_offset, int64_t durable=0):
        """Truncate the log at the end that recovery found (D6).

        It removes later segments and zeroes the bytes after the end on disk. The bytes between
        `durable` and the end are not synced here: start the backend with `durable`. Raises
        StoreFormatError if the log ends before `physical_offset`.
        """
        cdef Segment segment
        cdef Segment active = None
        if not self.segments or not self.min_offset <= physical_offset <= self.max_offset:
            raise StoreFormatError(
                f"the log spans {self.min_offset} to {self.max_offset}: "
                f"it cannot end at {physical_offset}"
            )
        kept = []
        for segment in self.segments:
            if segment.base_offset <= physical_offset:
                kept.append(segment)
                active = segment
        removed = [segment.path for segment in reversed(self.segments[len(kept):])]
        remove_files(self.files, self.folder, removed)
        active.written = physical_offset - active.base_offset
        active.zero_tail()
        for segment in kept:
            if segment is active or segment.base_offset + segment.size > durable:
                self.backend.attach(segment)
        self.segments = tuple(kept)
        self.max_offset = physical_offset
        self.open_segment(active, True)

    def delete_oldest(self):
        """Remove the first segment; it is recycled when no view of it remains.

        Raises StoreError if it is the only one.
        """
        if len(self.segments) < 2:
            raise StoreError("the log's last segment is in use and cannot be deleted")
        oldest = self.segments[0]
        self.segments = self.segments[1:]
        self.min_offset = (<Segment> self.segments[0]).base_offset
        if not self.preparation.recycle(oldest):
            remove_files(self.files, self.folder, [oldest.path])

    def close(self):
        """Remove the prepared segment that was not used."""
        self.preparation.close()

    # --- for Python callers

    def append_record(self, record, ConsumeQueue queue, tags_code=None):
        """Append one message; `tags_code` replaces the hash of its TAGS in the queue's entry.

        The store time is now, the physical offset the log's end. Raises MessageIllegalError if the
        message does not fit into a record or segment (D1), RecordError if properties or hosts
        cannot be encoded, and BackendError; it appends nothing then.
        """
        cdef Outgoing outgoing = Outgoing(record)
        cdef Appended appended
        cdef AppendStatus status = APPEND_NEXT_SEGMENT
        if tags_code is not None:
            outgoing.message.tags_code = tags_code
        while True:
            with self.lock:
                status = self.append(&outgoing.message, queue, self.clock.now_ms(), &appended)
            if not self.retry(status, queue):
                return result(status, &appended, &outgoing.message, self.segment_size)

    def append_records(self, record, batch, ConsumeQueue queue):
        """Append the body of a batch request; `record` has everything but body, flag and tags.

        It adds the record's properties to those of each element. All elements go into one segment,
        or none is appended. Raises the same as append_record().
        """
        cdef Outgoing outgoing = Outgoing(record)
        cdef Appended appended
        cdef AppendStatus status = APPEND_NEXT_SEGMENT
        cdef Py_buffer body
        outgoing.message.properties_more = outgoing.message.properties
        outgoing.message.properties_more_length = outgoing.message.properties_length
        PyObject_GetBuffer(batch, &body, PyBUF_SIMPLE)
        try:
            if body.len > 0x7FFFFFFF:
                raise MessageIllegalError(f"a batch of {body.len} bytes exceeds 2147483647")
            while True:
                with self.lock:
                    status = self.append_batch(&outgoing.message, <const uint8_t *> body.buf,
                                               <int32_t> body.len, queue, self.clock.now_ms(),
                                               &appended)
                if not self.retry(status, queue):
                    return result(status, &appended, &outgoing.message, self.segment_size)
        finally:
            PyBuffer_Release(&body)

    cdef bint retry(self, AppendStatus status, ConsumeQueue queue) except -1:
        if status == APPEND_NEXT_SEGMENT or status == APPEND_QUEUE_ROOM:
            with self.lock:
                self.next_segment() if status == APPEND_NEXT_SEGMENT else queue.make_room()
            return True
        return False


cdef object result(AppendStatus status, const Appended *appended, const Message *message,
                   int64_t segment_size):
    if status == APPEND_TOO_LARGE:
        raise MessageIllegalError(
            f"a message or batch with {message.body_length} bytes of body does not fit into a "
            f"segment of {segment_size} bytes: raise mappedFileSizeCommitLog"
        )
    if status == APPEND_ILLEGAL:
        raise MessageIllegalError(
            f"topic of {message.topic_length} bytes (1 to {layout.TOPIC_MAX} are allowed), "
            f"properties of {message.properties_length + message.properties_more_length} bytes "
            f"(at most {layout.PROPERTIES_MAX}), or a malformed batch"
        )
    return AppendResult(
        appended.physical_offset, appended.end, appended.queue_offset,
        appended.store_timestamp, appended.count,
    )


cdef void prepare(CommitLog log) noexcept with gil:
    log.prepare_at = INT64_MAX
    base = log.active.base_offset + log.segment_size
    log.preparation.begin(segment_path(log.folder, base), base)
