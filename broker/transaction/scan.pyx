"""Recovery of transactions: a scan of op records, hundreds of thousands after a kill under load."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.broker.transaction.window cimport HalfWindow
from congreve.engine.log.commit_log cimport CommitLog
from congreve.engine.queue.consume_queue cimport ConsumeQueue
from congreve.records.checksum cimport string_hash
from congreve.records.record cimport RECORD_OK, RecordView, check
from congreve.records.restore cimport decimal


cdef int64_t number_in(record, int64_t physical_offset) except? -1:
    """The number in the record's body; -1 when it is none."""
    cdef Py_buffer bytes_of
    cdef RecordView view
    PyObject_GetBuffer(record, &bytes_of, PyBUF_SIMPLE)
    try:
        if check(<const uint8_t *> bytes_of.buf, bytes_of.len, physical_offset, False,
                 &view) != RECORD_OK:
            return -1
        return decimal(view.body, view.body_length)
    finally:
        PyBuffer_Release(&bytes_of)


def settle_by_op_records(CommitLog log, ConsumeQueue queue, int64_t begin, HalfWindow window,
                         int64_t half_end):
    """Settle the half messages below `half_end` that op records from `begin` on name.

    Returns how many op records were valid. It skips records that are missing or are not op records.
    Raises MemoryError when the window cannot grow.
    """
    cdef int64_t settled_tag = string_hash(0, b"d", 1)
    cdef int64_t offset, half_offset
    cdef int64_t physical_offset = 0
    cdef int64_t tags_code = 0
    cdef int32_t size = 0
    cdef Py_ssize_t count = 0
    for offset in range(begin, queue.max_offset):
        if not queue.entry(offset, &physical_offset, &size, &tags_code):
            continue
        if tags_code != settled_tag:
            continue
        record = log.read(physical_offset)
        if record is None:
            continue
        half_offset = number_in(record, physical_offset)
        if 0 <= half_offset < half_end:
            if not window.settle(half_offset):
                raise MemoryError(f"no memory for the state of half message {half_offset}")
            count += 1
    return count
