"""A client as its heartbeats describe it (RocketMQ: ClientChannelInfo)."""

from typing import Protocol

import msgspec

from congreve.remoting.messages.admin_bodies import Connection as ConnectionBody
from congreve.remoting.messages.command import RemotingCommand

CHANNEL_EXPIRED_S = 120

CLIENT_ID_MAX = 1024
"""Characters of a client's id; the broker stores one for each connection."""


class Channel(Protocol):
    """What reaches a client: a connection, or the Telemetry of a gRPC client.

    (RocketMQ: io.netty.channel.Channel, 5: GrpcClientChannel.)
    """

    @property
    def closed(self) -> bool:
        """Whether the client is gone."""

    @property
    def reading_paused(self) -> bool:
        """Whether the client does not read what it is sent."""

    @property
    def peer(self) -> tuple[str, int]:
        """The client's address."""

    def close(self) -> None:
        """End it."""

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request without an answer. Raises RemotingError."""

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its answer. Raises RemotingError."""


class ClientChannel(msgspec.Struct):
    """A client's id and version, and its connection.

    (RocketMQ: ClientChannelInfo.)
    """

    connection: Channel
    client_id: str
    language: str
    version: int
    last_seen_ms: int = 0  # by the wall clock, for answers
    heard_at: float = 0.0  # the same by the monotonic clock, in seconds
    access_key: str | None = None  # of the account that has signed its heartbeat
    is_grpc: bool = False  # the groups in which it produces have the names of topics

    @property
    def address(self) -> str:
        """`ip:port` of the client's end of the connection."""
        host, port = self.connection.peer
        return f"{host}:{port}"

    def body(self) -> ConnectionBody:
        """The client in answers to codes 203 and 204."""
        return ConnectionBody(
            client_id=self.client_id,
            client_addr=self.address,
            language=self.language,
            version=self.version,
            protocol="grpc" if self.is_grpc else None,
        )
