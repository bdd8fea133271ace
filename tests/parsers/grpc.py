"""Parsers of HTTP/2 and of the messages of gRPC clients."""

from __future__ import annotations

from collections.abc import Iterator

from congreve.base.clock import Clock
from congreve.broker.accounts.account_table import AccountTable
from congreve.broker.grpc.access import Authorization
from congreve.broker.grpc.codecs.call_accounts import CallAccounts, producer_of
from congreve.broker.grpc.codecs.codec import GrpcCodec, frame_of
from congreve.broker.grpc.codecs.hashed_names import HashedNames
from congreve.broker.grpc.codecs.messages import ReceivedMessages
from congreve.broker.grpc.codecs.receives import ReceiveCodec
from congreve.broker.grpc.protocol.calls import SERVICE
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.broker.grpc.received import HIDDEN
from congreve.broker.grpc.sending import TransactionId
from congreve.records.message.properties import RESERVED_BY_GRPC
from congreve.remoting.http2.built import http2_refusal
from congreve.remoting.lanes.mailbox import Mailbox
from congreve.remoting.signatures.hmac_sha1 import load_sha1
from congreve.remoting.signatures.md5 import load_md5

from .parser import Parser

PATH = f"/{SERVICE}/SendMessage"
RESERVED = HashedNames(RESERVED_BY_GRPC)
MD5 = load_md5()
assert MD5 is not None
CODEC = GrpcCodec(
    RESERVED,
    template="TBW102",
    max_body_size=1 << 22,
    receives=ReceiveCodec(
        RESERVED,
        HashedNames(),
        ReceivedMessages(MD5, "broker-a", HIDDEN),
        Clock(),
        renewed_ms=60_000,
    ),
)
MESSAGE_MAX = 64 * 1024
HANDLE = b"100 1700000000123 30000 0 0 broker-a 3 104 123456"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, DATA, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 1, 0, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def field(number: int, value: bytes) -> bytes:
    """A field of bytes, shorter than 128."""
    return bytes((number << 3 | 2, len(value))) + value


def resource(number: int) -> bytes:
    """A field with a Resource."""
    return field(number, field(2, b"Name"))


def send_request() -> bytes:
    """A SendMessageRequest with an ordinary message."""
    system = field(1, b"tag") + field(2, b"key") + field(3, b"01" * 17) + field(8, b"host")
    system += b"\x28\x01\x30\x01" + field(7, b"\x08\x80\xe2\xcf\xaa\x06")
    message = field(1, field(2, b"Topic")) + field(2, field(1, b"k") + field(2, b"v"))
    return field(1, message + field(3, system) + field(4, b"body"))


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


def headers(**more: bytes) -> bytes:
    """A block of headers, none of them compressed."""
    found = {b":method": b"POST", b":scheme": b"http", b":path": PATH.encode()}
    found |= {b":authority": b"here:8081", b"content-type": b"application/grpc"}
    found |= {name.replace("_", "-").encode(): value for name, value in more.items()}
    return b"".join(
        b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
        for name, value in found.items()
    )


def sessions() -> Iterator[bytes]:
    """What peers send."""
    message = send_request()
    data = b"\0" + len(message).to_bytes(4, "big") + message
    block = headers(te=b"trailers", x_mq_client_id=b"a@1", grpc_timeout=b"3S")
    call = frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, data)
    settings = frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff")
    yield PREFACE + settings + call
    halves = frame(HEADERS, 0, 1, block[:50]) + frame(CONTINUATION, END_HEADERS, 1, block[50:])
    pieces = frame(DATA, 0, 1, data[:20]) + frame(DATA, END_STREAM, 1, data[20:])
    yield PREFACE + settings + halves + pieces
    yield PREFACE + settings + frame(PING, 0, 0, bytes(8)) + frame(WINDOW_UPDATE, 0, 0, b"\0\0\1\0")


def both_read(header: bytes) -> None:
    """Read a signature by compiled code and by the rules."""
    sha1 = load_sha1()
    assert sha1 is not None
    producer_of(CallAccounts(AccountTable(sha1)), header, b"now", b"Topic")
    Authorization.read(header.decode("utf-8", "replace"))


def parsers() -> Iterator[Parser]:
    """All of them; those of HTTP/2 if this build has it."""
    yield Parser(
        "sends of gRPC clients",
        ("broker/grpc/codecs/sends.pyx", "broker/grpc/codecs/codec.pyx"),
        lambda data: frame_of(CODEC, PATH, data, 1),
        [send_request()],
        (),
    )
    yield Parser(
        "acknowledgements of gRPC clients",
        ("broker/grpc/codecs/settles.pyx",),
        lambda data: frame_of(CODEC, f"/{SERVICE}/AckMessage", data, 1),
        [resource(1) + resource(2) + field(3, field(1, b"01") + field(2, HANDLE))],
        (),
    )
    yield Parser(
        "changes of gRPC clients",
        ("broker/grpc/codecs/settles.pyx",),
        lambda data: frame_of(CODEC, f"/{SERVICE}/ChangeInvisibleDuration", data, 1),
        [resource(1) + resource(2) + field(3, HANDLE) + field(4, b"\x08\x07")],
        (),
    )
    yield Parser(
        "the header `authorization`",
        ("broker/grpc/access.py", "broker/grpc/codecs/call_accounts.pyx"),
        both_read,
        [b"MQv2-HMAC-SHA1 Credential=a-key/region, SignedHeaders=x-mq-date-time, Signature=0a1b"],
        (CallRefusedError,),
    )
    yield Parser(
        "the id of a transaction",
        ("broker/grpc/sending.py",),
        lambda data: TransactionId.decode(data.decode("utf-8", "replace")),
        [b"0000000000000ABC0000000000000007"],
        (CallRefusedError,),
    )
    yield Parser(
        "receives of gRPC clients",
        ("broker/grpc/codecs/receives.pyx",),
        lambda data: frame_of(CODEC, f"/{SERVICE}/ReceiveMessage", data, 1),
        [
            resource(1)
            + field(2, resource(1))
            + field(3, b"\x08\1" + field(2, b"tag"))
            + b"\x20\x20"
            + field(5, b"\x08\x1e")
            + field(7, b"\x08\x05"),
        ],
        (),
    )
    if http2_refusal() is None:
        from congreve.remoting.http2.sessions import NgHttp2Sessions, exchange

        yield Parser(
            "HTTP/2",
            ("remoting/http2/sessions.pyx",),
            lambda data: exchange(
                NgHttp2Sessions(CODEC, message_max=MESSAGE_MAX), Mailbox(100, 1 << 20), data
            ),
            list(sessions()),
            (),
        )
