"""Which producers are connected (RocketMQ: ProducerManager)."""

from congreve.broker.clients import ClientChannel
from congreve.engine.clock import Clock
from congreve.remoting.connection import Connection


class ProducerManager:
    """group -> connection -> client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = 0
        self._by_client_id: dict[str, Connection] = {}
        self.groups: dict[str, dict[Connection, ClientChannel]] = {}

    def register(self, group: str, client: ClientChannel) -> None:
        """A heartbeat: add or refresh."""
        client.last_seen_ms = self._clock.now()
        self.groups.setdefault(group, {})[client.connection] = client
        self._by_client_id[client.client_id] = client.connection

    def unregister(self, group: str, connection: Connection) -> None:
        channels = self.groups.get(group)
        if channels is None:
            return
        channels.pop(connection, None)
        if not channels:
            del self.groups[group]

    def connection_closed(self, connection: Connection) -> None:
        for group in [name for name, channels in self.groups.items() if connection in channels]:
            self.unregister(group, connection)
        for client_id in [name for name, c in self._by_client_id.items() if c is connection]:
            del self._by_client_id[client_id]

    def available(self, group: str) -> Connection | None:
        """A member of the group that can be asked something, each in its turn.

        None where nobody is there, or nobody takes what was sent before (getAvailableChannel).
        """
        members = self.groups.get(group, ())
        ready = [c for c in members if not (c.closed or c.reading_paused)]
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def find(self, client_id: str) -> Connection | None:
        """The connection of the producer with this client id (findChannel)."""
        connection = self._by_client_id.get(client_id)
        return None if connection is None or connection.closed else connection

    def expired(self, older_than_ms: int) -> list[Connection]:
        """Connections whose client sent no heartbeat for that long."""
        limit = self._clock.now() - older_than_ms
        return [
            client.connection
            for channels in self.groups.values()
            for client in channels.values()
            if client.last_seen_ms < limit
        ]
