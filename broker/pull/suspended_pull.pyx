"""A waiting pull, and its answer once its queue has messages for it."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from congreve.base.clock cimport monotonic_ns
from congreve.base.slices cimport Slice
from congreve.engine.read.gather cimport (
    GET_COLD,
    GET_DAMAGED,
    GET_FOUND,
    GET_NO_MATCHED_MESSAGE,
    GET_NO_MESSAGE_IN_QUEUE,
    GET_OFFSET_OVERFLOW_ONE,
    FilePart,
)
from congreve.remoting.transport.zero_copy cimport send_file, send_head
from congreve.remoting.wire.answers cimport (
    PULL_REMARK_MAX,
    PULL_RESPONSE_MAX,
    encode_pull_response,
)
from congreve.remoting.wire.byte_text cimport put_i32
from congreve.remoting.wire.frame cimport LENGTH_FIELD


@cython.final
cdef class SuspendedPull:
    """A waiting pull (RocketMQ: PullRequest).

    `frame` is the complete request, `validated` the result of its checks. At `deadline`, in seconds
    of the loop's clock, it is answered with any result; `done` is set when it no longer waits.
    """

    def __init__(self, connection, bytes frame not None, ValidatedPull validated not None, *,
                 int64_t offset, int32_t max_count, int32_t serialize_type, int32_t opaque):
        self.begun_ns = monotonic_ns()
        self.connection = connection
        self.frame = frame
        self.validated = validated
        self.offset = offset
        self.max_count = max(max_count, 1)
        self.serialize_type = serialize_type
        self.opaque = opaque
        self.cold_offset = -1
        self.damaged_offset = -1

    @property
    def queue(self):
        """The queue that the pull waits for."""
        return self.validated.queue


@cython.final
cdef class PullWaker:
    """Answers waiting pulls whose queue has messages for them.

    `resume(held)` executes a pull with every check and answers it. It is called when the checks of
    the validated pull may have another result now, or when its offset is no longer valid.
    `wait_for_disk(held, physical_offset)` and `wait_for_repair(held, (queue, offset))` let a pull
    wait; they return False when it may not wait. `charge(held, messages, size)` is called for
    each answer with messages, `answered(held, code)` for each answer.
    (RocketMQ: PullRequestHoldService.notifyMessageArriving.)
    """

    def __init__(self, *, ValidatedPulls validated_pulls not None, store, resume, wait_for_disk,
                 wait_for_repair, charge, answered):
        self.validated_pulls = validated_pulls
        self.gather = Gather(store.log, store.limits, memory_only=True)
        self.resume = resume
        self.wait_for_disk = wait_for_disk
        self.wait_for_repair = wait_for_repair
        self.charge, self.answered = charge, answered

    def wake(self, SuspendedPull held not None):
        """Answer the pull; returns False, without an answer, if no message matches yet.

        True also when it now waits for the disk, or for the repair of its queue.
        """
        if self.validated_pulls.unchanged(held.validated):
            if self.scan(held):
                return True
            if self.gather.status == GET_COLD and self.suspend(held):
                return True
            if self.gather.status == GET_DAMAGED and self.repair(
                held, self.gather.next_offset
            ):
                return True
            if may_wait(self.gather.status, held.offset):
                return False
        self.resume(held)
        return True

    def answer(self, SuspendedPull held not None, answer):
        """Send the answer to a pull that waits no longer."""
        held.connection.send(answer)
        self.answered(held, answer.code)

    cdef bint suspend(self, SuspendedPull held) except -1:
        """Let the pull wait for the disk, once for each offset.

        If the kernel has dropped the bytes again by then, the answering code reads them from disk.
        """
        if held.cold_offset == self.gather.cold_offset:
            return False
        held.cold_offset = self.gather.cold_offset
        held.offset = self.gather.next_offset
        return self.wait_for_disk(held, held.cold_offset)

    def repair(self, SuspendedPull held not None, int64_t offset):
        """Let the pull wait for the repair of this queue entry; False when it did before."""
        if held.damaged_offset == offset:
            return False
        held.damaged_offset = offset
        return self.wait_for_repair(held, (held.validated.queue, offset))

    cdef bint scan(self, SuspendedPull held) except -1:
        """Answer the pull when a message matches; entries that do not match are not read again.

        This is one scan: when it ends before the queue does, the client pulls again for the rest.
        """
        cdef ValidatedPull validated = held.validated
        cdef Gather gather = self.gather
        while True:
            gather.look(validated.queue, held.offset, held.max_count, validated.tags,
                        validated.records)
            if gather.status != GET_NO_MATCHED_MESSAGE:
                break
            held.offset = gather.next_offset
            if held.offset < gather.max_offset:
                return False
        if gather.status != GET_FOUND or self.validated_pulls.config.slave_read_enable:
            return False
        answer_found(held.connection, gather, held.serialize_type, held.opaque)
        validated.counter.add(gather.count, gather.size)
        self.charge(held, gather.count, gather.size)
        self.answered(held, 0)
        return True

    def release_segments(self):
        """Drop the segments of the last pull."""
        self.gather.segments = None


cdef int32_t kept_size(const Frame *frame, const Header *header) noexcept nogil:
    cdef Slice key
    cdef int32_t i
    for i in range(header.count if frame.body.length else 0):
        key = header.fields[i].key
        if key.length == 9 and not memcmp(key.data, b"Signature", 9):
            return frame.size
    return frame.size - frame.body.length


cdef void put_kept(uint8_t *out, const Frame *frame, int32_t size) noexcept nogil:
    memcpy(out, frame.data, size)
    put_i32(out, size - LENGTH_FIELD)


cdef bint may_wait(int status, int64_t offset) noexcept nogil:
    return status == GET_OFFSET_OVERFLOW_ONE or (status == GET_NO_MESSAGE_IN_QUEUE and offset == 0)


cdef Py_ssize_t put_found_head(uint8_t *at, Gather gather, int32_t serialize_type,
                               int32_t opaque) noexcept nogil:
    cdef Slice remark
    remark.data = b"FOUND"
    remark.length = 5
    return encode_pull_response(
        at, serialize_type, opaque, 0, remark, 0,
        gather.next_offset, gather.min_offset, gather.max_offset, <int32_t> gather.size,
    )


cdef int answer_found(object connection, Gather gather, int32_t serialize_type,
                      int32_t opaque) except -1:
    cdef uint8_t[PULL_RESPONSE_MAX + PULL_REMARK_MAX] head
    cdef Py_ssize_t length = put_found_head(head, gather, serialize_type, opaque)
    cdef bytes answer
    if gather.in_one_piece():
        answer_from_file(connection, gather, head, length)
    elif gather.in_views():
        connection.writelines([head[:length], *gather.views()])
    else:
        answer = PyBytes_FromStringAndSize(NULL, length + gather.size)
        memcpy(PyBytes_AS_STRING(answer), head, length)
        gather.copy_to(PyBytes_AS_STRING(answer) + length)
        connection.write(answer)
    return 0


cdef int answer_from_file(object connection, Gather gather, const uint8_t *head,
                          Py_ssize_t length) except -1:
    """Let the kernel send the log's pages; write the rest when it does not take all."""
    cdef int socket = connection.idle_socket()
    cdef FilePart part
    cdef int64_t head_taken = 0
    cdef int64_t taken = 0
    if socket >= 0:
        part = gather.file_part()
        if part.descriptor >= 0:
            with nogil:
                head_taken = send_head(socket, head, length)
                if head_taken == length:
                    taken = send_file(socket, part.descriptor, part.offset, gather.size)
    if head_taken < 0 or taken < 0:
        connection.abort()
    elif taken < gather.size:
        connection.writelines([head[head_taken:length], gather.view(0, taken)])
    return 0
