"""Connected producers (RocketMQ: ProducerManager)."""

import time
from collections.abc import Callable, Generator

from congreve.base.clock import Clock
from congreve.base.table_limit import TableLimit
from congreve.broker.config import BrokerConfig
from congreve.broker.group.clients import Channel, ClientChannel

MayCheck = Callable[[ClientChannel, str, str], bool]
"""Member, group, topic."""


class ProducerManager:
    """The members of producer groups, by group and connection (RocketMQ: ProducerManager)."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.may_check: MayCheck = lambda *_: True
        """Whether a member may get its group's checks of transactions with a topic."""
        self._limit = TableLimit(
            "maxGroups", "groups of producers", lambda: config.limits.max_groups
        )
        self._membership_limit = TableLimit(
            "maxMemberships",
            "connections in groups of producers",
            lambda: config.limits.max_memberships,
        )
        self._memberships = 0
        self._clock = clock
        self._monotonic = monotonic
        self._turn = 0
        self.groups: dict[str, dict[Channel, ClientChannel]] = {}
        self._groups_of: dict[Channel, dict[str, None]] = {}

    def register(self, group: str, client: ClientChannel) -> None:
        """Add or refresh a member after a heartbeat.

        Raises TableFullError when there are maxGroups or maxMemberships.
        """
        if group not in self.groups:
            self._limit.check(len(self.groups))
        known = self.groups.get(group, {}).get(client.connection)
        if known is None:
            self._membership_limit.check(self._memberships)
            self._memberships += 1
        client.last_seen_ms, client.heard_at = self._clock.now(), self._monotonic()
        members = self.groups.setdefault(group, {})
        members[client.connection] = client
        self._groups_of.setdefault(client.connection, {})[group] = None

    def unregister(self, group: str, connection: Channel) -> None:
        """Remove a client from a group."""
        channels = self.groups.get(group)
        if channels is None or channels.pop(connection, None) is None:
            return
        self._memberships -= 1
        del self._groups_of[connection][group]
        if not self._groups_of[connection]:
            del self._groups_of[connection]
        if not channels:
            del self.groups[group]

    def closing_steps(self, connection: Channel) -> Generator[None, None, None]:
        """Remove the client of a closed connection from all its groups."""
        for group in list(self._groups_of.get(connection, ())):
            self.unregister(group, connection)
            yield

    def available(self, group: str, topic: str) -> Channel | None:
        """A member of the group to send a check to, in rotation (getAvailableChannel).

        None if no member may get checks of transactions with this topic, or if none reads its
        earlier requests.
        """
        ready = [
            connection
            for connection, client in self.groups.get(group, {}).items()
            if not (connection.closed or connection.reading_paused)
            and self.may_check(client, group, topic)
        ]
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def expired_steps(self, older_than_s: float) -> Generator[None, None, set[Channel]]:
        """Connections whose client sent no heartbeat for that long."""
        limit = self._monotonic() - older_than_s
        expired = set()
        for channels in list(self.groups.values()):
            for client in list(channels.values()):
                if client.heard_at < limit:
                    expired.add(client.connection)
                yield
        return expired
