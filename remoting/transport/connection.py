"""One connection, either end of it (RocketMQ: NettyRemotingAbstract, NettyDecoder).

Requests come from both ends. Answers are matched by opaque with the requests sent from this end;
only the response bit of the flag distinguishes an answer from a request.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

import msgspec

from congreve.remoting.errors import (
    ConnectionLostError,
    FrameError,
    RequestTimeoutError,
)
from congreve.remoting.messages.codes import CommandFlag
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.dispatcher import Dispatcher
from congreve.remoting.transport.frame_reader import FrameReader
from congreve.remoting.transport.pending_requests import PendingRequests

if TYPE_CHECKING:
    from congreve.remoting.lanes.transport import FrameProtocol, LaneTransport

logger = logging.getLogger(__name__)

COPIED_BODY_MAX = 64 * 1024
"""Bytes of a body that are copied after their header, so that they leave as one piece."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one connection."""

    unanswered_requests: int = 256
    """Requests of the peer whose handlers run; beyond it reading pauses."""
    unanswered_bytes: int = 4 * 1024 * 1024
    """Bytes of these; beyond it reading pauses."""
    awaited_answers: int = 65_535
    """Our requests that wait for an answer; one more raises TooManyRequestsError."""
    write_high_water: int = 1024 * 1024
    """Bytes that wait to be sent; beyond it reading pauses."""


class Connection(FrameReader, asyncio.BufferedProtocol):
    """A connection to a peer.

    One that this side has opened reads its bytes itself, into the `read_buffer`; lanes read for
    those of a server.
    A connection that `on_open` refuses is closed at once.
    `before_request` may add ext fields to requests of this end (RocketMQ: RPCHook).
    `note_kept` is called with the sizes of requests and answers that may stay in memory.
    """

    __slots__ = (
        "__weakref__",
        "_before_request",
        "_close_callback",
        "_dispatcher",
        "_holds",
        "_kept_bytes",
        "_limits",
        "_loop",
        "_note_kept",
        "_on_open",
        "_outgoing",
        "_pending",
        "_rest_timer",
        "_tasks",
        "_transport",
        "_work_bytes",
        "_writable",
        "aborted",
        "closed",
        "heartbeat",
        "listener",
        "peer",
        "peer_bytes",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        read_buffer: memoryview | None = None,
        *,
        limits: ConnectionLimits,
        on_close: "Callable[[Connection], None]",
        on_open: "Callable[[Connection], bool]" = lambda _: True,
        before_request: Callable[[RemotingCommand], None] | None = None,
        note_kept: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(read_buffer)
        self._dispatcher = dispatcher
        self._limits = limits
        self._close_callback = on_close
        self._on_open = on_open
        self._before_request = before_request
        self._note_kept = note_kept
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._work_bytes = 0  # of requests whose handlers run
        self._kept_bytes = 0  # of answers that wait until the peer reads
        self._pending = PendingRequests(limits.awaited_answers, self._loop)
        self._outgoing: list[bytes] = []
        self._writable: asyncio.Event | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        self._holds = False
        self.closed = False
        self.aborted = False
        self.heartbeat: RemotingCommand | None = None
        """The peer's last one, where another server may have to get it."""
        self.listener = ""
        """The name of the listener that has accepted it; empty: the main one."""
        self.peer: tuple[str, int] = ("unknown", 0)
        self.peer_bytes = bytes(8)

    def __repr__(self) -> str:
        return f"<Connection {self}{' closed' if self.closed else ''}>"

    def __str__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    # --- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._limits.write_high_water)
        peer = transport.get_extra_info("peername")
        if peer is None:
            # A health check that connected and was reset: the system has forgotten its address.
            logger.debug("a connection was reset before it was served")
            self._transport.abort()
            return
        self.peer = peer[:2]
        self._pending.peer = str(self)
        address = ip_address(self.peer[0].partition("%")[0]).packed
        self.peer_bytes = address + self.peer[1].to_bytes(4, "big")
        if not self._on_open(self):
            self._transport.abort()
        elif self._holds:
            self._pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed:
            return
        self.closed = True
        self.drop_pending()
        self._outgoing.clear()
        self._pending.fail_all(str(exc or "the connection ended"))
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
        """Bytes that wait until the peer reads, and those of its requests at work or behind."""
        if self.aborted:
            return 0  # they are dropped in one of the next turns
        kept, transport = self._kept_bytes + self._work_bytes, self._transport
        if transport is not None:
            kept += transport.get_write_buffer_size() + transport.get_extra_info("held_bytes", 0)
        return kept

    def on_unframeable(self, error: FrameError) -> None:
        """Close this connection, and no other."""
        self._dispatcher.peer_log.unframeable(self, error)
        self.close()

    def rest(self) -> None:
        """Stop reading what has arrived until the next turn of the loop."""
        if not self.reading_paused:
            self._pause_reading()
            self._loop.call_soon(self._resume_reading)

    def rest_for(self, seconds: float) -> None:
        """Stop reading for this time."""
        if self._rest_timer is None:
            self._pause_reading()
            self._rest_timer = self._loop.call_later(seconds, self._end_rest)

    def hold(self) -> None:
        """Read no more; what the peer sends waits for leave_to()."""
        self._holds = True
        self._pause_reading()

    def leave_to(self, protocol: "FrameProtocol") -> asyncio.Transport:
        """Give what the peer sends to another protocol; the transport, which is paused.

        The other protocol tells this one when the connection has ended. Raises
        ConnectionLostError if it has already.
        """
        transport = self._transport
        if self.closed or transport is None or transport.is_closing():
            raise ConnectionLostError(f"{self}: the connection has ended")
        self.hold()
        transport.set_protocol(cast(asyncio.BaseProtocol, protocol))
        return transport

    def _end_rest(self) -> None:
        self._rest_timer = None
        self._resume_reading()

    def _pause_reading(self) -> None:
        transport = self._transport
        if not self.reading_paused and transport is not None and not transport.is_closing():
            self.reading_paused = True
            transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._writable is not None or self._transport is None or self._transport.is_closing():
            return
        if self._rest_timer is not None or self._holds:
            return
        limits = self._limits
        if not self.reading_paused or len(self._tasks) * 2 > limits.unanswered_requests:
            return
        if self._work_bytes * 2 > limits.unanswered_bytes:
            return
        self.reading_paused = False
        self.read_pending()
        if not self.reading_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def on_frame(self, frame: bytes) -> None:
        """Pass an answer to the call that waits for it, a request to its handler.

        Raises FrameError if the header cannot be read.
        """
        command = RemotingCommand.decode(frame)
        if command.is_response:
            self._pending.answered(command)
            return
        self.serve(command, len(frame))

    def serve(self, request: RemotingCommand, size: int) -> None:
        """Pass a request of `size` bytes to its handler."""
        work = self._dispatcher.serve(request, self)
        if work is not None:
            self._run(work, size)

    def _run(self, work: Coroutine[object, object, None], size: int) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        self._work_bytes += size
        self._note_kept(size)
        task.add_done_callback(partial(self._served, size))
        limits = self._limits
        if (
            len(self._tasks) >= limits.unanswered_requests
            or self._work_bytes >= limits.unanswered_bytes
        ):
            self._pause_reading()

    def _served(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._work_bytes -= size
        self._resume_reading()

    def ask_own(
        self, request: RemotingCommand, size: int, timeout_s: float
    ) -> "asyncio.Future[RemotingCommand]":
        """Serve a request that this end makes for a call of HTTP/2; the future is that of call().

        The lane gives its answer back, because answers may wait there. Raises
        ConnectionLostError or TooManyRequestsError.
        """
        if self.closed:
            raise ConnectionLostError(f"{self}: connection closed before the request was served")
        self._pending.check_room()
        request.opaque = ~self._pending.number()
        future = self._pending.add(request.opaque, self._loop.time() + timeout_s)
        self.serve(request, size)
        return future

    # --- writing

    def send(self, command: RemotingCommand) -> None:
        """Send a command as it is; a closed connection drops it. Raises FrameError."""
        if len(command.body) > COPIED_BODY_MAX:
            self.writelines(command.encode_uncopied())
        else:
            self.write(command.encode())

    async def send_when_read(self, command: RemotingCommand) -> None:
        """Send a command when the peer has read most of what it was sent. Raises FrameError."""
        if self._writable is not None:
            self._keep_late(len(command.body))
            try:
                await self.until_read()
            finally:
                self._keep_late(-len(command.body))
        self.send(command)

    async def until_read(self) -> None:
        """Return when the peer has read most of what it was sent, or is gone."""
        while self._writable is not None and not self.closed:
            await self._writable.wait()

    def _keep_late(self, size: int) -> None:
        self._kept_bytes += size
        self._note_kept(max(size, 0))

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        """Send bytes of whole frames; a closed connection drops them."""
        if not self.closed and self._transport is not None:
            if self._outgoing:
                self._flush()
            self._transport.write(data)
            self._note_kept(len(data))

    def tell_lane(self, kind: int, data: bytes) -> None:
        """Give the sink of this connection's lane an entry; a closed connection drops it."""
        if not self.closed:
            cast("LaneTransport", self._transport).tell_sink(kind, data)

    def reply(self, stream: int, data: bytes) -> None:
        """Answer a call of HTTP/2 (lanes/call.py); a closed connection drops it."""
        if not self.closed:
            cast("LaneTransport", self._transport).reply(stream, data)
            self._note_kept(len(data))

    def writelines(self, pieces: "Iterable[bytes | bytearray | memoryview[Any]]") -> None:
        """Send bytes of whole frames, in pieces; a closed connection drops them."""
        if not self.closed and self._transport is not None:
            if self._outgoing:
                self._flush()
            pieces = list(pieces)
            self._transport.writelines(pieces)
            self._note_kept(sum(map(len, pieces)))

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer; sets its opaque and flag. Raises FrameError."""
        command.flag = int(CommandFlag.ONEWAY)
        self._number(command)
        self._post(command.encode())

    @property
    def speaks_http2(self) -> bool:
        """Whether its requests are calls of gRPC; a lane has made them."""
        return self._transport is not None and bool(self._transport.get_extra_info("http2"))

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
            self._pending.forget(command.opaque)

    def call(self, command: RemotingCommand, deadline: float) -> "asyncio.Future[RemotingCommand]":
        """Send a request; its answer comes as a future. Sets the request's opaque and flag.

        Requests of one turn of the loop leave together. The future raises RequestTimeoutError when
        the loop's time passes `deadline`, and ConnectionLostError if the connection ends; it may
        be cancelled. Raises ConnectionLostError, TooManyRequestsError or FrameError.
        """
        if self.closed:
            raise ConnectionLostError(f"{self}: connection closed before the request was sent")
        self._pending.check_room()
        opaque = self._number(command)
        command.flag = 0
        self._post(command.encode())
        return self._pending.add(opaque, deadline)

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
        command.opaque = self._pending.number()
        return command.opaque

    async def wait_writable(self, timeout_s: float) -> None:
        """Wait until the peer reads again. Raises RequestTimeoutError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.until_read()
        except TimeoutError:
            raise RequestTimeoutError(
                f"{self}: the peer took no bytes for {timeout_s:g} s"
            ) from None

    # --- the end

    def leave_silent(self) -> None:
        """End the connection if a request has timed out, and no answer has come since it was sent.

        The connection may be half open, or the peer may have stopped. Other requests that wait on
        it raise ConnectionLostError.
        """
        if self._pending.is_silent and not self.closed:
            transport = self._transport
            self.connection_lost(TimeoutError("no answer in time"))  # at once, not in a later turn
            if transport is not None:
                transport.abort()

    def close(self) -> None:
        """Close when all written bytes have been sent."""
        self._flush()
        if self._transport is None:
            self.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; a transport that comes later is closed, too."""
        self.aborted = True
        if self._transport is None:
            # asyncio gives none to a connection that it accepted when its server closed.
            self.connection_lost(None)
        else:
            self._transport.abort()

    @property
    def at_work(self) -> int:
        """The peer's requests whose handlers run."""
        return len(self._tasks)

    async def finish(self) -> None:
        """Wait for the handlers that still run."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cancel(self) -> None:
        """Cancel the handlers that still run."""
        for task in self._tasks:
            task.cancel()
