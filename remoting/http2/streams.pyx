"""The streams of a session of HTTP/2, for compiled code (streams.pxd)."""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from congreve.base.byte_buffer cimport release


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
