"""After a transfer: the requests that clients still send to the old master go to the new one.

A client learns of the new master at its next poll of routes. Until then its connection to the old
one stays open, and gets a connection of its own to the new master's HA port, logged in like a
slave's. That carries the client's address, then its requests and the answers as they are. The new
master serves it as a connection of the client, and checks each request as it checks all others. A
connection that was handed on is closed at the next transfer: there is one hop at most.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from congreve.base.errors import CongreveError
from congreve.base.limited_log import LimitedLog
from congreve.broker.accounts.requests import OF_ADMINISTRATORS
from congreve.broker.group.client_processor import is_heartbeat
from congreve.broker.ha_frames import HAND_OVER, HAND_OVER_ACCEPTED, REPAIR
from congreve.broker.hand_over.greeting import HandOverError, client_frame, receive
from congreve.broker.replication.ha_connector import CONNECT_S, HaConnector
from congreve.remoting.errors import FrameError
from congreve.remoting.loop.background import BackgroundJobs, BackgroundTask
from congreve.remoting.messages.codes import CommandFlag
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.server import ADOPTED, RemotingServer

WITHOUT_MASTER_S = 15.0
"""How long requests wait for a new master, in seconds."""
LEAST_S = 60.0
"""How long a hand-over lasts at least: two polls of routes by Java's clients, in seconds."""
MOST_S = 600.0
"""How long it lasts at most, in seconds."""
QUIET_S = 10.0
"""It ends when for so long no client has sent more than heartbeats, in seconds."""
LOOK_S = 0.25
RETRY_S = 0.05
"""The pause after a new master that does not answer yet, in seconds."""
DIALS_MAX = 8
"""Connections to the new master's HA port that are opened at the same time."""
BUFFER_MAX = 1 << 20
"""Bytes of requests that wait until the new master reads; beyond it the client is not read."""

logger = logging.getLogger(__name__)


class HandOver:
    """Hands on what clients send on the connections of a server that is held.

    It owns the server. Each call of `connector` gives a HaConnector with this broker's login.
    (RocketMQ: none.)
    """

    def __init__(
        self,
        server: RemotingServer,
        connector: Callable[[], HaConnector],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handed_on = 0
        """Requests so far, without heartbeats."""
        self._server = server
        self._connector = connector
        self._now = monotonic
        self._begun = self._last = monotonic()
        self._master = ""
        self._changed = asyncio.Event()
        self._known: set[Connection] = set()
        self._dialing = asyncio.Semaphore(DIALS_MAX)
        self._jobs = BackgroundJobs("a connection that is handed on", logger)
        self._work = BackgroundTask("the hand-over", self._run, logger)
        self._log = LimitedLog(logger)

    def start(self) -> None:
        """Begin, on the running loop."""
        self._work.start()

    async def stop(self) -> None:
        """Close all connections; idempotent."""
        await self._work.stop()
        self._jobs.cancel()
        await self._jobs.wait()
        await self._server.stop()

    def lead_to(self, master: str) -> None:
        """Hand requests on to the HA port of this master, `host:port`."""
        if master != self._master:
            self._master = master
            self._changed.set()

    @property
    def is_over(self) -> bool:
        """Whether no client needs it any more."""
        lasts = self._now() - self._begun
        if not self._server.connections or lasts > MOST_S:
            return True
        if not self._master and lasts > WITHOUT_MASTER_S:
            return True
        return lasts > LEAST_S and self.quiet_s > QUIET_S

    @property
    def quiet_s(self) -> float:
        """Seconds without a request."""
        return self._now() - self._last

    def takes(self, frame: bytes) -> bool:
        """Count a request; False for an administrator's, which is for this broker."""
        try:
            request = RemotingCommand.decode(frame)
        except FrameError:
            return True  # the new master refuses it
        if request.code in OF_ADMINISTRATORS:
            return False
        if not is_heartbeat(request):
            self.handed_on += 1
            self._last = self._now()
        return True

    async def _run(self) -> None:
        while not self.is_over:
            if self._master:
                for connection in self._server.connections - self._known:
                    self._known.add(connection)
                    self._jobs.begin(self._hand_on(connection))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
        logger.warning("%d requests were handed on to the new master", self.handed_on)
        await self._server.stop()

    async def _hand_on(self, connection: Connection) -> None:
        if connection.listener == ADOPTED:
            connection.abort()  # its requests have made their hop
            return
        while not connection.closed:
            try:
                async with self._dialing:
                    peer = await self._dial(connection.peer)
                await Relayed(connection, self.takes).begin(peer)
                return
            except (OSError, CongreveError) as error:
                if self._now() - self._begun > WITHOUT_MASTER_S:
                    self._log.warning("no requests for %s: %s", self._master, error or "no answer")
                    connection.abort()
            await asyncio.sleep(RETRY_S)

    async def _dial(self, client: tuple[str, int]) -> socket.socket:
        """A connection to the new master for this client. Raises OSError, CongreveError."""
        connector = self._connector()
        peer = await connector.connect(self._master)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(peer, REPAIR)
            await connector.log_in(peer)
            await loop.sock_sendall(peer, HAND_OVER + client_frame(client))
            async with asyncio.timeout(CONNECT_S):
                answer = await receive(peer, len(HAND_OVER_ACCEPTED))
            if answer != HAND_OVER_ACCEPTED:
                raise HandOverError(f"the new master answers {answer!r}: is it an earlier version?")
        except BaseException:
            peer.close()
            raise
        return peer


class Relayed:
    """One client's connection and that to the new master: either end reads as fast as the other.

    When one ends, so does the other, and both at a request that `takes` refuses: its sender
    connects again, to the slave. (RocketMQ: none.)
    """

    def __init__(self, connection: Connection, takes: Callable[[bytes], bool]) -> None:
        self._connection = connection
        self._takes = takes
        self._client: asyncio.Transport | None = None
        self._master: asyncio.Transport | None = None

    async def begin(self, peer: socket.socket) -> None:
        """Hand on what the client sends; `peer` is its own then. Raises CongreveError, OSError."""
        try:
            self._client = client = self._connection.leave_to(self)
            loop = asyncio.get_running_loop()
            end = _MasterEnd(client)
            self._master, _ = await loop.create_connection(lambda: end, sock=peer)
        except BaseException:
            peer.close()
            raise
        self._master.set_write_buffer_limits(high=BUFFER_MAX)
        if self._connection.closed:
            self._master.abort()
        heartbeat = self._connection.heartbeat
        if heartbeat is not None:  # without it the new master would not know the client's groups
            heartbeat.flag |= CommandFlag.ONEWAY
            self._master.write(heartbeat.encode())
        client.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open already."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._connection.connection_lost(exc)
        if self._master is not None:
            self._master.close()

    def take_frame(self, frame: bytes) -> None:
        """Hand a request on."""
        if not self._takes(frame):
            self._connection.close()
        elif self._master is not None:
            self._master.write(frame)

    def pause_writing(self) -> None:
        """The client does not read."""
        if self._master is not None:
            self._master.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._master is not None:
            self._master.resume_reading()


class _MasterEnd(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def pause_writing(self) -> None:
        self._client.pause_reading()

    def resume_writing(self) -> None:
        self._client.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()
