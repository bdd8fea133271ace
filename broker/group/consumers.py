"""Consumers that are online, and their subscriptions (RocketMQ: ConsumerManager)."""

import logging
import time
from collections.abc import Callable, Generator

import msgspec

from congreve.base.limited_log import LimitedLog
from congreve.base.table_limit import TableLimit
from congreve.broker.config import BrokerConfig
from congreve.broker.group.clients import Channel, ClientChannel
from congreve.broker.metadata.subscription import memory_of
from congreve.records.message.topics import retry_topic
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData

logger = logging.getLogger(__name__)

Notify = Callable[[str], None]


class ConsumerGroup(msgspec.Struct):
    """The members of a group (RocketMQ: ConsumerGroupInfo).

    Its settings and topics are those of the latest heartbeat.
    """

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData] = {}
    subscription_bytes: int = 0
    channels: dict[Channel, ClientChannel] = {}
    retry_readers: set[Channel] = set()
    """Those whose members pull the group's retry topic."""
    fingerprint: int = 0
    """The client's hash of the subscriptions, 0 if it sent none, or the broker lacks some (RocketMQ
    5: heartbeat v2)."""

    def client_ids(self) -> list[str]:
        """The client ids of the members."""
        return [client.client_id for client in self.channels.values()]

    def newest_subscriptions(self, wanted: list[SubscriptionData]) -> dict[str, SubscriptionData]:
        """The subscriptions of a heartbeat, each in the newest version that is known."""
        newest: dict[str, SubscriptionData] = {}
        for subscription in wanted:
            topic = subscription.topic
            known = newest.get(topic) or self.subscriptions.get(topic)
            is_new = known is None or subscription.sub_version > known.sub_version
            newest[topic] = subscription if known is None or is_new else known
        return newest

    def replace_subscriptions(self, newest: dict[str, SubscriptionData], size: int) -> bool:
        """Replace the subscriptions; True when topics were added or removed."""
        changed = newest.keys() != self.subscriptions.keys()
        self.subscriptions, self.subscription_bytes = newest, size
        return changed

    def update(self, data: ConsumerData, client: ClientChannel, renamed: LimitedLog) -> bool:
        """Apply a heartbeat except for its subscriptions; True if there is a new member.

        It logs to `renamed` if the client has changed its clientId.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.channels.get(client.connection)
        if known is not None and known.client_id != client.client_id:
            renamed.warning(
                "connection %s of group %s changed its clientId from %s to %s",
                client.address,
                self.name,
                known.client_id,
                client.client_id,
            )
        self.channels[client.connection] = client
        retries = retry_topic(self.name)
        if any(each.topic == retries for each in data.subscription_data_set):
            self.retry_readers.add(client.connection)
        else:
            self.retry_readers.discard(client.connection)
        return known is None


class ConsumerManager:
    """All groups with members (RocketMQ: ConsumerManager).

    It calls `notify` with a group whose members must be notified of a change, and `gone` with a
    group whose last member left.
    """

    def __init__(
        self,
        config: BrokerConfig,
        notify: Notify,
        gone: Callable[[str], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group_limit = TableLimit("maxGroups", "groups", lambda: config.limits.max_groups)
        self._member_limit = TableLimit(
            "maxGroupMembers", "members of a group", lambda: config.limits.max_group_members
        )
        self._subscription_limit = TableLimit(
            "maxGroupSubscriptions",
            "subscriptions of a group",
            lambda: config.limits.max_group_subscriptions,
        )
        self._membership_limit = TableLimit(
            "maxMemberships", "connections in groups", lambda: config.limits.max_memberships
        )
        self._bytes_limit = TableLimit(
            "maxSubscriptionBytes",
            "bytes of subscriptions",
            lambda: config.limits.max_subscription_bytes,
        )
        self._memberships = 0
        self._subscription_bytes = 0
        self._renamed = LimitedLog(logger)
        self._monotonic = monotonic
        self._notify = notify
        self._gone = gone
        self.groups: dict[str, ConsumerGroup] = {}
        self._listeners: list[Notify] = []
        self._groups_of: dict[Channel, dict[str, None]] = {}

    def listen(self, listener: Notify) -> None:
        """Call `listener` with each group that changes its settings or subscriptions, or ends."""
        self._listeners.append(listener)

    def register(self, data: ConsumerData, client: ClientChannel, notify: bool) -> bool:
        """Apply a heartbeat to one group; True if the group changed.

        With `notify` the members are notified of a change. Raises TableFullError if a limit of the
        group, or of all groups, is reached.
        """
        known = self.groups.get(data.group_name)
        group = known or ConsumerGroup(
            name=data.group_name,
            consume_type=data.consume_type,
            message_model=data.message_model,
            consume_from_where=data.consume_from_where,
        )
        self._subscription_limit.check(0, len(data.subscription_data_set))
        if known is None:
            self._group_limit.check(len(self.groups))
        if client.connection not in group.channels:
            self._member_limit.check(len(group.channels))
            self._membership_limit.check(self._memberships)
        newest = group.newest_subscriptions(data.subscription_data_set)
        size = sum(map(memory_of, newest.values()))
        grows = size - group.subscription_bytes
        self._bytes_limit.check(self._subscription_bytes, max(grows, 0))
        self.groups[group.name] = group
        is_same = (data.message_model, newest) == (group.message_model, group.subscriptions)
        client.heard_at = self._monotonic()
        is_member = group.update(data, client, self._renamed)
        self._memberships += is_member
        self._subscription_bytes += grows
        changed = group.replace_subscriptions(newest, size) or is_member
        if known is None or not is_same:
            self._call_listeners(group.name)
        self._groups_of.setdefault(client.connection, {})[group.name] = None
        if changed and notify:
            self._notify(group.name)
        return changed

    def unregister(self, name: str, connection: Channel, notify: bool) -> None:
        """Remove a client from a group."""
        group = self.groups.get(name)
        if group is None or group.channels.pop(connection, None) is None:
            return
        group.retry_readers.discard(connection)
        self._memberships -= 1
        del self._groups_of[connection][name]
        if not self._groups_of[connection]:
            del self._groups_of[connection]
        if not group.channels:
            del self.groups[name]
            self._subscription_bytes -= group.subscription_bytes
            self._call_listeners(name)
            if self._gone is not None:
                self._gone(name)
        elif notify:
            self._notify(name)

    def _call_listeners(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)

    def closing_steps(self, connection: Channel) -> Generator[None, None, None]:
        """Remove the client of a closed connection from all its groups."""
        for name in list(self._groups_of.get(connection, ())):
            self.unregister(name, connection, notify=True)
            yield

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The subscription of an online group for a topic, None without one."""
        online = self.groups.get(group)
        return None if online is None else online.subscriptions.get(topic)

    def pull_retries(self, group: str) -> bool:
        """Whether members of a group pull its retry topic."""
        online = self.groups.get(group)
        return online is not None and bool(online.retry_readers)

    def groups_of(self, topic: str) -> list[str]:
        """Online groups that subscribe to `topic` (queryTopicConsumeByWho)."""
        return [name for name, group in self.groups.items() if topic in group.subscriptions]

    def sharing(self, topic: str) -> list[str]:
        """Those of groups_of() whose members share the queues."""
        return [
            name
            for name in self.groups_of(topic)
            if self.groups[name].message_model != "BROADCASTING"
        ]

    def expired_steps(self, older_than_s: float) -> Generator[None, None, set[Channel]]:
        """Connections whose client sent no heartbeat for that long."""
        limit = self._monotonic() - older_than_s
        expired = set()
        for group in list(self.groups.values()):
            for client in list(group.channels.values()):
                if client.heard_at < limit:
                    expired.add(client.connection)
                yield
        return expired
