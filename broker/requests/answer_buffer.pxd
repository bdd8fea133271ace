from cpython.mem cimport PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from congreve.base.cursor cimport load_i32
from congreve.base.slices cimport Slice
from congreve.broker.quotas.send_quota cimport busy_remark
from congreve.engine.log.commit_log cimport Appended
from congreve.records.host cimport MESSAGE_ID_MAX, Host, put_id_host, put_id_offset
from congreve.records.layout cimport BATCH_ELEMENT_FIXED
from congreve.remoting.wire.answers cimport (
    SEND_RESPONSE_MAX,
    encode_send_response,
    encode_response,
)

# The encoded answers of one chunk of requests, and what all answers of a broker have in common.
# These functions are inline: each message passes them.

cdef enum:
    FIRST_CAPACITY = 262144
    ID_SIZE_MAX = MESSAGE_ID_MAX + 1    # and a comma
    SYSTEM_BUSY = 2

cdef struct AnswerBuffer:
    uint8_t *data
    Py_ssize_t capacity
    Py_ssize_t used
    uint8_t id_host[MESSAGE_ID_MAX]
    Py_ssize_t id_host_length       # message ids begin with the broker's address, in hex
    Slice constants[2]              # MSG_REGION and TRACE_ON, by serialize type


cdef inline int allocate_answers(AnswerBuffer *answers) except -1:
    answers.data = <uint8_t *> PyMem_Malloc(FIRST_CAPACITY)
    if answers.data == NULL:
        raise MemoryError()
    answers.capacity = FIRST_CAPACITY
    return 0


# Make room for `wanted` more bytes.
cdef inline int grow_answers(AnswerBuffer *answers, Py_ssize_t wanted) except -1:
    cdef Py_ssize_t capacity = max(answers.capacity * 2, answers.used + wanted)
    data = <uint8_t *> PyMem_Realloc(answers.data, capacity)
    if data == NULL:
        raise MemoryError()
    answers.data = data
    answers.capacity = capacity
    return 0


cdef inline void set_id_host(AnswerBuffer *answers, const Host *host) noexcept nogil:
    answers.id_host_length = put_id_host(answers.id_host, host) - answers.id_host


cdef inline bint has_room(const AnswerBuffer *answers, Py_ssize_t wanted) noexcept nogil:
    return answers.capacity - answers.used >= wanted


# Bytes that the answer to a send of `body_length` bytes may need, at most.
cdef inline Py_ssize_t send_answer_size_max(const AnswerBuffer *answers, int32_t body_length,
                                            bint batch) noexcept nogil:
    cdef Py_ssize_t size_max = SEND_RESPONSE_MAX + ID_SIZE_MAX + answers.constants[0].length
    if batch:
        size_max += 2 * (body_length // BATCH_ELEMENT_FIXED + 1) * ID_SIZE_MAX
    return size_max


# The offset ids of the records just appended, joined by commas; returns their length. `log` is
# where the log's offset 0 would be; the id of one record needs no look into the log.
cdef inline Py_ssize_t put_message_ids(const AnswerBuffer *answers, uint8_t *at,
                                       const Appended *appended,
                                       const uint8_t *log) noexcept nogil:
    cdef int64_t offset = appended.physical_offset
    cdef uint8_t *start = at
    cdef int32_t i
    for i in range(appended.count):
        if i:
            offset += load_i32(log + offset)
            at[0] = b","
            at += 1
        memcpy(at, answers.id_host, answers.id_host_length)
        at = put_id_offset(at + answers.id_host_length, offset)
    return at - start


# The answer to a send; `size_max` is what send_answer_size_max() says, and more for a recall handle
# (without length: none); `log` as in put_message_ids().
cdef inline void put_send_answer(AnswerBuffer *answers, Py_ssize_t size_max, int32_t serialize_type,
                                 int32_t opaque, int32_t queue_id, const Appended *appended,
                                 const uint8_t *log, Slice recall_handle) noexcept nogil:
    # The ids are written at the far end of the free space; the encoder moves them into place.
    cdef uint8_t *out = answers.data + answers.used
    cdef uint8_t *ids = out + size_max - (<Py_ssize_t> appended.count) * ID_SIZE_MAX
    cdef Py_ssize_t length = put_message_ids(answers, ids, appended, log)
    answers.used += encode_send_response(
        out, serialize_type, opaque, <const char *> ids, <int32_t> length, queue_id,
        appended.queue_offset, answers.constants[serialize_type], recall_handle,
    )


# An answer with a code alone; SEND_RESPONSE_MAX bytes are room enough.
cdef inline void put_code(AnswerBuffer *answers, int32_t serialize_type, int32_t opaque,
                          int32_t code, Slice remark) noexcept nogil:
    answers.used += encode_response(
        answers.data + answers.used, serialize_type, opaque, code, remark
    )


cdef inline void put_success(AnswerBuffer *answers, int32_t serialize_type,
                             int32_t opaque) noexcept nogil:
    cdef Slice remark
    remark.data = NULL
    remark.length = 0
    put_code(answers, serialize_type, opaque, 0, remark)


# The answer to a send that a quota refuses.
cdef inline void put_busy(AnswerBuffer *answers, int32_t serialize_type,
                          int32_t opaque) noexcept nogil:
    put_code(answers, serialize_type, opaque, SYSTEM_BUSY, busy_remark())
