"""How a slave connects to its master's HA port: TCP, TLS, its login."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from congreve.broker.replication.login import HaLogin
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.remoting.messages.addresses import host_port
from congreve.remoting.tls.relay import TlsRelay, connect_relay

CONNECT_S = 3.0
"""The time of each step of a connection, in seconds."""


class HaConnector:
    """Opens connections to HA ports, one after the other (RocketMQ: HAClient.connectMaster)."""

    def __init__(
        self, client_ssl: Callable[[], ssl.SSLContext | None], login: HaLogin | None
    ) -> None:
        self._client_ssl = client_ssl
        self._login = login
        self._relay: TlsRelay | None = None

    def why(self, error: Exception) -> str:
        """The error of a connection, and that of TLS below it."""
        below = None if self._relay is None else self._relay.error
        return str(error) if below is None else f"{error} (TLS: {below})"

    async def log_in(self, master: socket.socket) -> None:
        """Log in, if this broker has an account. Raises ReplicationError, OSError."""
        if self._login is not None:
            await self._login.log_in(master)

    async def connect(self, address: str) -> socket.socket:
        """A connection to the HA port: its plain end, if that port has TLS."""
        self._relay = None
        context = await asyncio.to_thread(self._client_ssl)
        peer = await self._connect_plain(address)
        if context is None:
            return peer
        host, _ = host_port(address)
        try:
            self._relay, plain = await connect_relay(context, peer, host, CONNECT_S)
        except OSError as error:
            raise ReplicationError(
                f"the TLS handshake failed: {error}; the master must have haTlsEnable=true, too"
            ) from error
        return plain

    async def _connect_plain(self, address: str) -> socket.socket:
        host, port = host_port(address)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            try:
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except UnicodeError as error:  # a label that is empty or too long
                raise ReplicationError(f"{host!r} is not the name of a host") from error
            family, kind, protocol, _, target = found[0]
            peer = socket.socket(family, kind, protocol)
            try:
                peer.setblocking(False)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(peer, target)
            except BaseException:
                peer.close()
                raise
        return peer
