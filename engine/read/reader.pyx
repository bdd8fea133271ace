"""Reads a queue for Python callers."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.engine.read.gather cimport (
    GET_DAMAGED, GET_FOUND, GET_MESSAGE_WAS_REMOVING, GET_NO_MATCHED_LOGIC_QUEUE,
    GET_NO_MATCHED_MESSAGE, GET_NO_MESSAGE_IN_QUEUE, GET_OFFSET_FOUND_NULL,
    GET_OFFSET_OVERFLOW_BADLY, GET_OFFSET_OVERFLOW_ONE, GET_OFFSET_TOO_SMALL, Gather, Limits,
    TagFilter,
)
from congreve.records.filter.record_filter cimport RecordFilter

import enum
import os


class GetStatus(enum.IntEnum):
    """The result of reading a queue (RocketMQ: GetMessageStatus)."""

    FOUND = GET_FOUND
    NO_MATCHED_MESSAGE = GET_NO_MATCHED_MESSAGE
    MESSAGE_WAS_REMOVING = GET_MESSAGE_WAS_REMOVING
    OFFSET_FOUND_NULL = GET_OFFSET_FOUND_NULL
    OFFSET_OVERFLOW_BADLY = GET_OFFSET_OVERFLOW_BADLY
    OFFSET_OVERFLOW_ONE = GET_OFFSET_OVERFLOW_ONE
    OFFSET_TOO_SMALL = GET_OFFSET_TOO_SMALL
    NO_MATCHED_LOGIC_QUEUE = GET_NO_MATCHED_LOGIC_QUEUE
    NO_MESSAGE_IN_QUEUE = GET_NO_MESSAGE_IN_QUEUE
    DAMAGED = GET_DAMAGED


@cython.final
cdef class GetResult:
    """The messages that Reader.get() found (RocketMQ: GetMessageResult)."""

    cdef readonly object status
    """A GetStatus."""
    cdef readonly int64_t next_offset
    """Queue offset to read from next (nextBeginOffset)."""
    cdef readonly int64_t min_offset
    """First offset of the queue."""
    cdef readonly int64_t max_offset
    """Offset of the queue's next entry."""
    cdef readonly int64_t size
    """Bytes of all `buffers`."""
    cdef readonly int32_t count
    """Messages in `buffers`."""
    cdef readonly bint suggest_slave
    """Whether the last entry is farther behind the log's end than the memory window."""
    cdef readonly list buffers
    """Complete records, consecutive: the body of a pull's answer."""

    def __repr__(self):
        return (
            f"<GetResult {self.status.name} {self.count} messages, next {self.next_offset}, "
            f"queue [{self.min_offset}, {self.max_offset})>"
        )


@cython.final
cdef class Reader:
    """Reads queues of one log (RocketMQ: DefaultMessageStore.getMessage).

    `repair(queue, start, stop)` repairs damaged entries and returns how many it changed.
    """

    cdef readonly Limits limits
    """The limits of one answer."""
    cdef CommitLog log
    cdef object repair

    def __init__(self, config, CommitLog log, repair=None):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.log, self.repair = log, repair
        self.limits = Limits(
            memory_bytes=config.max_transfer_bytes_on_message_in_memory,
            memory_count=config.max_transfer_count_on_message_in_memory,
            disk_bytes=config.max_transfer_bytes_on_message_in_disk,
            disk_count=config.max_transfer_count_on_message_in_disk,
            memory_window=memory * config.access_message_in_memory_max_ratio // 100,
        )

    def get(self, ConsumeQueue queue, int64_t offset, int32_t max_count, tag_codes=None,
            RecordFilter records=None, bint repair=True):
        """A GetResult of at most `max_count` messages from `offset` on that pass both filters.

        It repairs a damaged entry, or passes one that cannot be; it ends before a second one.
        `tag_codes` are tag hashes (None: all pass), `records` filters by properties. Without
        `repair`, a damaged entry results in the status DAMAGED. Any thread may call it.
        """
        cdef Gather gather = Gather(self.log, self.limits)
        cdef GetResult result = GetResult.__new__(GetResult)
        tags = None if tag_codes is None else TagFilter(tag_codes)
        if self.repair is None:
            gather.passes_before = INT64_MAX
        gather.look(queue, offset, max_count, tags, records)
        while repair and gather.status == GET_DAMAGED:
            if gather.passes_before and gather.next_offset >= gather.passes_before:
                gather.status = GET_MESSAGE_WAS_REMOVING    # the next call begins with that one
                break
            if not self.repair(queue, gather.next_offset, gather.next_offset + 1):
                gather.passes_before = gather.next_offset + 1
            gather.look(queue, offset, max_count, tags, records)
        result.status = GetStatus(gather.status)
        result.next_offset = gather.next_offset
        result.min_offset = gather.min_offset
        result.max_offset = gather.max_offset
        result.size = gather.size
        result.count = gather.count
        result.suggest_slave = gather.suggest_slave
        if gather.in_views():
            result.buffers = gather.views()
        else:
            copied = PyBytes_FromStringAndSize(NULL, gather.size)
            gather.copy_to(PyBytes_AS_STRING(copied))
            result.buffers = [copied]
        return result
