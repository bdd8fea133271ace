"""One connection, either end of it (RocketMQ: NettyRemotingAbstract, NettyDecoder).

Requests come from both ends. Answers are matched by opaque with the requests sent from this end;
only the response bit of the flag distinguishes an answer from a request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Any, cast

import msgspec

from congreve.errors import CongreveError
from congreve.limited_log import LimitedLog
from congreve.remoting.errors import (
    ConnectionLostError,
    FrameError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from congreve.remoting.messages.codes import CommandFlag, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.busy_poll import ShortPoll
from congreve.remoting.transport.frame_reader import FrameReader, FrameSink
from congreve.remoting.transport.read_buffer import ReadBuffer

logger = logging.getLogger(__name__)

COPIED_BODY_MAX = 64 * 1024
"""Bytes of a body that are copied behind their header, so that they leave as one piece."""

REMARK_MAX = 2048
"""Characters of an exception's text that an answer carries."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection."""

    unanswered_requests: int = 256
    """Requests of the peer whose handlers run; beyond it reading pauses."""
    awaited_answers: int = 65_535
    """Our requests that wait for an answer; one more raises TooManyRequestsError."""
    write_high_water: int = 1024 * 1024
    """Bytes that wait to be sent; beyond it reading pauses."""


class PeerLog:
    """Rate-limited log lines about what peers send; connections share it."""

    def __init__(self) -> None:
        self._unframeable = LimitedLog(logger)
        self._refused: dict[int, LimitedLog] = {}

    def unframeable(self, connection: "Connection", error: FrameError) -> None:
        """Log that a connection is closed because its bytes are no frames."""
        self._unframeable.warning("%r: %s: closing it", connection, error)

    def refused(self, connection: "Connection", code: int, error: CongreveError) -> None:
        """Log that the handler of this request code refused a request."""
        log = self._refused.setdefault(code, LimitedLog(logger))
        log.warning("%r: request code %d refused: %s", connection, code, error)


class Connection(FrameReader, asyncio.BufferedProtocol):
    """A connection to a peer. `sink` reads its bytes and calls `on_frame` or `on_command`.

    `before_request` may add ext fields to requests of this end (RocketMQ: RPCHook).
    """

    __slots__ = (
        "__weakref__",
        "_before_request",
        "_close_callback",
        "_expires_at",
        "_expiry",
        "_handlers",
        "_limits",
        "_loop",
        "_next_opaque",
        "_outgoing",
        "_peer_log",
        "_socket",
        "_tasks",
        "_transport",
        "_waiting",
        "_writable",
        "closed",
        "idle_scans",
        "peer",
        "peer_bytes",
    )

    def __init__(
        self,
        handlers: "Mapping[int, Handler]",
        sink: FrameSink,
        read_buffer: ReadBuffer,
        *,
        limits: ConnectionLimits,
        on_close: "Callable[[Connection], None]",
        peer_log: PeerLog,
        poll: ShortPoll | None = None,
        before_request: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        super().__init__(sink, read_buffer, poll)
        self._handlers = handlers
        self._limits = limits
        self._close_callback = on_close
        self._peer_log = peer_log
        self._before_request = before_request
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, tuple[float, asyncio.Future[RemotingCommand]]] = {}
        self._expiry: asyncio.Handle | None = None
        self._expires_at = 0.0  # uvloop's handle of a time that is now does not say it
        self._next_opaque = 0
        self._outgoing: list[bytes] = []
        self._writable: asyncio.Event | None = None
        self._socket = -1
        self.idle_scans = 0
        self.closed = False
        self.peer: tuple[str, int] = ("unknown", 0)
        self.peer_bytes = bytes(8)

    def __repr__(self) -> str:
        return f"<Connection {self}{' closed' if self.closed else ''}>"

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    # --- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water)
        if transport.get_extra_info("sslcontext") is None:
            self._socket = transport.get_extra_info("socket").fileno()
        peer = transport.get_extra_info("peername")
        if peer is None:
            # A health check that connected and was reset: the system has forgotten its address.
            logger.debug("a connection was reset before it was served")
            self._transport.abort()
            return
        self.peer = peer[:2]
        address = ip_address(self.peer[0].partition("%")[0]).packed
        self.peer_bytes = address + self.peer[1].to_bytes(4, "big")

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.drop_stash()
        self._outgoing.clear()
        if self._expiry is not None:
            self._expiry.cancel()
        waiting, self._waiting = self._waiting, {}
        reason = f"{self}: {exc or 'the connection ended'}"
        for _, future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionLostError(reason))
        if self._writable is not None:
            self._writable.set()
        self._close_callback(self)

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self._pause_reading()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        self._resume_reading()

    # --- reading

    @property
    def unread(self) -> int:
        """Bytes that wait until the peer reads them."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def on_unframeable(self, error: FrameError) -> None:
        """Close this connection, and no other."""
        self._peer_log.unframeable(self, error)
        self.close()

    def rest(self) -> None:
        """Stop reading what has arrived until the next turn of the loop."""
        if not self.reading_paused:
            self._pause_reading()
            self._loop.call_soon(self._resume_reading)

    def _pause_reading(self) -> None:
        transport = self._transport
        if not self.reading_paused and transport is not None and not transport.is_closing():
            self.reading_paused = True
            transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._writable is not None or self._transport is None or self._transport.is_closing():
            return
        if not self.reading_paused or len(self._tasks) * 2 > self._limits.unanswered_requests:
            return
        self.reading_paused = False
        self.read_stash()
        if not self.reading_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def on_frame(self, frame: bytes) -> None:
        """Take one whole frame. Raises FrameError where its header cannot be read."""
        self.on_command(RemotingCommand.decode(frame))

    def on_command(self, command: RemotingCommand) -> None:
        """Pass an answer to the call that waits for it, a request to its handler."""
        if not command.is_response:
            self._serve(command)
            return
        waiting = self._waiting.pop(command.opaque, None)
        if waiting is not None and not waiting[1].done():
            waiting[1].set_result(command)

    def _serve(self, request: RemotingCommand) -> None:
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            self.send(request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            answer = handler(request, self)
            if answer is None or isinstance(answer, RemotingCommand):
                self._answer(request, answer)
            else:
                self._serve_as_task(request, answer)
        except CongreveError as error:
            self._refuse(request, error)
        except Exception as error:
            logger.exception("%r: request code %d failed", self, request.code)
            self._answer_failure(request, error)

    def _serve_as_task(self, request: RemotingCommand, answer: "Awaitable[Answer]") -> None:
        task = self._loop.create_task(self._serve_later(request, answer))
        self._tasks.add(task)
        task.add_done_callback(self._served)
        if len(self._tasks) >= self._limits.unanswered_requests:
            self._pause_reading()

    async def _serve_later(self, request: RemotingCommand, answer: "Awaitable[Answer]") -> None:
        try:
            self._answer(request, await answer)
        except CongreveError as error:
            self._refuse(request, error)
        except Exception as error:
            logger.exception("%r: request code %d failed", self, request.code)
            self._answer_failure(request, error)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._resume_reading()

    def _answer(self, request: RemotingCommand, answer: "Answer") -> None:
        if answer is not None and not request.is_oneway:
            self.send(answer)

    def _refuse(self, request: RemotingCommand, error: CongreveError) -> None:
        self._peer_log.refused(self, request.code, error)
        self._answer_failure(request, error)

    def _answer_failure(self, request: RemotingCommand, error: Exception) -> None:
        if not request.is_oneway:
            text = f"{type(error).__name__}: {error}"[:REMARK_MAX]
            remark = text.encode("utf-8", "replace").decode()
            self.send(request.reply(ResponseCode.SYSTEM_ERROR, remark))

    # --- writing

    def send(self, command: RemotingCommand) -> None:
        """Send a command as it is; a closed connection drops it. Raises FrameError."""
        if len(command.body) > COPIED_BODY_MAX:
            self.writelines(command.encode_uncopied())
        else:
            self.write(command.encode())

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send bytes of whole frames; a closed connection drops them."""
        if not self.closed and self._transport is not None:
            self.active = True
            if self._outgoing:
                self._flush()
            self._transport.write(data)

    def writelines(self, pieces: "Iterable[bytes | bytearray | memoryview[Any]]") -> None:
        """Send bytes of whole frames, in pieces; a closed connection drops them."""
        if not self.closed and self._transport is not None:
            self.active = True
            if self._outgoing:
                self._flush()
            self._transport.writelines(pieces)

    def idle_socket(self) -> int:
        """The socket's descriptor, for direct writes of whole frames; -1 where none is possible.

        That is so while bytes wait to be sent, while it closes, and where it is encrypted.
        """
        transport = self._transport
        if self.closed or self._outgoing or transport is None or transport.is_closing():
            return -1
        if transport.get_write_buffer_size():
            return -1
        self.active = True
        return self._socket

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer; sets its opaque and flag. Raises FrameError."""
        command.flag = int(CommandFlag.ONEWAY)
        self._number(command)
        self._post(command.encode())

    @property
    def is_writable(self) -> bool:
        """Whether the peer reads what it is sent; call() does not check it."""
        return self._writable is None

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its answer; sets the request's opaque and flag.

        Raises RequestTimeoutError, ConnectionLostError, TooManyRequestsError or FrameError.
        """
        deadline = self._loop.time() + timeout_s
        if self._writable is not None:
            await self.wait_writable(timeout_s)
        future = self.call(command, deadline)
        try:
            return await future
        finally:
            self._waiting.pop(command.opaque, None)

    def call(self, command: RemotingCommand, deadline: float) -> "asyncio.Future[RemotingCommand]":
        """Send a request; its answer comes as a future. Sets the request's opaque and flag.

        Requests of one turn of the loop leave together. The future raises RequestTimeoutError when
        the loop's time passes `deadline`, and ConnectionLostError where the connection ends; it may
        be cancelled. Raises ConnectionLostError, TooManyRequestsError or FrameError.
        """
        if self.closed:
            raise ConnectionLostError(f"{self}: connection closed before the request was sent")
        if len(self._waiting) >= self._limits.awaited_answers:
            self._forget_cancelled()
        if len(self._waiting) >= self._limits.awaited_answers:
            raise TooManyRequestsError(f"{self}: {len(self._waiting)} requests without answer")
        opaque = self._number(command)
        command.flag = 0
        self._post(command.encode())
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._waiting[opaque] = (deadline, future)
        if self._expiry is None or deadline < self._expires_at:
            self._expire_by(deadline)
        return future

    def _forget_cancelled(self) -> None:
        for opaque, (_, future) in list(self._waiting.items()):
            if future.done():
                del self._waiting[opaque]

    def _post(self, frame: bytes) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)

    def _flush(self) -> None:
        """Write the posted frames, unless a later write has taken them along."""
        frames, self._outgoing = self._outgoing, []
        if frames:
            self.writelines(frames)

    def _number(self, command: RemotingCommand) -> int:
        if self._before_request is not None:
            self._before_request(command)
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & 0x7FFFFFFF
        command.opaque = opaque
        return opaque

    async def wait_writable(self, timeout_s: float) -> None:
        """Wait until the peer reads again. Raises RequestTimeoutError."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._writable is not None and not self.closed:
                    await self._writable.wait()
        except TimeoutError as error:
            raise RequestTimeoutError(
                f"{self}: the peer took no bytes for {timeout_s:g} s"
            ) from error

    def _expire_by(self, deadline: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires_at = deadline
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests that are past their deadline, with one timer for all of them."""
        self._expiry = None
        now = self._loop.time()
        for opaque, (deadline, future) in list(self._waiting.items()):
            if deadline <= now or future.done():
                del self._waiting[opaque]
                if not future.done():
                    future.set_exception(RequestTimeoutError(f"{self}: no answer in time"))
        if self._waiting:
            self._expire_by(min(deadline for deadline, _ in self._waiting.values()))

    # --- the end

    def close(self) -> None:
        """Close when all written bytes have been sent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    async def finish(self) -> None:
        """Wait for the handlers that still run."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel the handlers that still run."""
        for task in self._tasks:
            task.cancel()


Answer = RemotingCommand | None
Handler = Callable[[RemotingCommand, Connection], Answer | Awaitable[Answer]]
"""Serves a request. None: it gets no answer, or one that is sent later by other means."""
