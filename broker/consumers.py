"""Which consumers are online and what they subscribe to (RocketMQ: ConsumerManager)."""

import logging
from collections.abc import Callable

import msgspec

from congreve.broker.clients import ClientChannel
from congreve.engine.clock import Clock
from congreve.remoting.bodies import ConsumerData, SubscriptionData
from congreve.remoting.connection import Connection

logger = logging.getLogger(__name__)

Notify = Callable[[str, list[Connection]], None]


class ConsumerGroup(msgspec.Struct):
    """The members of a group; its settings and topics are those of the latest heartbeat."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData] = {}
    channels: dict[Connection, ClientChannel] = {}

    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.channels.values()]

    def find_client(self, client_id: str) -> ClientChannel | None:
        return next((c for c in self.channels.values() if c.client_id == client_id), None)

    def _replace_subscriptions(self, wanted: list[SubscriptionData]) -> bool:
        """True when a topic came or went; a newer version of a known topic changes silently."""
        topics = {subscription.topic for subscription in wanted}
        changed = topics != self.subscriptions.keys()
        for subscription in wanted:
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[subscription.topic] = subscription
        for gone in self.subscriptions.keys() - topics:
            del self.subscriptions[gone]
        return changed

    def update(self, data: ConsumerData, client: ClientChannel) -> bool:
        """Take one heartbeat; True when members or topics changed."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.channels.get(client.connection)
        if known is not None and known.client_id != client.client_id:
            logger.warning(
                "connection %s of group %s changed its clientId from %s to %s",
                *(client.address, self.name, known.client_id, client.client_id),
            )
        self.channels[client.connection] = client
        topics_changed = self._replace_subscriptions(data.subscription_data_set)
        return known is None or topics_changed


class ConsumerManager:
    """All groups with members.

    `notify` is given a group and the members to tell of a change, `gone` a group whose last member
    left.
    """

    def __init__(
        self, clock: Clock, notify: Notify, gone: Callable[[str], None] | None = None
    ) -> None:
        self._clock = clock
        self._notify = notify
        self._gone = gone
        self.groups: dict[str, ConsumerGroup] = {}

    def register(self, data: ConsumerData, client: ClientChannel, notify: bool) -> bool:
        """One group of a heartbeat; True when the group changed (members are told if `notify`)."""
        group = self.groups.get(data.group_name)
        if group is None:
            group = self.groups[data.group_name] = ConsumerGroup(
                name=data.group_name,
                consume_type=data.consume_type,
                message_model=data.message_model,
                consume_from_where=data.consume_from_where,
            )
        client.last_seen_ms = self._clock.now()
        changed = group.update(data, client)
        if changed and notify:
            self._notify(group.name, list(group.channels))
        return changed

    def unregister(self, name: str, connection: Connection, notify: bool) -> None:
        """A client leaves a group."""
        group = self.groups.get(name)
        if group is None or group.channels.pop(connection, None) is None:
            return
        if not group.channels:
            del self.groups[name]
            if self._gone is not None:
                self._gone(name)
        elif notify:
            self._notify(name, list(group.channels))

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone, and with it its client's membership in every group."""
        members_of = [name for name, g in self.groups.items() if connection in g.channels]
        for name in members_of:
            self.unregister(name, connection, notify=True)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        online = self.groups.get(group)
        return None if online is None else online.subscriptions.get(topic)

    def find_client(self, group: str, client_id: str) -> ClientChannel | None:
        online = self.groups.get(group)
        return None if online is None else online.find_client(client_id)

    def groups_of(self, topic: str) -> list[str]:
        """Online groups that subscribe to `topic` (queryTopicConsumeByWho)."""
        return [name for name, group in self.groups.items() if topic in group.subscriptions]

    def expired(self, older_than_ms: int) -> list[Connection]:
        """Connections whose client sent no heartbeat for that long."""
        limit = self._clock.now() - older_than_ms
        return [
            client.connection
            for group in self.groups.values()
            for client in group.channels.values()
            if client.last_seen_ms < limit
        ]
