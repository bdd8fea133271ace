"""Ordinary pulls for the fast path; broker/pull/processor.py has the rules."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.clock cimport monotonic_ns
from congreve.broker.pull.suspended_pull cimport (
    SuspendedPull,
    answer_found,
    kept_size,
    may_wait,
    put_kept,
)
from congreve.broker.pull.validated_pull cimport SUSPEND, ValidatedPull
from congreve.broker.quotas.charged cimport charged_to
from congreve.broker.quotas.quota_table cimport PULLS, has_quotas
from congreve.engine.read.gather cimport GET_COLD, GET_DAMAGED, GET_FOUND, Gather
from congreve.remoting.wire.fast_headers cimport read_pull_header
from congreve.remoting.wire.frame cimport FLAG_ONEWAY, Frame, Header


cdef bytes whole(const Frame *frame):
    return PyBytes_FromStringAndSize(<const char *> frame.data, frame.size)


cdef bytes kept(const Frame *frame, const Header *header):
    """The frame that a waiting pull keeps."""
    cdef int32_t size = kept_size(frame, header)
    cdef bytes copy = PyBytes_FromStringAndSize(NULL, size)
    put_kept(<uint8_t *> PyBytes_AS_STRING(copy), frame, size)
    return copy


@cython.final
cdef class PullPath:
    """Answers ordinary pulls for the fast path; PullMessageProcessor has the rules.

    (RocketMQ: PullMessageProcessor.)
    """

    def __init__(self, store, pulls):
        self.pulls = pulls
        self.validated_pulls = pulls.validated_pulls
        self.quotas = pulls.quota.table
        self.gather = Gather(store.log, store.limits, memory_only=True)

    def release_segments(self):
        """Drop the segments of the last pull, so that retention can free their disk space."""
        # A deleted segment keeps its disk space while something maps it.
        self.gather.segments = None
        self.pulls.waker.release_segments()

    cdef bint serve(self, object connection, const Frame *frame, const Header *header) except -1:
        cdef ValidatedPull validated
        self.answered = False
        read_pull_header(header, &self.pull)
        if not self.pull.complete or header.flag & FLAG_ONEWAY:
            return False
        if has_quotas(self.quotas) and self.is_limited(connection, frame, header):
            return True
        validated = self.validated_pulls.find(&self.pull)
        if validated is None:
            validated = self.pulls.validate(whole(frame), connection)
            if validated is None:
                return False
            self.validated_pulls.keep(validated)
        if self.validated_pulls.config.slave_read_enable:
            return False  # the Python handler chooses the broker to suggest
        self.gather.look(validated.queue, self.pull.queue_offset, max(self.pull.max_count, 1),
                         validated.tags, validated.records)
        if self.gather.status == GET_FOUND:
            answer_found(connection, self.gather, frame.serialize_type, header.opaque)
            self.answered = True
            validated.counter.add(self.gather.count, self.gather.size)
            if has_quotas(self.quotas):
                self.quotas.charge(&self.charged, PULLS, self.gather.count, self.gather.size,
                                   monotonic_ns())
        elif not self.suspend(connection, frame, header, validated):
            return False
        self.validated_pulls.commit(validated, &self.pull)
        return True

    cdef bint is_limited(self, object connection, const Frame *frame,
                         const Header *header) except -1:
        cdef bytes peer = connection.peer_bytes
        cdef int64_t wait_ns
        self.charged = charged_to(self.quotas, header, self.pull.topic, self.pull.consumer_group,
                                  peer, <int32_t> len(peer) - 4)
        wait_ns = self.quotas.take(&self.charged, PULLS, 0, 0, monotonic_ns())
        if wait_ns:
            self.pulls.quota.limit(connection, kept(frame, header), wait_ns)
        return wait_ns != 0

    cdef bint suspend(self, object connection, const Frame *frame, const Header *header,
                      ValidatedPull validated) except -1:
        """Suspend a pull until a message or the disk is there; False if it may not wait."""
        cdef bint cold = self.gather.status == GET_COLD
        cdef bint damaged = self.gather.status == GET_DAMAGED
        if not cold and not damaged and not (
            self.pull.sys_flag & SUSPEND and may_wait(self.gather.status, self.pull.queue_offset)
        ):
            return False
        held = SuspendedPull(
            connection, kept(frame, header), validated,
            offset=self.pull.queue_offset, max_count=self.pull.max_count,
            serialize_type=frame.serialize_type, opaque=header.opaque,
        )
        if cold:
            return self.pulls.disk_wait.suspend(held, self.gather.cold_offset)
        if damaged:
            return self.pulls.waker.repair(held, self.gather.next_offset)
        return self.pulls.suspend(held, self.pull.suspend_timeout_ms, self.gather.max_offset)
