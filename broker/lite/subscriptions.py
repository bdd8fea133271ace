"""Which clients get the messages of which lite topics (RocketMQ 5.5:
LiteSubscriptionRegistry, LiteEventDispatcher)."""

import asyncio
from collections.abc import Callable, Collection, Iterable

import msgspec

from congreve.base.errors import CongreveError
from congreve.broker.config import BrokerConfig
from congreve.broker.lite.lite_topics import LiteTopics
from congreve.broker.lite.rules import client_quota, is_exclusive, is_set
from congreve.broker.lite.starts import LiteStarts, Start, from_first
from congreve.broker.metadata.attributes import LITE_RESET_EXCLUSIVE, LITE_RESET_UNSUBSCRIBE
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.engine.pop.in_flight import PopWindow

Lite = tuple[str, str]
"""A parent topic and a lite topic."""


class LiteQuotaError(CongreveError):
    """A client, or all together, would subscribe to more lite topics than they may.

    (RocketMQ 5.5: LiteQuotaException.)
    """


class LiteClient(msgspec.Struct, eq=False):
    """A member of a group, its lite topics, and which of them may have messages for it.

    (RocketMQ 5.5: LiteSubscription, ClientEventSet.)
    """

    client_id: str
    group: str
    parent: str
    names: dict[str, None] = {}
    ready: dict[str, None] = {}
    waiting: set[asyncio.Future[None]] = set()
    holding: dict[PopWindow, None] = {}
    """Windows of which it may have messages that are out."""


class LiteSubscriptions:
    """The subscriptions of all clients; one event loop owns it.

    `evict` gets a client id and a lite topic that another client has taken over.
    (RocketMQ 5.5: LiteSubscriptionRegistryImpl.)
    """

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        topics: LiteTopics,
        starts: LiteStarts,
    ) -> None:
        self._config = config
        self._groups = groups
        self._topics = topics
        self._starts = starts
        self._clients: dict[str, LiteClient] = {}
        self._subscribers: dict[Lite, dict[LiteClient, None]] = {}
        self.evict: Callable[[str, str], None] = lambda client_id, name: None
        """Tells a client that it has lost a lite topic."""
        self._size = 0
        topics.tell = self.wake_all

    def __len__(self) -> int:
        return self._size

    def client_of(self, client_id: str, group: str, parent: str) -> LiteClient:
        """A client of a group; what it had for another group is forgotten."""
        known = self._clients.get(client_id)
        if known is None or (known.group, known.parent) != (group, parent):
            self.remove_all(client_id)
            known = self._clients[client_id] = LiteClient(client_id, group, parent)
        return known

    def wake_next(self, client: LiteClient) -> None:
        """Let a further receive of a client look, if there may be more for it."""
        if client.ready:
            _wake(client)

    def subscribers(self, parent: str, name: str) -> list[LiteClient]:
        """The clients that subscribe to a lite topic."""
        return list(self._subscribers.get((parent, name), ()))

    # --- changes

    def add(
        self, client_id: str, group: str, parent: str, names: Collection[str], start: Start | None
    ) -> None:
        """Subscribe to lite topics; of an exclusive group only this client has them then.

        The group begins at `start` in each of them. Raises LiteQuotaError, without a change.
        """
        client = self.client_of(client_id, group, parent)
        self._check_quota(client, client.names.keys() | set(names))
        self._topics.catch_up(parent)
        config = self._groups.table.get(group)
        for name in names:
            if is_exclusive(config):
                self._take_over(client, name)
            if start is not None:
                self._starts.begin(group, parent, name, start)
            self._add(client, name)

    def replace(self, client_id: str, group: str, parent: str, names: Collection[str]) -> None:
        """Subscribe to these lite topics, and to no other.

        Of an exclusive group a client does not get back what another one has taken over. Raises
        LiteQuotaError, without a change.
        """
        client = self.client_of(client_id, group, parent)
        self._check_quota(client, names)
        self._topics.catch_up(parent)
        wanted = dict.fromkeys(names)
        if is_exclusive(self._groups.table.get(group)):
            for name in [name for name in wanted if self._others(client, name)]:
                del wanted[name]
                self.evict(client_id, name)
        for name in [name for name in client.names if name not in wanted]:
            self._remove(client, name)
        for name in wanted:
            self._add(client, name)

    def remove(self, client_id: str, group: str, names: Iterable[str]) -> None:
        """Unsubscribe from lite topics."""
        client = self._clients.get(client_id)
        if client is None or client.group != group:
            return
        resets = is_set(self._groups.table.get(group), LITE_RESET_UNSUBSCRIBE)
        for name in names:
            if name in client.names:
                self._remove(client, name)
                if resets:
                    self._starts.begin(group, client.parent, name, from_first)

    def remove_all(self, client_id: str) -> None:
        """The client is gone."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        for name in list(client.names):
            self._remove(client, name)
        _wake(client)

    def _check_quota(self, client: LiteClient, names: Collection[str]) -> None:
        most = client_quota(self._groups.table.get(client.group))
        if most >= 0 and len(names) > max(most, len(client.names)):
            raise LiteQuotaError(
                f"client {client.client_id} would subscribe to {len(names)} lite topics: {most}"
                " at most (lite.sub.client.quota of its group)"
            )
        most = self._config.limits.max_lite_subscription_count
        if len(names) > len(client.names) and self._size - len(client.names) + len(names) > most:
            raise LiteQuotaError(f"lite subscription quota exceeded {most}")

    def _take_over(self, client: LiteClient, name: str) -> None:
        resets = is_set(self._groups.table.get(client.group), LITE_RESET_EXCLUSIVE)
        for other in self._others(client, name):
            self._remove(other, name)
            self.evict(other.client_id, name)
            if resets:
                self._starts.begin(client.group, client.parent, name, from_first)

    def _others(self, client: LiteClient, name: str) -> list[LiteClient]:
        return [
            other
            for other in self._subscribers.get((client.parent, name), ())
            if other.group == client.group and other is not client
        ]

    def _add(self, client: LiteClient, name: str) -> None:
        if name not in client.names:
            client.names[name] = None
            self._size += 1
            lite = client.parent, name
            if lite not in self._subscribers:
                self._subscribers[lite] = {}
                self._topics.watch(*lite)
            self._subscribers[lite][client] = None
        self._tell(client, name)

    def _remove(self, client: LiteClient, name: str) -> None:
        del client.names[name]
        client.ready.pop(name, None)
        self._size -= 1
        lite = client.parent, name
        del self._subscribers[lite][client]
        if not self._subscribers[lite]:
            del self._subscribers[lite]
            self._topics.unwatch(*lite)

    # --- messages

    def wake_all(self, parent: str, names: Iterable[str]) -> None:
        """Lite topics have new messages."""
        for name in names:
            for client in self._subscribers.get((parent, name), ()):
                self._tell(client, name)

    def wake(self, group: str, parent: str, name: str) -> None:
        """A group may get messages of a lite topic."""
        for client in self._subscribers.get((parent, name), ()):
            if client.group == group:
                self._tell(client, name)

    def _tell(self, client: LiteClient, name: str) -> None:
        client.ready[name] = None
        _wake(client)


def _wake(client: LiteClient) -> None:
    for future in client.waiting:
        if not future.done():
            future.set_result(None)
            break
