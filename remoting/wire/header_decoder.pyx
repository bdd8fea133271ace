"""Headers of many frames: most JSON headers look like one that was seen before.

A client writes the same fields in the same order again and again; what differs is the opaque, and
characters inside string values. So a header of a length that was seen before is compared with that
one in one vectorised pass, and where nothing but such characters differs, its fields lie where
they lay, and its escapes too. Any other header is decoded from scratch, and remembered.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.string cimport memcpy, memset

from congreve.remoting.wire.fast_headers cimport (
    SEND_FIELDS,
    PopHeader,
    PullHeader,
    SendHeader,
    fill_send_header,
    is_send,
    read_pop_header,
    read_pull_header,
    read_send_header,
    send_places,
)
from congreve.remoting.wire.frame cimport (
    FRAME_WHOLE,
    HEADER_OK,
    Field,
    decode_header,
    next_frame,
)
from congreve.remoting.wire.json_text cimport parse_int32, skip_sign, unescape
from congreve.remoting.wire.signed_fields cimport sort_fields

cdef enum:
    SCRATCH_SIZE = 64 * 1024


cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
    #define CONGREVE_WIDE __attribute__((target_clones("avx2", "default")))
    #else
    #define CONGREVE_WIDE
    #endif

    /* 1 where a byte of a JSON string does not stand for itself, or is not ASCII. */
    static inline uint8_t congreve_not_plain(uint8_t sign) {
        return (sign < 0x20) | (sign >= 0x80) | (sign == '"') | (sign == '\\\\');
    }

    /* No branch depends on the bytes, so that the compiler can take many at a time. */
    static CONGREVE_WIDE int congreve_differs(const uint8_t *text, const uint8_t *known,
                                              const uint8_t *fixed, int32_t length) {
        uint8_t wrong = 0;
        for (int32_t i = 0; i < length; i++)
            wrong |= ((text[i] ^ known[i]) & fixed[i]) | (congreve_not_plain(text[i]) & ~fixed[i]);
        return wrong != 0;
    }
    """
    uint8_t not_plain "congreve_not_plain"(uint8_t sign) noexcept nogil
    bint differs "congreve_differs"(const uint8_t *text, const uint8_t *known,
                                    const uint8_t *fixed, int32_t length) noexcept nogil


cdef bint remember(Slice text, const Header *header, Shape *shape) noexcept nogil:
    """Fill the shape; False: this header has something that a shape cannot hold."""
    cdef const uint8_t *end = text.data + text.length
    cdef const Field *field
    cdef SendHeader send
    cdef int32_t i
    shape.length = 0
    shape.pieces_count = 0
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
    shape.is_send = False
    if is_send(header.code):
        send_places(header, shape.send)
        read_send_header(header, &send)
        shape.is_send = send.complete
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
    found.first_piece = shape.pieces_count
    found.pieces = 0
    found.value_at = <int32_t> (at - text.data)
    found.value_length = field.value.length
    if at[0] != c'"':
        return True
    at += 1
    start = at
    found.value_at += 1
    while at[0] != c'"':
        if at[0] == c"\\":
            at = remember_escape(text, start, at, shape)
            if at == NULL:
                return False
            start = at
        else:
            if not not_plain(at[0]):
                shape.fixed[at - text.data] = 0
            at += 1
    found.value_length = <int32_t> (at - text.data) - found.value_at
    if shape.pieces_count == found.first_piece:
        return True
    # The run after the last escape.
    if shape.pieces_count == PIECES_MAX:
        return False
    put_piece(text, start, at, shape)
    found.pieces = shape.pieces_count - found.first_piece
    return True


cdef inline Piece *put_piece(Slice text, const uint8_t *start, const uint8_t *end,
                             Shape *shape) noexcept nogil:
    cdef Piece *piece = &shape.pieces[shape.pieces_count]
    shape.pieces_count += 1
    piece.at = <int32_t> (start - text.data)
    piece.length = <int32_t> (end - start)
    piece.sign_length = 0
    return piece


cdef const uint8_t *remember_escape(Slice text, const uint8_t *start, const uint8_t *at,
                                    Shape *shape) noexcept nogil:
    """Remember the run from `start` and the escape at `at`; returns the end, NULL: too many."""
    cdef Piece *piece
    cdef uint8_t *out
    if shape.pieces_count == PIECES_MAX:
        return NULL
    piece = put_piece(text, start, at, shape)
    out = piece.sign
    at = unescape(at + 1, text.data + text.length, &out)
    piece.sign_length = <int32_t> (out - piece.sign)
    return at


cdef inline uint8_t *copy_run(uint8_t *out, const uint8_t *run, int32_t length,
                              const uint8_t *end) noexcept nogil:
    """Copy sixteen bytes at a time, if `end` is far enough; `out` has room for as many more."""
    cdef int32_t done = 0
    if end - run < length + 16:
        memcpy(out, run, length)
    else:
        while done < length:
            memcpy(out + done, run + done, 16)
            done += 16
    return out + length


@cython.final
cdef class HeaderDecoder:
    """Decodes the headers of frames in compiled code, and remembers the layout of the last ones.

    Each method takes one whole frame and returns None where Python must decode it.
    (RocketMQ: RemotingCommand.headerDecode.)
    """

    def __cinit__(self):
        self.scratch.capacity = SCRATCH_SIZE
        self.scratch.data = <uint8_t *> PyMem_Calloc(1, SCRATCH_SIZE)
        self.shapes = <Shape *> PyMem_Calloc(SHAPES, sizeof(Shape))
        if self.scratch.data == NULL or self.shapes == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.scratch.data)
        PyMem_Free(self.shapes)

    cdef HeaderStatus decode(self, const Frame *frame, Header *header,
                             SendHeader *send) noexcept nogil:
        cdef HeaderStatus status
        cdef Shape *shape = NULL
        cdef bint known = False
        self.scratch.used = 0
        # A shape of length 0 is none: its other numbers may be those of an earlier header.
        if frame.serialize_type == 0 and 0 < frame.header.length <= SHAPE_MAX:
            shape = &self.shapes[frame.header.length % SHAPES]
            if shape.length == frame.header.length and not differs(
                    frame.header.data, shape.text, shape.fixed, shape.length):
                header.opaque_text.data = frame.header.data + shape.opaque_at
                header.opaque_text.length = shape.opaque_length
                if parse_int32(header.opaque_text, &header.opaque):
                    header.code = shape.code
                    header.version = shape.version
                    header.flag = shape.flag
                    self.signed = &shape.signed
                    if send != NULL and shape.is_send:
                        header.count = 0
                        if self.keeps_fields:
                            self.fields_as_before(shape, frame.header, header)
                        self.send_as_before(shape, frame.header, header, send)
                        return HEADER_OK
                    self.fields_as_before(shape, frame.header, header)
                    known = True
        if not known:
            status = decode_header(frame, &self.scratch, header)
            if status != HEADER_OK:
                return status
            if shape != NULL:
                self.remembered += remember(frame.header, header, shape)
            if self.keeps_fields:
                self.find_signed(header, shape)
        if send != NULL and is_send(header.code):
            read_send_header(header, send)
        return HEADER_OK

    cdef void find_signed(self, const Header *header, Shape *shape) noexcept nogil:
        cdef SignedFields *signed = &self.unremembered
        if shape != NULL and shape.length:
            signed = &shape.signed
        sort_fields(header, signed)
        self.signed = signed

    cdef void send_as_before(self, const Shape *shape, Slice text, const Header *header,
                             SendHeader *send) noexcept nogil:
        cdef Slice values[SEND_FIELDS]
        cdef int32_t i, place
        memset(values, 0, sizeof(values))
        for i in range(SEND_FIELDS):
            place = shape.send[i]
            if place >= 0 and header.count:
                values[i] = header.fields[place].value
            elif place >= 0:
                values[i] = self.value(shape, &shape.fields[place], text)
        fill_send_header(values, send)

    cdef void fields_as_before(self, const Shape *shape, Slice text,
                               Header *header) noexcept nogil:
        cdef const ShapeField *field
        cdef int32_t i
        header.count = shape.count
        for i in range(shape.count):
            field = &shape.fields[i]
            header.fields[i].key.data = text.data + field.key_at
            header.fields[i].key.length = field.key_length
            header.fields[i].value = self.value(shape, field, text)

    cdef Slice value(self, const Shape *shape, const ShapeField *field, Slice text) noexcept nogil:
        """A field's value at its present place, unescaped as before."""
        cdef Slice found
        cdef const Piece *piece
        cdef uint8_t *out
        cdef int32_t i
        found.data = text.data + field.value_at
        found.length = field.value_length
        if field.pieces:
            out = self.scratch.data + self.scratch.used
            found.data = out
            for i in range(field.first_piece, field.first_piece + field.pieces):
                piece = &shape.pieces[i]
                out = copy_run(out, text.data + piece.at, piece.length, text.data + text.length)
                memcpy(out, piece.sign, 4)
                out += piece.sign_length
            found.length = <int32_t> (out - found.data)
            self.scratch.used += found.length
        return found

    # --- for Python callers

    cdef bint read(self, bytes data, Header *header, SendHeader *send) except -1:
        cdef Frame frame
        return (
            next_frame(data, len(data), &frame) == FRAME_WHOLE and frame.size == len(data)
            and self.decode(&frame, header, send) == HEADER_OK
        )

    def head(self, bytes data not None):
        """(code, version, opaque, flag, ext fields) (RocketMQ: RemotingCommand)."""
        cdef Header header
        if not self.read(data, &header, NULL):
            return None
        fields = {
            text_of(header.fields[i].key): text_of(header.fields[i].value)
            for i in range(header.count)
        }
        return header.code, header.version, header.opaque, header.flag, fields

    def send(self, bytes data not None):
        """The fields of a SendMessageRequestHeaderV2, of code 10 those of a
        SendMessageRequestHeader; unitMode and maxReconsumeTimes are left out.
        """
        cdef Header header
        cdef SendHeader send
        if not self.read(data, &header, &send) or not (is_send(header.code) and send.complete):
            return None
        return (
            text_of(send.producer_group), text_of(send.topic), text_of(send.default_topic),
            send.default_topic_queues, send.queue_id, send.sys_flag, send.born_timestamp,
            send.flag, optional_text(send.properties), send.reconsume_times, send.batch,
        )

    def pull(self, bytes data not None):
        """The fields of a PullMessageRequestHeader, the optional ones last."""
        cdef Header header
        cdef PullHeader pull
        if not self.read(data, &header, NULL):
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

    def pop(self, bytes data not None):
        """The fields of a PopMessageRequestHeader that compiled code reads, the texts first."""
        cdef Header header
        cdef PopHeader pop
        if not self.read(data, &header, NULL):
            return None
        read_pop_header(&header, &pop)
        if not pop.complete:
            return None
        return (
            text_of(pop.consumer_group), text_of(pop.topic), optional_text(pop.expression),
            optional_text(pop.expression_type), pop.queue_id, pop.max_count, pop.init_mode,
            pop.invisible_ms, pop.poll_ms, pop.born_ms, pop.ordered,
        )


cdef str text_of(Slice text):
    return PyBytes_FromStringAndSize(<const char *> text.data, text.length).decode()


cdef object optional_text(Slice text):
    return None if text.data == NULL else text_of(text)
