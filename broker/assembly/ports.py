"""The ports on which a broker serves clients."""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from congreve.broker.accounts.access_control import AccessControl
from congreve.broker.accounts.requests import NOT_ON_VIP
from congreve.broker.config import VIP_DISTANCE, BrokerConfig, ip_of
from congreve.broker.listeners import check_grpc, check_port, with_ports
from congreve.broker.managers import Managers
from congreve.broker.requests.settings import host_bytes
from congreve.broker.serving.message_paths import MessagePaths
from congreve.broker.tls import certificates_of_grpc, server_certificates
from congreve.remoting.messages.addresses import host_port
from congreve.remoting.messages.listeners import parse_addresses
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler
from congreve.remoting.transport.guard import ConnectionGuard
from congreve.remoting.transport.server import RemotingServer, ServerLimits

if TYPE_CHECKING:
    from congreve.broker.grpc.door import GrpcDoor

_VIP = "VIP port"
_GRPC = "gRPC port"
"""The names of their listeners, which no listener of broker.conf can have."""


class Ports:
    """The broker's port, its VIP port and its listeners, which share lanes and limits.

    (RocketMQ: remotingServer and fastRemotingServer of BrokerController.)
    """

    def __init__(self, config: BrokerConfig, managers: Managers) -> None:
        self._config = config
        self._managers = managers
        self.guard = ConnectionGuard(config.limits.shared)
        """The limits of all connections."""
        self.certificates = server_certificates(config)
        self.server: RemotingServer | None = None
        self._paths: MessagePaths | None = None
        self._grpc: GrpcDoor | None = None

    def check(self) -> None:
        """Raises ConfigError for an address, BrokerError for ports that cannot be listened on."""
        config = self._config
        ip_of(config.broker_ip1)
        for key, port in config.client_ports.items():
            check_port(config.bind_address, port, key)
        if config.serves_grpc:
            check_grpc()

    async def listen(
        self,
        paths: MessagePaths,
        handlers: Mapping[int, Handler],
        control: AccessControl | None,
        *,
        compiled: bool,
    ) -> None:
        """Serve; without `compiled`, all frames go to the handlers. Raises RemotingError."""
        config = self._config
        self._paths = paths
        listeners = {
            name: host_port(address) for name, address in parse_addresses(config.listeners).items()
        }
        if config.serves_grpc:
            if self.certificates is None:
                self.certificates = certificates_of_grpc(config, self._managers.store.files)
            self._grpc = self._new_door(control)
            self.guard.open_calls = self._grpc.open_calls
            listeners[_GRPC] = config.bind_address, config.grpc_port
        if config.listen_port:
            paths.leave_to_handlers(1 + len(listeners))
            listeners[_VIP] = config.bind_address, config.listen_port - VIP_DISTANCE
        if not compiled:
            paths.leave_to_handlers(*range(2 + len(listeners)))  # and of those adopted
        vip = {code: handler for code, handler in handlers.items() if code not in NOT_ON_VIP}
        self.server = RemotingServer(
            handlers,
            host=config.bind_address,
            port=config.listen_port,
            listeners=listeners,
            handlers_of={_VIP: vip},
            lane_sinks=paths.lanes,
            lane_entry=paths.lane_entry,
            limits=ServerLimits(
                idle_timeout_s=config.server_channel_max_idle_time_seconds,
                poll_s=config.poll_micros_after_request / 1e6,
            ),
            guard=self.guard,
            on_close=self._connection_closed,
            certificates=self.certificates,
            http2=None if self._grpc is None else self._grpc.lane_sessions,
            call=None if self._grpc is None else self._grpc.calls.entry,
        )
        await self.server.start()
        if self._grpc is not None:
            config.grpc_port = self.server.ports[_GRPC]
        config.advertised_listeners = with_ports(config.advertised, self.server.ports)
        if config.listen_port == 0:
            config.listen_port = self.server.port
            paths.set_store_host(host_bytes(config.store_host))

    async def lanes_passed(self) -> None:
        """Wait until every lane has finished what it was doing."""
        if self.server is not None:
            await self.server.lanes_passed()

    def adopt(self, peer: socket.socket, client: tuple[str, int]) -> None:
        """Serve an open socket as the connection of a client; it is the broker's then.

        Raises ConnectionError unless the broker serves clients.
        """
        if self.server is None:
            raise ConnectionError("this broker serves no clients")
        self.server.adopt(peer, client)

    async def hold(self) -> None:
        """Take no more requests: they wait in their connections. Those that wait here for messages
        are answered, and calls of gRPC end."""
        if self.server is None or self._paths is None:
            return
        await self.server.hold()
        self._paths.recheck_pulls()
        for connection in tuple(self.server.connections):
            if connection.speaks_http2:
                connection.close()
        await self.lanes_passed()

    @property
    def unanswered(self) -> int:
        """Requests at work, and answers that wait for the disk or for slaves."""
        if self.server is None or self._paths is None:
            return 0
        at_work = sum(connection.at_work for connection in self.server.connections)
        return at_work + self._paths.waiting()[0]

    async def leave(self) -> RemotingServer | None:
        """Give away the server with its connections, which are held; stop() leaves it alone.

        All that comes goes to the event loop. Another broker may listen at the same ports.
        """
        server, self.server = self.server, None
        if server is None or self._paths is None:
            return None
        self._paths.leave_to_handlers(*range(len(server.ports) + 1))
        self._paths.dismiss_pulls()
        await server.lanes_passed()
        server.leave_addresses()
        return server

    async def stop(self) -> None:
        """Answer the pulls that wait, and close all connections. Idempotent."""
        if self.server is not None and self._paths is not None:
            await self.server.stop(self._paths.dismiss_pulls)
            self.server = None
        if self._grpc is not None:
            self._grpc.stop()

    def _new_door(self, control: AccessControl | None) -> "GrpcDoor":
        # A broker without gRPC needs no protobuf.
        from congreve.broker.grpc.door import GrpcDoor

        managers = self._managers
        announced = parse_addresses(self._config.advertised_listeners)
        return GrpcDoor(
            self._config,
            managers.metadata,
            managers.members,
            managers.pops,
            managers.lites,
            managers.clock,
            control,
            announced,
        )

    def _connection_closed(self, connection: Connection) -> None:
        if self._grpc is not None:
            self._grpc.connection_closed(connection)
        self._managers.members.connection_closed(connection)
