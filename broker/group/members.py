"""Connected members of all groups, and the end of their connections
(RocketMQ: ClientHousekeepingService)."""

import logging
from collections import deque
from collections.abc import Callable, Generator

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.group.broker_to_client import notify_consumer_ids_changed
from congreve.broker.group.client_ids import ClientIds
from congreve.broker.group.clients import CHANNEL_EXPIRED_S, Channel, ClientChannel
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.group.locks import RebalanceLockManager
from congreve.broker.group.notifier import GroupNotifier
from congreve.broker.group.producers import ProducerManager
from congreve.broker.metadata.metadata import Metadata
from congreve.remoting.loop.background import BackgroundJobs
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import ACCESS_KEY

logger = logging.getLogger(__name__)

Steps = Generator[None, None, None]


class Members:
    """Consumers, producers, client ids and locks; members are notified when their group changes."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        clock: Clock,
        pieces: Pieces,
        monotonic: Callable[[], float],
    ) -> None:
        self.consumers = ConsumerManager(
            config, self._group_changed, metadata.filters.unregister, monotonic
        )
        self.producers = ProducerManager(config, clock, monotonic)
        self.ids = ClientIds(monotonic)
        self.locks = RebalanceLockManager(
            config.rebalance_lock_max_live_time,
            self._queues_freed,
            monotonic,
            lambda: config.limits.max_queue_locks,
        )
        self._config = config
        self._groups = metadata.groups
        self._pieces = pieces
        self._notifier = GroupNotifier(pieces, self.consumers.groups.get)
        self._closed: deque[Channel] = deque()
        self._forgets = False  # whether steps run that will see what is closed now
        self._forgetting = BackgroundJobs("removing the clients of closed connections", logger)

    async def stop(self) -> None:
        """Stop notifications, and wait until the clients of closed connections are removed."""
        await self._notifier.stop()
        await self._forgetting.wait()

    def connection_closed(self, connection: Channel) -> None:
        """Remove the clients of this connection.

        One task serves all closed connections, because thousands may close at once.
        """
        self._closed.append(connection)
        if not self._forgets:
            self._forgets = True
            self._forgetting.begin(self._pieces.run(self._forgetting_steps()))

    def _forgetting_steps(self) -> Steps:
        try:
            while self._closed:
                connection = self._closed.popleft()
                members = self.consumers.closing_steps(connection)
                producers = self.producers.closing_steps(connection)
                ids = self.ids.closing_steps(connection)
                for steps in (members, producers, ids):
                    try:
                        yield from steps
                    except Exception:
                        logger.exception("cleaning up after %s:%d failed", *connection.peer)
                yield
        finally:
            self._forgets = False

    def account_of(self, request: RemotingCommand) -> str | None:
        """The access key of the account that a checked request is of; None without accounts."""
        return request.ext_fields.get(ACCESS_KEY) if self._config.acl_enable else None

    def find_consumer(self, group: str, client_id: str) -> ClientChannel | None:
        """The member of a group that has this client id, None when there is none."""
        online = self.consumers.groups.get(group)
        channels = () if online is None else online.channels.values()
        return next(
            (c for c in channels if c.client_id == client_id and self.ids.belongs_to(c)), None
        )

    async def close_silent(self) -> None:
        """Close connections whose client has sent no heartbeat for too long."""
        silent = await self._pieces.run(self.consumers.expired_steps(CHANNEL_EXPIRED_S))
        silent |= await self._pieces.run(self.producers.expired_steps(CHANNEL_EXPIRED_S))
        await self._pieces.run(self.ids.expiry_steps())
        for connection in silent:
            logger.warning(
                "no heartbeat from %s:%d for %d s, closed", *connection.peer, CHANNEL_EXPIRED_S
            )
            connection.close()

    def _group_changed(self, group: str) -> None:
        if self._config.notify_consumer_ids_changed_enable:
            self._notifier.changed(group)

    def _queues_freed(self, group: str, clients: set[str]) -> None:
        online, settings = self.consumers.groups.get(group), self._groups.table.get(group)
        notifies = settings is None or settings.notify_consumer_ids_changed_enable
        if online is not None and notifies and self._config.notify_consumer_ids_changed_enable:
            for connection, client in online.channels.items():
                if client.client_id in clients:
                    notify_consumer_ids_changed(group, connection)
