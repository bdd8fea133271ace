# cython: language_level=3, boundscheck=False, wraparound=False
"""Appends as a lane does them: the lock for each chunk of messages, without the GIL."""

from libc.stdint cimport int64_t
from libc.time cimport time
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from congreve.engine.log.commit_log cimport (
    APPEND_OK,
    APPEND_QUEUE_ROOM,
    Appended,
    AppendStatus,
    CommitLog,
)
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.record cimport Outgoing


cdef int64_t now_ns() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return at.tv_sec * 1_000_000_000 + at.tv_nsec


def append(CommitLog log not None, ConsumeQueue queue not None, record, int64_t count,
           int64_t chunk, int64_t pause_ns):
    """Append the record `count` times in chunks; returns the times of the monotonic clock at the
    begin and at the end, and the time under the lock, all in nanoseconds.

    Between two chunks the thread computes for `pause_ns` a message, as a lane reads and writes.
    Raises RuntimeError where the log takes no more.
    """
    cdef Outgoing outgoing = Outgoing(record)
    cdef Appended appended
    cdef AppendStatus status = APPEND_OK
    cdef int64_t left = count, now_ms, taken, held = 0, until
    now_ms = <int64_t> time(NULL) * 1000
    with nogil:
        began = now_ns()
        while left > 0:
            until = now_ns() + pause_ns * chunk
            while now_ns() < until:
                pass
            log.lock.take()
            taken = now_ns()
            for _ in range(min(chunk, left)):
                status = log.append(&outgoing.message, queue, now_ms, &appended)
                if status != APPEND_OK:
                    break
                left -= 1
            held += now_ns() - taken
            log.lock.drop()
            if status == APPEND_QUEUE_ROOM:
                with gil:
                    with log.lock:
                        queue.make_room()
            elif status != APPEND_OK:
                with gil:
                    raise RuntimeError("the segment is full: use fewer messages")
        taken = now_ns()
    return began, taken, held
