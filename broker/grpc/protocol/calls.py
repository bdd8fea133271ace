"""The calls that the event loop serves (RocketMQ 5: GrpcMessagingApplication)."""

import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from google.protobuf.message import DecodeError

from congreve.base.errors import CongreveError
from congreve.broker.accounts.accounts import Need
from congreve.broker.errors import RefusedError
from congreve.broker.grpc.codecs.codes import Code, code_of
from congreve.broker.grpc.protocol.errors import CallRefusedError
from congreve.remoting.errors import RemotingError
from congreve.remoting.lanes.call import (
    CallField,
    GrpcStatus,
    read_call,
    reply_by_frame,
    reply_end,
    reply_message,
)
from congreve.remoting.lanes.handle import Kind
from congreve.remoting.lanes.transport import FrameProtocol
from congreve.remoting.loop.background import BackgroundJobs
from congreve.remoting.messages.codes import LanguageCode, SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY
from congreve.remoting.transport.connection import Connection

logger = logging.getLogger(__name__)

SERVICE = "apache.rocketmq.v2.MessagingService"
ASK_S = 15.0
"""Seconds for the answer to a request that is made for a call."""
REQUEST_MORE = 1024
"""Bytes of a request beside its body, about."""
_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS_NS = {
    **{"H": 3_600_000_000_000, "M": 60_000_000_000, "S": 1_000_000_000},
    **{"m": 1_000_000, "u": 1_000, "n": 1},
}


class GrpcCall:
    """One call of a client; `fields` are what it says beside its messages.

    `forget` is called when this side ends the call.
    """

    __slots__ = ("_forget", "access_key", "cancelled", "connection", "fields", "stream")

    def __init__(
        self,
        connection: Connection,
        stream: int,
        fields: Mapping[CallField, str],
        forget: "Callable[[GrpcCall], None]" = lambda _: None,
    ) -> None:
        self.connection = connection
        self.stream = stream
        self.fields = fields
        self.cancelled = False
        """Whether the client waits for no answer any more."""
        self.access_key: str | None = None
        """The account that has signed the call; None without accounts, or from a white address."""
        self._forget = forget

    @property
    def client_id(self) -> str:
        """The client's id; empty if it gave none."""
        return self.fields.get(CallField.CLIENT_ID, "")

    @property
    def timeout_ms(self) -> int | None:
        """How long the client waits for the answer; None without a limit."""
        found = _TIMEOUT.fullmatch(self.fields.get(CallField.TIMEOUT, ""))
        return None if found is None else int(found[1]) * _UNITS_NS[found[2]] // 1_000_000

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", timeout_s: float = ASK_S
    ) -> RemotingCommand:
        """The answer to a request of remoting, which the broker serves for this call.

        Raises RequestTimeoutError or ConnectionLostError.
        """
        request = RemotingCommand(
            code=code,
            language=LanguageCode.OTHER,
            ext_fields=fields,
            body=body,
            serialize_type=SerializeType.ROCKETMQ,
        )
        self.sign(request)
        return await self.connection.ask_own(request, len(body) + REQUEST_MORE, timeout_s)

    def sign(self, request: RemotingCommand) -> None:
        """Let a request that is made for the call have the call's account."""
        if self.access_key is not None:
            request.ext_fields[ACCESS_KEY] = self.access_key

    def reply(self, message: bytes, *, last: bool) -> None:
        """Send a message; the `last` one ends the call."""
        self.connection.reply(self.stream, reply_message(message, last=last))
        if last:
            self._forget(self)

    def end(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call."""
        self.connection.reply(self.stream, reply_end(status, text))
        self._forget(self)

    def answered_by_frame(self, kind: int, note: bytes) -> None:
        """Let the answer to a request with this stream as its opaque answer the call; the codec
        writes the message by kind and note."""
        self.connection.reply(self.stream, reply_by_frame(kind, note))


Method = Callable[[GrpcCall, bytes], None]
"""Takes one message of a call."""


class Streaming(NamedTuple):
    """A method with any number of messages each way; `ended` is called once for each call."""

    serve: Method
    ended: Callable[[GrpcCall], None]


Serve = Callable[[GrpcCall, Any], Any]
Needs = Callable[[Any], Iterable[Need]]


class Unary(NamedTuple):
    """A method with one message each way.

    `serve` returns the response, or a coroutine that does; None if a frame will answer. It may
    reply with other messages before. What it raises becomes the status of a response of this class.
    `needs` are the permissions for a request.
    """

    request: Any
    response: Any
    serve: Serve
    needs: Needs


class Admits(Protocol):
    """Sets the access key of a call that the accounts permit. Raises CallRefusedError."""

    def __call__(self, call: GrpcCall, needs: Iterable[Need]) -> None: ...


class GrpcCalls:
    """Serves calls by their paths, and forgets them with their connections.

    A client gets a status in its response for whatever is wrong with the request, and a status of
    gRPC for what is wrong with the call. `methods` has the paths as keys.
    (RocketMQ 5: GrpcMessagingApplication, ResponseWriter.)
    """

    def __init__(
        self,
        methods: Mapping[str, Unary | Streaming],
        admit: Admits,
        answered: Callable[[bytes], None],
    ) -> None:
        self._answered = answered
        self._admit = admit
        self._jobs = BackgroundJobs("a call of gRPC", logger)
        self._methods = methods
        self._open: dict[Connection, dict[int, tuple[GrpcCall, Streaming | Unary]]] = {}

    @property
    def open_calls(self) -> int:
        """Calls with further messages, and those whose answers are not complete."""
        return sum(map(len, self._open.values()))

    def entry(self, protocol: FrameProtocol, kind: Kind, data: bytes, stream: int) -> None:
        """Take what a lane says about a call (lanes/call.py)."""
        connection = cast(Connection, protocol)
        if kind == Kind.CALL_ANSWERED:
            self._answered(data)
            return
        if kind != Kind.CALL:
            self._ended(connection, stream, closed=kind == Kind.CALL_CLOSED)
            return
        fields, message, is_last = read_call(data)
        known = self._open.get(connection, {}).get(stream)
        if known is not None:
            if isinstance(known[1], Streaming):
                known[1].serve(known[0], message)
        else:
            self._begin(GrpcCall(connection, stream, fields, self._forget), message)
        if is_last:
            self._ended(connection, stream, closed=True)

    def connection_closed(self, connection: Connection) -> None:
        """End all calls of a connection."""
        for call, method in self._open.pop(connection, {}).values():
            call.cancelled = True
            if isinstance(method, Streaming):
                method.ended(call)

    def _begin(self, call: GrpcCall, message: bytes) -> None:
        path = call.fields.get(CallField.PATH, "")
        method = self._methods.get(path)
        if method is None:
            call.end(GrpcStatus.UNIMPLEMENTED, f"Method {path.lstrip('/')} is unimplemented")
        elif isinstance(method, Streaming):
            self._open.setdefault(call.connection, {})[call.stream] = call, method
            method.serve(call, message)
        else:
            self._serve(call, method, message)

    def _serve(self, call: GrpcCall, method: Unary, message: bytes) -> None:
        try:
            request = method.request.FromString(message)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            call.end(GrpcStatus.INVALID_ARGUMENT, f"the message is not a {name}")
            return
        try:
            if not call.client_id.strip():
                raise CallRefusedError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
            self._admit(call, method.needs(request))
            response = method.serve(call, request)
        except _REFUSALS as error:
            response = _refusal(method, error)
        except Exception:
            logger.exception("%r: %s failed", call.connection, call.fields.get(CallField.PATH))
            response = _failure(method)
        if isinstance(response, Coroutine):
            self._open.setdefault(call.connection, {})[call.stream] = call, method
            self._jobs.begin(self._serve_later(call, method, response))
        elif response is not None:
            call.reply(response.SerializeToString(), last=True)

    async def _serve_later(
        self, call: GrpcCall, method: Unary, answer: Coroutine[Any, Any, Any]
    ) -> None:
        try:
            response = await answer
        except _REFUSALS as error:
            response = _refusal(method, error)
        except Exception:
            logger.exception("%r: %s failed", call.connection, call.fields.get(CallField.PATH))
            response = _failure(method)
        if not call.cancelled:
            call.reply(response.SerializeToString(), last=True)

    def _ended(self, connection: Connection, stream: int, *, closed: bool) -> None:
        """The client sends no more, or has cancelled the call."""
        found = self._open.get(connection, {}).get(stream)
        if found is None or (closed and isinstance(found[1], Unary)):
            return
        found[0].cancelled = not closed
        self._forget(found[0])
        if closed:
            found[0].end()

    def _forget(self, call: GrpcCall) -> None:
        calls = self._open.get(call.connection, {})
        found = calls.pop(call.stream, None)
        if found is None:
            return
        if not calls:
            del self._open[call.connection]
        if isinstance(found[1], Streaming):
            found[1].ended(call)


_REFUSALS = CallRefusedError, RefusedError, RemotingError


def _refusal(method: Unary, error: CongreveError) -> Any:
    code = Code.INTERNAL_SERVER_ERROR
    if isinstance(error, CallRefusedError):
        code = error.code
    elif isinstance(error, RefusedError):
        code = Code(code_of(error.code))
    return _with_status(method, code, str(error))


def _failure(method: Unary) -> Any:
    return _with_status(method, Code.INTERNAL_SERVER_ERROR, "the broker's log has the reason")


def _with_status(method: Unary, code: Code, text: str) -> Any:
    response = method.response()
    response.status.code, response.status.message = code, text
    return response
