"""The streams of a session of HTTP/2, for compiled code (streams.pxd)."""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from congreve.base.byte_buffer cimport append_bytes, release
from congreve.remoting.wire.byte_text cimport put_i16

cdef enum:
    METADATA_MAX = 8 * 1024     # bytes of the headers that are kept


cdef Stream *new_stream(Session *session, int32_t id) noexcept nogil:
    cdef Stream *stream = <Stream *> calloc(1, sizeof(Stream))
    if stream == NULL:
        return NULL
    stream.id = id
    stream.next = session.streams
    if session.streams != NULL:
        session.streams.previous = stream
    session.streams = stream
    return stream


cdef void free_stream(Session *session, Stream *stream) noexcept nogil:
    drop_message(session, stream)
    session.shown.unsent -= stream.answer.used - stream.answer.at
    release(&stream.answer)
    release(&stream.message)
    release(&stream.metadata)
    free(stream.text)
    free(stream.note)
    if stream.previous == NULL:
        session.streams = stream.next
    else:
        stream.previous.next = stream.next
    if stream.next != NULL:
        stream.next.previous = stream.previous
    free(stream)


cdef bint keep_note(Stream *stream, uint8_t kind, const uint8_t *note,
                    int32_t length) noexcept nogil:
    stream.kind = kind
    if not length:
        return True
    stream.note = <uint8_t *> malloc(length)
    if stream.note == NULL:
        return False
    memcpy(stream.note, note, length)
    stream.note_length = length
    return True


cdef void mark_partial(Session *session, Stream *stream) noexcept nogil:
    cdef bint wanted = stream.message.used > 0
    if wanted == stream.in_partial:
        return
    stream.in_partial = wanted
    if wanted:
        stream.since_ms = session.now_ms
        stream.before, stream.after = session.newest, NULL
        if session.newest != NULL:
            session.newest.after = stream
        else:
            session.oldest = stream
        session.newest = stream
    else:
        if stream.before != NULL:
            stream.before.after = stream.after
        else:
            session.oldest = stream.after
        if stream.after != NULL:
            stream.after.before = stream.before
        else:
            session.newest = stream.before
    session.shown.partial_since_ms = 0 if session.oldest == NULL else session.oldest.since_ms


cdef void drop_message(Session *session, Stream *stream) noexcept nogil:
    session.shown.held -= stream.message.used
    stream.message.used = 0
    mark_partial(session, stream)


cdef bint keep_header(Stream *stream, const uint8_t *name, size_t name_length,
                      const uint8_t *value, size_t length) noexcept nogil:
    cdef uint8_t[3] head
    cdef int field
    if is_name(name, name_length, b"content-type", 12):
        stream.is_grpc = length >= 16 and memcmp(value, <const char *> b"application/grpc", 16) == 0
        return True
    field = field_of(name, name_length)
    if field == CALL_FIELDS or stream.field_at[field]:
        return True
    if stream.metadata.used + <int64_t> length > METADATA_MAX:
        return False
    head[0] = <uint8_t> field
    put_i16(head + 1, <int32_t> length)
    if not append_bytes(&stream.metadata, head, 3):
        return False
    if length and not append_bytes(&stream.metadata, value, length):
        return False
    stream.field_at[field] = <int32_t> (stream.metadata.used - <int64_t> length)
    stream.field_length[field] = <int32_t> length
    return True
