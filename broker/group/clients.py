"""A client as its heartbeats describe it (RocketMQ: ClientChannelInfo)."""

import msgspec

from congreve.remoting.messages.admin_bodies import Connection as ConnectionBody
from congreve.remoting.transport.connection import Connection

CHANNEL_EXPIRED_S = 120

CLIENT_ID_MAX = 1024
"""Characters of a client's id; the broker stores one for each connection."""


class ClientChannel(msgspec.Struct):
    """A client's id and version, and its connection.

    (RocketMQ: ClientChannelInfo.)
    """

    connection: Connection
    client_id: str
    language: str
    version: int
    last_seen_ms: int = 0  # by the wall clock, for answers
    heard_at: float = 0.0  # the same by the monotonic clock, in seconds
    access_key: str | None = None  # of the account that has signed its heartbeat

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
        )
