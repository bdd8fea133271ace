"""Sessions of HTTP/2 by libnghttp2, for the lanes (docs/decisions/grpc-door.md).

Streams are calls of gRPC: a message has five bytes in front, and an answer ends with trailers.
"""

cimport cython
from libc.errno cimport ENOMEM, EPROTO
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove

from congreve.base.byte_buffer cimport append_bytes, make_room, release
from congreve.base.slices cimport Scratch
from congreve.remoting.http2.nghttp2 cimport (
    NGHTTP2_DATA,
    NGHTTP2_DATA_FLAG_EOF,
    NGHTTP2_DATA_FLAG_NO_END_STREAM,
    NGHTTP2_ERR_CALLBACK_FAILURE,
    NGHTTP2_ERR_DEFERRED,
    NGHTTP2_ERR_NOMEM,
    NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE,
    NGHTTP2_FLAG_END_STREAM,
    NGHTTP2_FLAG_NONE,
    NGHTTP2_HCAT_REQUEST,
    NGHTTP2_HEADERS,
    NGHTTP2_NO_ERROR,
    NGHTTP2_PRIORITY,
    NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
    NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
    NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
    constant_header,
    copied_header,
    nghttp2_data_provider,
    nghttp2_data_source,
    nghttp2_frame,
    nghttp2_nv,
    nghttp2_option_del,
    nghttp2_option_new,
    nghttp2_option_set_no_auto_window_update,
    nghttp2_option_set_no_closed_streams,
    nghttp2_session,
    nghttp2_session_callbacks_del,
    nghttp2_session_callbacks_new,
    nghttp2_session_callbacks_set_on_begin_headers_callback,
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback,
    nghttp2_session_callbacks_set_on_frame_recv_callback,
    nghttp2_session_callbacks_set_on_header_callback,
    nghttp2_session_callbacks_set_on_stream_close_callback,
    nghttp2_session_consume_connection,
    nghttp2_session_consume_stream,
    nghttp2_session_del,
    nghttp2_session_get_last_proc_stream_id,
    nghttp2_session_get_stream_user_data,
    nghttp2_session_mem_recv,
    nghttp2_session_mem_send,
    nghttp2_session_resume_data,
    nghttp2_session_server_new2,
    nghttp2_session_set_local_window_size,
    nghttp2_session_set_stream_user_data,
    nghttp2_session_want_read,
    nghttp2_session_want_write,
    nghttp2_settings_entry,
    nghttp2_submit_goaway,
    nghttp2_submit_response,
    nghttp2_submit_settings,
    nghttp2_submit_trailer,
)
from congreve.remoting.http2.streams cimport (
    drop_message,
    free_stream,
    keep_header,
    keep_note,
    mark_partial,
    new_stream,
)
from congreve.remoting.lanes cimport entry_kinds
from congreve.remoting.lanes.http2 cimport CALL_FIELDS, PREFIX, Http2Session, put_prefix
from congreve.remoting.lanes.mailbox cimport Mailbox
from congreve.remoting.wire.byte_text cimport put_decimal, put_i32
from congreve.remoting.wire.frame cimport (
    FLAG_RESPONSE,
    FRAME_WHOLE,
    HEADER_OK,
    Frame,
    Header,
    decode_header,
    next_frame,
)

cdef enum:
    STREAMS_MAX = 1000          # of a connection
    WINDOW = 1 << 20            # bytes that a peer may send ahead, on a stream and on a connection
    HEADER_LIST_MAX = 16 * 1024     # bytes of a call's headers, as RFC 9113 counts them
    HEADER_MORE = 32            # that a header counts beside its name and value
    IDLE_FRAMES_MAX = 1000      # frames without a purpose between two messages
    TEXT_MAX = 1024             # bytes of the text of a status
    CHUNK_MAX = 16 * 1024 + 9   # bytes of the largest frame that nghttp2 makes here
    OUTPUT_SIZE = 64 * 1024
    # Numbers of gRPC.
    OK = 0
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    OF_CALL = 2                 # the number of a FRAME that a session has made (handle.pyx)
    # What a reply of the loop has (call.py).
    REPLY_MESSAGE = 1
    REPLY_END = 2
    REPLY_BY_FRAME = 4
    REPLY_HEAD = 4              # bytes in front


cdef inline Stream *stream_of(Session *session, int32_t id) noexcept nogil:
    return <Stream *> nghttp2_session_get_stream_user_data(session.nghttp2, id)


# --- answers

cdef Py_ssize_t read_answer(nghttp2_session *nghttp2, int32_t id, uint8_t *out, size_t size,
                            uint32_t *flags, nghttp2_data_source *source,
                            void *user) noexcept nogil:
    """Give bytes of an answer to nghttp2, and its trailers after the last ones."""
    cdef Session *session = <Session *> user
    cdef Stream *stream = <Stream *> source.ptr
    cdef int64_t length = min(<int64_t> size, stream.answer.used - stream.answer.at)
    if not length and not stream.ended:
        stream.deferred = True
        return NGHTTP2_ERR_DEFERRED
    if length:
        memcpy(out, stream.answer.data + stream.answer.at, length)
        stream.answer.at += length
        session.shown.unsent -= length
    if stream.answer.at == stream.answer.used:
        release(&stream.answer)
        if stream.ended:
            flags[0] = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM
            put_trailers(nghttp2, stream)
    return length


cdef size_t status_headers(const Stream *stream, nghttp2_nv *headers,
                           uint8_t *digits) noexcept nogil:
    """Fill in the status of a call, and its text; returns how many headers."""
    headers[0] = copied_header(
        b"grpc-status", digits, put_decimal(digits, stream.status) - digits
    )
    if stream.text == NULL:
        return 1
    headers[1] = copied_header(b"grpc-message", stream.text, stream.text_length)
    return 2


cdef void put_trailers(nghttp2_session *nghttp2, const Stream *stream) noexcept nogil:
    cdef nghttp2_nv[2] headers
    cdef uint8_t[20] digits
    nghttp2_submit_trailer(nghttp2, stream.id, headers, status_headers(stream, headers, digits))


cdef void begin_answer(Session *session, Stream *stream) noexcept nogil:
    """Send the headers of an answer, or, if it has no message, all of it."""
    cdef nghttp2_nv[4] headers
    cdef uint8_t[20] digits
    cdef nghttp2_data_provider provider
    stream.begun = True
    headers[0] = constant_header(b":status", b"200" if stream.is_grpc else b"415")
    headers[1] = constant_header(b"content-type", b"application/grpc")
    if stream.ended and stream.answer.at == stream.answer.used:
        nghttp2_submit_response(
            session.nghttp2, stream.id, headers,
            2 + status_headers(stream, headers + 2, digits), NULL,
        )
        return
    provider.source.ptr = stream
    provider.read_callback = read_answer
    nghttp2_submit_response(session.nghttp2, stream.id, headers, 2, &provider)


cdef void send_answer(Session *session, Stream *stream) noexcept nogil:
    """Let nghttp2 ask for what was added to the answer."""
    if not stream.begun:
        begin_answer(session, stream)
    elif stream.deferred:
        stream.deferred = False
        nghttp2_session_resume_data(session.nghttp2, stream.id)


cdef void end_call(Session *session, Stream *stream, uint8_t status, const uint8_t *text,
                   int64_t length) noexcept nogil:
    """End the answer with this status; the text is percent-encoded."""
    stream.ended, stream.status = True, status
    if length:
        stream.text_length = <int32_t> min(length, <int64_t> TEXT_MAX)
        stream.text = <uint8_t *> malloc(stream.text_length)
        if stream.text != NULL:
            memcpy(stream.text, text, stream.text_length)
    drop_message(session, stream)
    send_answer(session, stream)


cdef void refuse(Session *session, Stream *stream, uint8_t status,
                 const char *text, int64_t length) noexcept nogil:
    end_call(session, stream, status, <const uint8_t *> text, length)


# --- what nghttp2 calls

cdef int on_begin_headers(nghttp2_session *nghttp2, const nghttp2_frame *frame,
                          void *user) noexcept nogil:
    cdef Session *session = <Session *> user
    cdef Stream *stream
    if frame.hd.type != NGHTTP2_HEADERS or frame.headers.cat != NGHTTP2_HCAT_REQUEST:
        return 0
    stream = new_stream(session, frame.hd.stream_id)
    if stream == NULL:
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    nghttp2_session_set_stream_user_data(nghttp2, stream.id, stream)
    return 0


cdef int on_header(nghttp2_session *nghttp2, const nghttp2_frame *frame, const uint8_t *name,
                   size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
                   void *user) noexcept nogil:
    cdef Stream *stream = stream_of(<Session *> user, frame.hd.stream_id)
    if stream == NULL:
        return 0
    # A short block may unpack to much: nghttp2 checks each header before it calls this.
    stream.header_bytes += name_length + length + HEADER_MORE
    if stream.header_bytes > HEADER_LIST_MAX:
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    if frame.headers.cat != NGHTTP2_HCAT_REQUEST:
        return 0
    return 0 if keep_header(stream, name, name_length, value, length) else (
        NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    )


cdef int on_data_chunk(nghttp2_session *nghttp2, uint8_t flags, int32_t id, const uint8_t *data,
                       size_t length, void *user) noexcept nogil:
    cdef Session *session = <Session *> user
    cdef Stream *stream = stream_of(session, id)
    session.unconsumed += length
    nghttp2_session_consume_stream(nghttp2, id, length)
    if stream == NULL or stream.ended or stream.of_frames or not length:
        return 0
    if not append_bytes(&stream.message, data, length):
        refuse(session, stream, RESOURCE_EXHAUSTED, b"no memory", 9)
        return 0
    session.shown.held += length
    mark_partial(session, stream)
    return 0


cdef int on_frame(nghttp2_session *nghttp2, const nghttp2_frame *frame,
                  void *user) noexcept nogil:
    cdef Session *session = <Session *> user
    cdef Stream *stream
    if frame.hd.type == NGHTTP2_PRIORITY or (
        frame.hd.type == NGHTTP2_DATA and not frame.hd.length
    ):
        session.idle_frames += 1
        if session.idle_frames > IDLE_FRAMES_MAX:
            return NGHTTP2_ERR_CALLBACK_FAILURE
    if frame.hd.type != NGHTTP2_HEADERS and frame.hd.type != NGHTTP2_DATA:
        return 0
    stream = stream_of(session, frame.hd.stream_id)
    if stream == NULL or stream.ended:
        return 0
    if not stream.is_grpc:
        refuse(session, stream, UNIMPLEMENTED, b"this port serves gRPC", 21)
        return 0
    stream.closed = frame.hd.flags & NGHTTP2_FLAG_END_STREAM != 0
    (<NgHttp2Sessions> session.owner).take_messages(session, stream)
    if not stream.closed or stream.ended or stream.of_frames:
        return 0
    if stream.message.used or not stream.at_loop:
        refuse(session, stream, INTERNAL, b"the request ends before its message", 35)
    elif not stream.told_closed:
        (<NgHttp2Sessions> session.owner).to_loop.post(
            entry_kinds.CALL_CLOSED, session.connection, NULL, 0, stream.id, True
        )
    return 0


cdef int on_stream_close(nghttp2_session *nghttp2, int32_t id, uint32_t error,
                         void *user) noexcept nogil:
    cdef Session *session = <Session *> user
    cdef Stream *stream = stream_of(session, id)
    if stream == NULL:
        return 0
    if stream.at_loop and not stream.ended:
        (<NgHttp2Sessions> session.owner).to_loop.post(
            entry_kinds.CALL_ENDED, session.connection, NULL, 0, id, True
        )
    nghttp2_session_set_stream_user_data(nghttp2, id, NULL)
    free_stream(session, stream)
    return 0


@cython.final
cdef class NgHttp2Sessions(Http2Sessions):
    """The sessions of one lane. `codec` makes frames of calls; messages have at most `message_max`
    bytes. (RocketMQ: GrpcServer of the proxy in 5.)
    """

    def __cinit__(self, CallCodec codec not None, *, int64_t message_max):
        self.codec = codec
        self.message_max = message_max
        if nghttp2_session_callbacks_new(&self.callbacks) or nghttp2_option_new(&self.option):
            raise MemoryError()
        nghttp2_option_set_no_auto_window_update(self.option, 1)
        nghttp2_option_set_no_closed_streams(self.option, 1)
        nghttp2_session_callbacks_set_on_begin_headers_callback(self.callbacks, on_begin_headers)
        nghttp2_session_callbacks_set_on_header_callback(self.callbacks, on_header)
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(self.callbacks, on_data_chunk)
        nghttp2_session_callbacks_set_on_frame_recv_callback(self.callbacks, on_frame)
        nghttp2_session_callbacks_set_on_stream_close_callback(self.callbacks, on_stream_close)

    def __dealloc__(self):
        nghttp2_session_callbacks_del(self.callbacks)
        nghttp2_option_del(self.option)
        release(&self.entry)
        release(&self.scratch)

    cdef Http2Session *begin(self, int64_t connection) noexcept nogil:
        cdef nghttp2_settings_entry[3] settings
        cdef Session *session = <Session *> calloc(1, sizeof(Session))
        if session == NULL:
            return NULL
        session.owner = <void *> self
        session.connection = connection
        if nghttp2_session_server_new2(&session.nghttp2, self.callbacks, session, self.option):
            free(session)
            return NULL
        settings[0].settings_id = NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        settings[0].value = STREAMS_MAX
        settings[1].settings_id = NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
        settings[1].value = WINDOW
        settings[2].settings_id = NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
        settings[2].value = HEADER_LIST_MAX
        if nghttp2_submit_settings(
            session.nghttp2, NGHTTP2_FLAG_NONE, settings, 3
        ) or nghttp2_session_set_local_window_size(session.nghttp2, NGHTTP2_FLAG_NONE, 0, WINDOW):
            nghttp2_session_del(session.nghttp2)
            free(session)
            return NULL
        return &session.shown

    cdef void end(self, Http2Session *shown) noexcept nogil:
        cdef Session *session = <Session *> shown
        nghttp2_session_del(session.nghttp2)
        while session.streams != NULL:
            free_stream(session, session.streams)
        free(session)

    cdef int receive(self, Http2Session *shown, const uint8_t *data, int64_t length,
                     int64_t now_ms, ByteBuffer *frames) noexcept nogil:
        cdef Session *session = <Session *> shown
        cdef Py_ssize_t got
        session.now_ms, session.frames = now_ms, frames
        got = nghttp2_session_mem_recv(session.nghttp2, data, length)
        session.frames = NULL
        if got != length:
            return ENOMEM if got == NGHTTP2_ERR_NOMEM else EPROTO
        return 0

    cdef void open_window(self, Http2Session *shown) noexcept nogil:
        cdef Session *session = <Session *> shown
        if session.unconsumed:
            nghttp2_session_consume_connection(session.nghttp2, session.unconsumed)
            session.unconsumed = 0

    cdef void take_messages(self, Session *session, Stream *stream) noexcept nogil:
        """Take the whole messages of a stream, and leave the beginning of the next one."""
        cdef const uint8_t *at
        cdef int64_t length, taken = 0
        while not stream.ended and stream.message.used - taken >= PREFIX:
            at = stream.message.data + taken
            length = (
                <int64_t> at[1] << 24 | <int64_t> at[2] << 16 | <int64_t> at[3] << 8 | at[4]
            )
            if at[0]:
                refuse(session, stream, UNIMPLEMENTED, b"compressed messages are not read", 32)
                return
            if length > self.message_max:
                refuse(session, stream, RESOURCE_EXHAUSTED, b"the message is too large", 24)
                return
            if stream.message.used - taken < PREFIX + length:
                break
            stream.message.at = taken + PREFIX
            self.take_message(session, stream, length)
            taken += PREFIX + length
        if stream.ended or stream.of_frames:
            drop_message(session, stream)
            release(&stream.message)
        elif taken:
            session.shown.held -= taken
            stream.message.at = 0
            stream.message.used -= taken
            if stream.message.used:
                memmove(stream.message.data, stream.message.data + taken, stream.message.used)
            else:
                release(&stream.message)
            mark_partial(session, stream)

    cdef void take_message(self, Session *session, Stream *stream, int64_t length) noexcept nogil:
        """Make a frame of the message at `message.at`, or give it to the loop."""
        cdef Call call
        session.shown.calls += 1
        session.idle_frames = 0
        if not stream.at_loop:
            self.fill_call(&call, stream, length)
            if self.codec.read(&call, session.frames):
                stream.of_frames = True
                if not keep_note(stream, call.kind, call.note.data, call.note.length):
                    refuse(session, stream, RESOURCE_EXHAUSTED, b"no memory", 9)
                return
        if not self.pass_call(session, stream, length):
            refuse(session, stream, RESOURCE_EXHAUSTED, b"the broker is busy", 18)

    cdef void fill_call(self, Call *call, Stream *stream, int64_t length) noexcept nogil:
        cdef int32_t field
        call.stream = stream.id
        call.message.data = stream.message.data + stream.message.at
        call.message.length = <int32_t> length
        call.kind = call.note.length = 0
        for field in range(<int32_t> CALL_FIELDS):
            call.fields[field].data = NULL
            call.fields[field].length = 0
            if stream.field_at[field]:
                call.fields[field].data = stream.metadata.data + stream.field_at[field]
                call.fields[field].length = stream.field_length[field]

    cdef bint pass_call(self, Session *session, Stream *stream, int64_t length) noexcept nogil:
        """Give a message to the loop, the first one of a call with the call's metadata.

        The loop learns with it whether the peer sends no more.
        """
        cdef bint last = stream.closed and stream.message.at + length == stream.message.used
        cdef uint8_t[4] head
        cdef int64_t metadata = 0 if stream.at_loop else stream.metadata.used
        if not self.to_loop.has_room(4 + metadata + length):
            return False
        self.entry.used = 0
        put_i32(head, <int32_t> metadata)
        head[0] = last      # metadata is short
        if not append_bytes(&self.entry, head, 4):
            return False
        if metadata and not append_bytes(&self.entry, stream.metadata.data, metadata):
            return False
        if length and not append_bytes(
            &self.entry, stream.message.data + stream.message.at, length
        ):
            return False
        if not self.to_loop.post(
            entry_kinds.CALL, session.connection, self.entry.data, self.entry.used, stream.id,
            False,
        ):
            return False
        stream.at_loop, stream.told_closed = True, last
        release(&stream.metadata)       # a Telemetry is open for months
        return True

    cdef int answer(self, Http2Session *shown, const uint8_t *frames,
                    int64_t length) noexcept nogil:
        cdef Session *session = <Session *> shown
        cdef Stream *stream
        cdef Frame frame
        cdef Header header
        cdef Scratch scratch
        while next_frame(frames, length, &frame) == FRAME_WHOLE:
            frames += frame.size
            length -= frame.size
            if not make_room(&self.scratch, frame.header.length):
                return ENOMEM
            scratch.data, scratch.used = self.scratch.data, 0
            scratch.capacity = self.scratch.size
            if decode_header(&frame, &scratch, &header) != HEADER_OK:
                continue
            if not header.flag & FLAG_RESPONSE:
                continue        # a request to a client of remoting
            if header.opaque < 0:       # of a request that the loop has made for a call
                if not self.to_loop.post(
                    entry_kinds.FRAME, session.connection, frames - frame.size, frame.size, OF_CALL,
                    True,
                ):
                    return ENOMEM
                continue
            stream = stream_of(session, header.opaque)
            if stream == NULL or stream.ended or not stream.of_frames:
                continue        # the peer has cancelled the call
            if not self.write_answer(session, stream, &frame, &header):
                return ENOMEM
            end_call(session, stream, OK, NULL, 0)
        return 0

    cdef bint write_answer(self, Session *session, Stream *stream, const Frame *frame,
                           const Header *header) noexcept nogil:
        """Add the messages of a frame to a stream's answer."""
        cdef int64_t before = stream.answer.used
        cdef Call call
        call.stream, call.kind = stream.id, stream.kind
        call.note.data, call.note.length = stream.note, stream.note_length
        self.codec.told.used = 0
        if not self.codec.write(&call, frame, header, &stream.answer):
            return False
        session.shown.unsent += stream.answer.used - before
        return not self.codec.told.used or self.to_loop.post(
            entry_kinds.CALL_ANSWERED, session.connection, self.codec.told.data,
            self.codec.told.used, stream.id, True,
        )

    cdef bint awaits(self, const Http2Session *shown, int32_t id) noexcept nogil:
        cdef Stream *stream = stream_of(<Session *> shown, id)
        return stream != NULL and stream.of_frames and not stream.ended

    cdef int reply(self, Http2Session *shown, int32_t id, const uint8_t *data,
                   int64_t length) noexcept nogil:
        cdef Session *session = <Session *> shown
        cdef Stream *stream = stream_of(session, id)
        cdef uint8_t[PREFIX] prefix
        cdef int64_t text = data[2] << 8 | data[3]
        cdef int64_t size = length - REPLY_HEAD - text
        if stream == NULL or stream.ended:
            return 0
        if data[0] & REPLY_MESSAGE:
            put_prefix(prefix, size)
            if not append_bytes(&stream.answer, prefix, PREFIX):
                return ENOMEM
            session.shown.unsent += PREFIX
            if size and not append_bytes(&stream.answer, data + REPLY_HEAD + text, size):
                return ENOMEM
            session.shown.unsent += size
        if data[0] & REPLY_BY_FRAME:
            stream.of_frames = True
            if not keep_note(stream, data[1], data + REPLY_HEAD, <int32_t> text):
                return ENOMEM
        elif data[0] & REPLY_END:
            end_call(session, stream, data[1], data + REPLY_HEAD, text)
        else:
            send_answer(session, stream)
        return 0

    cdef int64_t next_bytes(self, Http2Session *shown, uint8_t *data, int64_t size) noexcept nogil:
        cdef Session *session = <Session *> shown
        cdef const uint8_t *chunk
        cdef int64_t used = 0
        cdef Py_ssize_t length
        while size - used >= CHUNK_MAX:
            length = nghttp2_session_mem_send(session.nghttp2, &chunk)
            if length < 0 or length > size - used:
                return -ENOMEM if length == NGHTTP2_ERR_NOMEM else -EPROTO
            if not length:
                break
            memcpy(data + used, chunk, length)
            used += length
        shown.finished = not (
            nghttp2_session_want_read(session.nghttp2)
            or nghttp2_session_want_write(session.nghttp2)
        )
        return used

    cdef void go_away(self, Http2Session *shown) noexcept nogil:
        cdef Session *session = <Session *> shown
        nghttp2_submit_goaway(
            session.nghttp2, NGHTTP2_FLAG_NONE,
            nghttp2_session_get_last_proc_stream_id(session.nghttp2), NGHTTP2_NO_ERROR, NULL, 0,
        )


# --- for tests

def exchange(NgHttp2Sessions sessions not None, Mailbox to_loop not None, bytes data not None):
    """What a new session makes of a peer's bytes: its own bytes, and the frames of calls."""
    cdef uint8_t[OUTPUT_SIZE] out
    cdef ByteBuffer frames
    cdef int64_t length = 0
    cdef Http2Session *session
    frames.data = NULL
    frames.at = frames.used = frames.size = 0
    sessions.to_loop = to_loop
    session = sessions.begin(0)
    if session == NULL:
        raise MemoryError()
    try:
        if not sessions.receive(session, data, len(data), 0, &frames):
            sessions.open_window(session)
            length = sessions.next_bytes(session, out, OUTPUT_SIZE)
        return out[:max(length, 0)], frames.data[:frames.used]
    finally:
        sessions.end(session)
        release(&frames)
