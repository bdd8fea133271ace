"""The calls that compiled code reads and writes, by their methods; the loop serves all others."""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, strlen

from congreve.base.byte_buffer cimport ByteBuffer, release
from congreve.base.slices cimport Scratch, Slice, slice_of
from congreve.broker.grpc.codecs.call_accounts cimport CallAccounts
from congreve.broker.grpc.codecs.call_text cimport is_blank
from congreve.broker.grpc.codecs.hashed_names cimport HashedNames
from congreve.records.byte_compare cimport is_text
from congreve.remoting.lanes.http2 cimport PREFIX, Call, CallField
from congreve.remoting.wire.frame cimport (
    FRAME_WHOLE,
    HEADER_OK,
    Frame,
    Header,
    decode_header,
    next_frame,
)

SEND_KIND = SEND
"""The kind of a note that is the id of a sent message."""
ACK_KIND = ACK
CHANGE_KIND = CHANGE
RECEIVE_KIND = RECEIVE

cdef const char *SERVICE = b"/apache.rocketmq.v2.MessagingService/"


@cython.final
cdef class GrpcCodec(CallCodec):
    """The calls of gRPC clients that lanes serve (RocketMQ 5: GrpcMessagingApplication).

    `reserved` are the names of properties, topics and groups that need the rules in Python, as
    larger bodies than `max_body_size` bytes do. The topic `template` is that of topics which a
    first message creates. `accounts` is None without access control. Without `receives` the loop
    serves ReceiveMessage.
    """

    def __init__(self, HashedNames reserved not None, *, str template not None,
                 int64_t max_body_size, CallAccounts accounts=None,
                 ReceiveCodec receives=None):
        self.receives = receives
        self.sends = SendCodec(
            reserved, template=template, max_body_size=max_body_size, accounts=accounts
        )
        self.settles = SettleCodec(reserved, accounts=accounts)

    cdef bint read(self, Call *call, ByteBuffer *frames) noexcept nogil:
        cdef Slice path = call.fields[<int> CallField.PATH]
        cdef int32_t skipped = <int32_t> strlen(SERVICE)
        if path.length < skipped or memcmp(path.data, SERVICE, skipped) or is_blank(
            call.fields[<int> CallField.CLIENT_ID]
        ):
            return False
        path.data += skipped
        path.length -= skipped
        if is_text(path.data, path.length, b"SendMessage"):
            call.kind = SEND
            return self.sends.read(call, frames)
        if is_text(path.data, path.length, b"AckMessage"):
            call.kind = ACK
            return self.settles.read_ack(call, frames)
        if is_text(path.data, path.length, b"ChangeInvisibleDuration"):
            call.kind = CHANGE
            return self.settles.read_change(call, frames)
        if is_text(path.data, path.length, b"ReceiveMessage") and self.receives is not None:
            call.kind = RECEIVE
            return self.receives.read(call, frames)
        return False

    cdef bint write(self, const Call *call, const Frame *frame, const Header *header,
                    ByteBuffer *messages) noexcept nogil:
        if call.kind == ACK:
            return self.settles.write_ack(call, header, messages)
        if call.kind == CHANGE:
            return self.settles.write_change(call, header, messages)
        if call.kind == RECEIVE:
            return self.receives.write(call, frame, header, messages, &self.told)
        return self.sends.write(call, frame, header, messages)


# --- for tests

def frame_of(GrpcCodec codec not None, str path, bytes message not None, int stream,
             str timeout=""):
    """The frame of a call, or None if the loop serves it; `timeout` is the header grpc-timeout."""
    cdef Call call
    cdef ByteBuffer frames
    cdef int field
    cdef bytes encoded = path.encode(), limit = timeout.encode()
    frames.data = NULL
    frames.at = frames.used = frames.size = 0
    for field in range(<int> CallField.CALL_FIELDS):
        call.fields[field].data = NULL
        call.fields[field].length = 0
    call.fields[<int> CallField.PATH] = slice_of(encoded)
    call.fields[<int> CallField.CLIENT_ID] = slice_of(encoded)
    call.fields[<int> CallField.TIMEOUT] = slice_of(limit)
    call.stream, call.message = stream, slice_of(message)
    call.note.length = 0
    try:
        return frames.data[:frames.used] if codec.read(&call, &frames) else None
    finally:
        release(&frames)


def messages_of(GrpcCodec codec not None, bytes frame not None, int kind, bytes note not None):
    """The messages of the call that a frame answers, and what the codec tells the loop."""
    cdef Call call
    cdef ByteBuffer messages
    cdef Frame found
    cdef Header header
    cdef Scratch scratch
    cdef int64_t at = 0
    cdef int64_t length
    cdef list split = []
    messages.data = NULL
    messages.at = messages.used = messages.size = 0
    call.kind, call.note = kind, slice_of(note)
    codec.told.used = 0
    scratch.capacity, scratch.used = len(frame), 0
    scratch.data = <unsigned char *> malloc(scratch.capacity)
    try:
        if scratch.data == NULL:
            raise MemoryError()
        if next_frame(frame, len(frame), &found) != FRAME_WHOLE or (
            decode_header(&found, &scratch, &header) != HEADER_OK
        ):
            raise ValueError("not a frame")
        if not codec.write(&call, &found, &header, &messages):
            raise MemoryError()
        while at < messages.used:
            length = int.from_bytes(messages.data[at + 1:at + PREFIX], "big")
            at += PREFIX
            split.append(messages.data[at:at + length])
            at += length
        return split, codec.told.data[:codec.told.used]
    finally:
        free(scratch.data)
        release(&messages)
