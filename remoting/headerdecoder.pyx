"""Headers of many frames: most JSON headers look like one that was seen before.

A client writes the same fields in the same order again and again; what differs is the opaque, and
characters inside string values. So a header of a length that was seen before is compared with that
one in one vectorised pass, and where nothing but such characters differs, its fields lie where
they lay. Any other header is decoded from scratch, and remembered.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy, memset

from congreve.remoting.frame cimport (
    FRAME_WHOLE,
    HEADER_OK,
    Field,
    decode_header,
    next_frame,
)
from congreve.remoting.hotheaders cimport (
    PullHeader,
    SendHeader,
    read_pull_header,
    read_send_header,
)
from congreve.remoting.jsontext cimport parse_int32, scan_string, skip_sign

cdef enum:
    SCRATCH_SIZE = 64 * 1024


cdef inline uint8_t not_plain(uint8_t sign) noexcept nogil:
    """1 where a byte of a JSON string does not stand for itself, or is not ASCII."""
    return (sign < 0x20) | (sign >= 0x80) | (sign == c'"') | (sign == c"\\")


cdef inline bint differs(const uint8_t *text, const Shape *shape) noexcept nogil:
    """No branch depends on the bytes, so that the compiler can take many at a time."""
    cdef uint8_t wrong = 0
    cdef int32_t i
    for i in range(shape.length):
        wrong |= ((text[i] ^ shape.text[i]) & shape.fixed[i]) | (
            not_plain(text[i]) & ~shape.fixed[i]
        )
    return wrong != 0


cdef bint remember(Slice text, const Header *header, Shape *shape) noexcept nogil:
    """Fill the shape; False: this header has something that a shape cannot hold."""
    cdef const uint8_t *end = text.data + text.length
    cdef const Field *field
    cdef int32_t i
    shape.length = 0
    if header.opaque_text.data == NULL:
        return False
    memcpy(shape.text, text.data, text.length)
    memset(shape.fixed, 0xFF, text.length)
    for i in range(header.count):
        field = &header.fields[i]
        if not text.data <= field.key.data < end:
            return False  # an escaped key
        shape.fields[i].key_at = <int32_t> (field.key.data - text.data)
        shape.fields[i].key_length = field.key.length
        if not remember_value(text, field, shape, &shape.fields[i]):
            return False
    shape.code = header.code
    shape.version = header.version
    shape.flag = header.flag
    shape.count = header.count
    shape.opaque_at = <int32_t> (header.opaque_text.data - text.data)
    shape.opaque_length = header.opaque_text.length
    # Another sign than a digit is plain too, and is found when the opaque is parsed.
    memset(shape.fixed + shape.opaque_at, 0, shape.opaque_length)
    shape.length = text.length
    return True


cdef bint remember_value(Slice text, const Field *field, Shape *shape,
                         ShapeField *found) noexcept nogil:
    cdef const uint8_t *end = text.data + text.length
    cdef const uint8_t *at = skip_sign(field.key.data + field.key.length + 1, end, c":")
    cdef const uint8_t *start = at
    if at == NULL:
        return False
    found.escaped = False
    found.value_at = <int32_t> (at - text.data)
    found.value_length = field.value.length
    if at[0] != c'"':
        return True
    found.value_at += 1
    at += 1
    start = at
    while at[0] != c'"':
        if at[0] == c"\\":
            found.escaped = True
            at += 6 if at[1] == c"u" else 2
        else:
            if not not_plain(at[0]):
                shape.fixed[at - text.data] = 0
            at += 1
    found.value_length = <int32_t> (at - start)
    return True


@cython.final
cdef class HeaderDecoder:
    def __cinit__(self):
        self.scratch.capacity = SCRATCH_SIZE
        self.scratch.data = <uint8_t *> PyMem_Malloc(SCRATCH_SIZE)
        self.shapes = <Shape *> PyMem_Calloc(SHAPES, sizeof(Shape))
        if self.scratch.data == NULL or self.shapes == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.scratch.data)
        PyMem_Free(self.shapes)

    cdef HeaderStatus decode(self, const Frame *frame, Header *header) noexcept nogil:
        cdef HeaderStatus status
        cdef Shape *shape
        self.scratch.used = 0
        if frame.serialize_type == 1 or frame.header.length > SHAPE_MAX:
            return decode_header(frame, &self.scratch, header)
        shape = &self.shapes[frame.header.length % SHAPES]
        if (shape.length == frame.header.length and not differs(frame.header.data, shape)
                and self.as_before(shape, frame.header, header)):
            return HEADER_OK
        self.scratch.used = 0
        status = decode_header(frame, &self.scratch, header)
        if status == HEADER_OK:
            self.remembered += remember(frame.header, header, shape)
        return status

    cdef bint as_before(self, const Shape *shape, Slice text, Header *header) noexcept nogil:
        cdef const uint8_t *end = text.data + text.length
        cdef const uint8_t *value
        cdef const ShapeField *known
        cdef int32_t i
        header.opaque_text.data = text.data + shape.opaque_at
        header.opaque_text.length = shape.opaque_length
        if not parse_int32(header.opaque_text, &header.opaque):
            return False
        header.code = shape.code
        header.version = shape.version
        header.flag = shape.flag
        header.count = shape.count
        for i in range(shape.count):
            known = &shape.fields[i]
            value = text.data + known.value_at
            header.fields[i].key.data = text.data + known.key_at
            header.fields[i].key.length = known.key_length
            if known.escaped:
                if scan_string(value - 1, end, &self.scratch, &header.fields[i].value) == NULL:
                    return False
            else:
                header.fields[i].value.data = value
                header.fields[i].value.length = known.value_length
        return True

    # ---- what Python sees ----------------------------------------------------------------------

    cdef bint read(self, bytes data, Header *header) except -1:
        cdef Frame frame
        return (
            next_frame(data, len(data), &frame) == FRAME_WHOLE and frame.size == len(data)
            and self.decode(&frame, header) == HEADER_OK
        )

    def head(self, bytes data not None):
        cdef Header header
        if not self.read(data, &header):
            return None
        fields = {
            text_of(header.fields[i].key): text_of(header.fields[i].value)
            for i in range(header.count)
        }
        return header.code, header.version, header.opaque, header.flag, fields

    def send(self, bytes data not None, bint short_names=True):
        cdef Header header
        cdef SendHeader send
        if not self.read(data, &header):
            return None
        read_send_header(&header, short_names, &send)
        if not send.complete:
            return None
        return (
            text_of(send.producer_group), text_of(send.topic), text_of(send.default_topic),
            send.default_topic_queues, send.queue_id, send.sys_flag, send.born_timestamp,
            send.flag, optional_text(send.properties), send.reconsume_times, send.batch,
        )

    def pull(self, bytes data not None):
        cdef Header header
        cdef PullHeader pull
        if not self.read(data, &header):
            return None
        read_pull_header(&header, &pull)
        if not pull.complete:
            return None
        return (
            text_of(pull.consumer_group), text_of(pull.topic), pull.queue_id, pull.queue_offset,
            pull.max_count, pull.sys_flag, pull.commit_offset, pull.suspend_timeout_ms,
            pull.sub_version, optional_text(pull.subscription),
            optional_text(pull.expression_type),
        )


cdef str text_of(Slice text):
    return PyBytes_FromStringAndSize(<const char *> text.data, text.length).decode()


cdef object optional_text(Slice text):
    return None if text.data == NULL else text_of(text)
