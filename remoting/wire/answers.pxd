from libc.stdint cimport int32_t, int64_t, uint8_t

from congreve.base.slices cimport Slice

# A whole response frame to a send, in the request's serialize type; returns bytes written (below
# SEND_RESPONSE_MAX + message_id_length + more.length + recall_handle.length). `more` is the
# constant ext fields MSG_REGION and TRACE_ON, prepared by send_response_constants() for that
# serialize type. `recall_handle` is base64 (no length: none).
cdef enum:
    SEND_RESPONSE_MAX = 512

cdef Py_ssize_t encode_send_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                     const char *message_id, int32_t message_id_length,
                                     int32_t queue_id, int64_t queue_offset,
                                     Slice more, Slice recall_handle) noexcept nogil

# A whole response frame without fields; returns the bytes written (below SEND_RESPONSE_MAX). The
# remark (none: length 0) is cut at PULL_REMARK_MAX; what is not plain ASCII in it becomes '?'.
cdef Py_ssize_t encode_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                int32_t code, Slice remark) noexcept nogil

# Frame head and header of a response to a pull; the body of `body_length` bytes follows it. The
# remark (none: length 0) is cut at PULL_REMARK_MAX; what is not plain ASCII in it becomes '?'.
cdef enum:
    PULL_RESPONSE_MAX = 512
    PULL_REMARK_MAX = 128

cdef Py_ssize_t encode_pull_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                     int32_t code, Slice remark, int64_t suggest_broker_id,
                                     int64_t next_offset, int64_t min_offset, int64_t max_offset,
                                     int32_t body_length) noexcept nogil

# Frame head and header of the answer to a pop; the body of `body_length` bytes follows it. It has
# fewer bytes than POP_RESPONSE_MAX and the three texts.
cdef enum:
    POP_RESPONSE_MAX = 512

cdef Py_ssize_t encode_pop_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                    int32_t code, Slice remark, int64_t pop_ms,
                                    int64_t invisible_ms, int64_t left,
                                    Slice start_offsets, Slice message_offsets,
                                    int32_t body_length) noexcept nogil

# A whole answer to a change of the invisible time; returns the bytes written (below
# SEND_RESPONSE_MAX).
cdef Py_ssize_t encode_change_response(uint8_t *out, int32_t serialize_type, int32_t opaque,
                                       Slice remark, int64_t pop_ms, int64_t invisible_ms,
                                       int32_t revive_queue_id) noexcept nogil
