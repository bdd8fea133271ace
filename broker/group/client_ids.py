"""Which client has a client id (RocketMQ: ProducerManager.clientChannelTable)."""

import logging
import time
from collections.abc import Callable, Generator

import msgspec

from congreve.base.limited_log import LimitedLog
from congreve.broker.group.clients import CHANNEL_EXPIRED_S, Channel, ClientChannel

logger = logging.getLogger(__name__)

IDS_OF_CONNECTION = 16
"""Ids that one connection may have; clients of RocketMQ have one."""

KEPT_OF_ACCOUNT = 1_000
"""Ids without a connection that are kept for one account."""


class _Owner(msgspec.Struct):
    access_key: str | None
    connection: Channel


class ClientIds:
    """The connection of each client id, and the account that has it.

    An id belongs to the account whose heartbeat named it first, and to that account's latest
    connection with it. It stays the account's for `CHANNEL_EXPIRED_S` after the connection has
    ended: the client may connect again, and no other account may get its messages. Without
    accounts the latest heartbeat has the id. (RocketMQ: ProducerManager.clientChannelTable.)
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._owners: dict[str, _Owner] = {}
        self._of_connection: dict[Channel, dict[str, None]] = {}
        self._kept: dict[str, dict[str, float]] = {}  # by account: id -> when its connection ended
        self._taken = LimitedLog(logger)

    def hear(self, client: ClientChannel) -> None:
        """Note the id of a heartbeat, unless it is another account's."""
        owner = self._owners.get(client.client_id)
        if owner is not None and owner.access_key != client.access_key:
            self._taken.warning(
                "the clientId %s of %s (accessKey %s) is in use by a client of another account: "
                "that one gets its replies; give each client an instanceName of its own",
                client.client_id,
                client.address,
                client.access_key,
            )
            return
        self._owners[client.client_id] = _Owner(client.access_key, client.connection)
        self._kept.get(client.access_key or "", {}).pop(client.client_id, None)
        ids = self._of_connection.setdefault(client.connection, {})
        ids.pop(client.client_id, None)
        ids[client.client_id] = None
        if len(ids) > IDS_OF_CONNECTION:
            oldest = next(iter(ids))
            del ids[oldest]
            self._release(oldest, client.connection)

    def find(self, client_id: str) -> Channel | None:
        """The open connection of the client with this id (findChannel)."""
        owner = self._owners.get(client_id)
        return None if owner is None or owner.connection.closed else owner.connection

    def belongs_to(self, client: ClientChannel) -> bool:
        """Whether a client's id is its account's."""
        owner = self._owners.get(client.client_id)
        return owner is not None and owner.access_key == client.access_key

    def closing_steps(self, connection: Channel) -> Generator[None, None, None]:
        """Release the ids of a closed connection."""
        for client_id in self._of_connection.pop(connection, ()):
            self._release(client_id, connection)
            yield

    def expiry_steps(self) -> Generator[None, None, None]:
        """Forget ids whose client has been away for long."""
        limit = self._monotonic() - CHANNEL_EXPIRED_S
        for access_key, ids in list(self._kept.items()):
            for client_id in [each for each, ended_at in ids.items() if ended_at < limit]:
                if ids.pop(client_id, None) is not None:  # it has not come back meanwhile
                    del self._owners[client_id]
                yield
            if not ids:
                del self._kept[access_key]

    def _release(self, client_id: str, connection: Channel) -> None:
        owner = self._owners.get(client_id)
        if owner is None or owner.connection is not connection:
            return  # a later connection of its account has it
        if owner.access_key is None:
            del self._owners[client_id]
            return
        kept = self._kept.setdefault(owner.access_key, {})
        kept[client_id] = self._monotonic()
        if len(kept) > KEPT_OF_ACCOUNT:
            oldest = next(iter(kept))
            del kept[oldest], self._owners[oldest]
