from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.byte_buffer cimport ByteBuffer
from congreve.base.slices cimport Slice
from congreve.records.record cimport RecordView
from congreve.remoting.signatures.md5 cimport Md5
from congreve.remoting.wire.frame cimport Header

cdef enum:
    HIDDEN_MAX = 128            # names

# The properties that have fields of their own.
cdef enum:
    P_TAGS
    P_KEYS
    P_ID
    P_BORN_HOST
    P_GROUP
    P_TRACE
    P_LITE
    P_DELIVER_MS
    P_PRIORITY
    P_DLQ_TOPIC
    P_DLQ_ID
    P_TRANSACTION
    P_DELAY
    P_DELAY_MS
    P_DELAY_S
    P_OUT
    P_HANDLE
    KNOWN                       # their number

# The texts of a pop's answer that are in handles.
cdef struct PoppedAs:
    Slice pop_ms
    Slice invisible_ms
    Slice revive_queue_id
    Slice starts                # startOffsetInfo


cdef class ReceivedMessages:
    cdef Md5 md5
    cdef bytes broker_name
    cdef Slice broker           # the same
    cdef list names             # of `hidden`
    cdef Slice[HIDDEN_MAX] hidden
    cdef int32_t hidden_count

    # Appends the responses with the records of a pop's answer, and the last one with the time.
    # False without memory.
    cdef bint put_all(self, ByteBuffer *out, Slice records, const Header *header,
                      int64_t now_ms) noexcept nogil

    cdef bint put_one(self, ByteBuffer *out, const RecordView *view,
                      const PoppedAs *popped) noexcept nogil
    cdef uint8_t *put_user_properties(self, uint8_t *out, const RecordView *view,
                                      Slice *known) noexcept nogil
    cdef bint is_hidden(self, Slice name) noexcept nogil
    cdef uint8_t *put_system(self, uint8_t *out, const RecordView *view, const Slice *known,
                             const PoppedAs *popped) noexcept nogil
    cdef uint8_t *put_handle(self, uint8_t *out, const RecordView *view, Slice given,
                             const PoppedAs *popped) noexcept nogil
