"""Pulls in a lane: those that find messages in memory, without the GIL.

All other pulls go to the event loop, which serves them as those of its own connections.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.pull.held_pull cimport put_found_head
from congreve.broker.pull.validated_pull cimport COMMIT_OFFSET, ValidatedPull, ValidatedPulls
from congreve.engine.queue.queue_files cimport Mapping
from congreve.engine.format cimport CQ_ENTRY
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.queue.gather cimport GET_FOUND, FilePart, Gather
from congreve.remoting.lanes.byte_buffer cimport make_room, release
from congreve.remoting.transport.zero_copy cimport send_file, send_head
from congreve.remoting.wire.answers cimport PULL_REMARK_MAX, PULL_RESPONSE_MAX
from congreve.remoting.wire.fast_headers cimport read_pull_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY

from congreve.errors import CongreveError

cdef enum:
    ROOM = PULL_RESPONSE_MAX + PULL_REMARK_MAX
    FLUSH_BYTES = 256 * 1024    # of answers, after which they are sent
    FROM_FILE_MIN = 16 * 1024   # bytes of an answer that are cheaper to send from the log's file
    KEPT_BYTES = 1024 * 1024    # of the answers' buffer between two chunks


@cython.final
cdef class LanePulls:
    """Answers ordinary pulls in a lane's thread; PullMessageProcessor has the rules."""

    def __init__(self, store, ValidatedPulls validated_pulls not None):
        self.table = LanePullTable(validated_pulls)
        self.gather = Gather(store.log, store.limits, memory_only=True)

    def __dealloc__(self):
        release(&self.answers)

    cdef bint serve(self, Lane lane, LaneConnection *connection, const Frame *frame,
                    const Header *header) noexcept nogil:
        cdef LanePull *known
        cdef FilePart part
        part.descriptor = -1
        read_pull_header(header, &self.pull)
        if not self.pull.complete or header.flag & FLAG_ONEWAY:
            return False
        known = self.table.find(&self.pull)
        if known == NULL or not self.look(known) or self.gather.status != GET_FOUND:
            return False
        if self.gather.span_count == 1 and self.gather.size >= FROM_FILE_MIN:
            self.flush(lane, connection)
            part = self.gather.file_part()
        if part.descriptor >= 0 and connection.fd >= 0 and not connection.unsent:
            self.note(known)
            self.send_from_file(lane, connection, frame.serialize_type, header.opaque, part)
            return True
        if not make_room(&self.answers, self.answers.used + ROOM + self.gather.size):
            return False
        self.note(known)
        self.put_found(frame.serialize_type, header.opaque)
        if self.answers.used >= FLUSH_BYTES:
            self.flush(lane, connection)
        return True

    cdef void note(self, LanePull *known) noexcept nogil:
        """Count the answer and take the offset of the pull at hand, before its client goes on."""
        self.answered += 1
        (<ValidatedPull> known.validated).counter.add(self.gather.count, self.gather.size)
        if self.pull.sys_flag & COMMIT_OFFSET:
            self.table.commit(known, self.pull.commit_offset)

    cdef bint look(self, LanePull *known) noexcept nogil:
        """Look for the messages of the pull at hand; False where that fails."""
        return self.gather.look_mapped(
            (<ValidatedPull> known.validated).queue, known.file, known.base,
            self.pull.queue_offset, max(self.pull.max_count, 1),
            (<ValidatedPull> known.validated).tags,
        ) or self.look_with_gil(known)

    cdef bint look_with_gil(self, LanePull *known) noexcept with gil:
        cdef ValidatedPull validated = <ValidatedPull> known.validated
        try:
            self.gather.look(validated.queue, self.pull.queue_offset, max(self.pull.max_count, 1),
                             validated.tags, None)
            self.map_file(known)
        except (CongreveError, MemoryError):
            return False
        return True

    cdef int map_file(self, LanePull *known) except -1:
        """Keep the queue's file that the next look needs."""
        cdef ConsumeQueue queue = (<ValidatedPull> known.validated).queue
        cdef int64_t position = self.gather.next_offset * CQ_ENTRY
        cdef int64_t base = position - position % queue.file_size
        cdef Mapping mapping = queue.mapping_at(base)
        known.file = NULL
        Py_CLEAR(known.mapping)
        if mapping is not None:
            Py_INCREF(mapping)
            known.mapping, known.file, known.base = <PyObject *> mapping, mapping.data, base
        return 0

    cdef void put_found(self, int32_t serialize_type, int32_t opaque) noexcept nogil:
        """Write the answer to the others; there is room."""
        cdef uint8_t *at = self.answers.data + self.answers.used
        cdef Py_ssize_t length = put_found_head(at, self.gather, serialize_type, opaque)
        self.gather.copy_to(<char *> at + length)
        self.answers.used += length + self.gather.size

    cdef void send_from_file(self, Lane lane, LaneConnection *connection, int32_t serialize_type,
                             int32_t opaque, FilePart part) noexcept nogil:
        """Let the kernel send the log's pages, and keep what it does not take."""
        cdef uint8_t[ROOM] head
        cdef Py_ssize_t length = put_found_head(head, self.gather, serialize_type, opaque)
        cdef int64_t head_taken = send_head(connection.fd, head, length)
        cdef int64_t taken = 0
        connection.active_ms = lane.now_ms
        if head_taken == length:
            taken = send_file(connection.fd, part.descriptor, part.offset, self.gather.size)
        if head_taken < 0 or taken < 0:
            lane.close(connection, errno)
            return
        if head_taken < length:
            lane.put(connection, head + head_taken, length - head_taken)
        if taken < self.gather.size and connection.fd >= 0:
            lane.put(connection, self.gather.spans[0].data + taken, self.gather.size - taken)

    cdef void flush(self, Lane lane, LaneConnection *connection) noexcept nogil:
        if not self.answers.used:
            return
        lane.put(connection, self.answers.data, self.answers.used)
        self.answers.used = 0
        if self.answers.size > KEPT_BYTES:
            release(&self.answers)

    cdef void turn_ended(self) noexcept nogil:
        if self.gather.segments is not None and self.gather.is_behind():
            self.release_segments()

    cdef void release_segments(self) noexcept with gil:
        # A deleted segment keeps its disk space while something maps it.
        self.gather.segments = None
