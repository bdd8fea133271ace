"""One client of this broker as its heartbeats show it (RocketMQ: ClientChannelInfo)."""

import msgspec

from congreve.remoting.bodies import Connection as ConnectionBody
from congreve.remoting.connection import Connection

CHANNEL_EXPIRED_MS = 120_000


class ClientChannel(msgspec.Struct):
    """A client's name and version, and the connection to reach it by."""

    connection: Connection
    client_id: str
    language: str
    version: int
    last_seen_ms: int = 0

    @property
    def address(self) -> str:
        """`ip:port` of its end of the connection."""
        host, port = self.connection.peer
        return f"{host}:{port}"

    def body(self) -> ConnectionBody:
        """How answers to 203 and 204 show it."""
        return ConnectionBody(
            client_id=self.client_id,
            client_addr=self.address,
            language=self.language,
            version=self.version,
        )
