"""Queue locks for orderly consumption (RocketMQ: RebalanceLockManager).

Locks are in memory only: after a restart the clients lock again. Leases use the monotonic clock.
The reference uses the system's clock: set back, it keeps a dead member's locks; set forward, it
ends the locks of living members.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from congreve.base.limited_log import LimitedLog
from congreve.remoting.messages.body import MessageQueue

logger = logging.getLogger(__name__)

LEASE_MS = 60_000
LOCKS_MAX = 200_000
OF_CLIENT_MAX = 20_000
"""Locks of one client."""
REFUSALS_MAX = 20_000
"""Refusals that are remembered; a client that is not notified asks again after 20 s."""
_AT_ONCE = 1_000  # locks that end in one step

Freed = Callable[[str, set[str]], None]


class _Holder(NamedTuple):
    client_id: str
    access_key: str | None


class _Lock(NamedTuple):
    holder: _Holder
    renewed_at: float


class RebalanceLockManager:
    """The locks by group and queue; a lock ends `lease_ms` after its holder last renewed it.

    A closed connection does not end a lock: its client may still run, and consumes for as long as
    it believes that it holds the lock. When queues become free, the manager calls `freed` with the
    group and the clients that were refused one of them; otherwise they would ask again only after
    20 s.

    There are at most `most` locks, of one client at most OF_CLIENT_MAX; further queues stay free.
    The caller passes only groups and queues that exist. (RocketMQ: RebalanceLockManager, which has
    neither limit.)
    """

    def __init__(
        self,
        lease_ms: int = LEASE_MS,
        freed: Freed = lambda group, clients: None,
        monotonic: Callable[[], float] = time.monotonic,
        most: Callable[[], int] = lambda: LOCKS_MAX,
    ) -> None:
        self._monotonic = monotonic
        self._lease_s = lease_ms / 1000
        self._freed = freed
        self._most = most
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._refused: dict[str, dict[MessageQueue, dict[_Holder, float]]] = {}  # -> time
        self._counts: dict[_Holder, int] = {}  # locks by client
        self._locks = self._refusals = 0
        self._full = LimitedLog(logger)

    def __len__(self) -> int:
        return self._locks

    def lock(
        self,
        group: str,
        queues: Iterable[MessageQueue],
        client_id: str,
        access_key: str | None = None,
    ) -> list[MessageQueue]:
        """Lock free queues, renew the client's locks, and return the queues that it holds.

        A client of another account (`access_key`) is another client, whatever its id.
        """
        client = _Holder(client_id, access_key)
        now = self._monotonic()
        locks = self._groups.get(group, {})
        held = []
        for queue in queues:
            current = locks.get(queue)
            if current is not None and current.holder != client and not self._expired(current, now):
                self._refuse(group, queue, client, now)
            elif (current is not None and current.holder == client) or self._take(client, current):
                locks[queue] = _Lock(client, now)
                held.append(queue)
                self._forget(group, queue, client)
        if locks:
            self._groups[group] = locks
        return held

    def unlock(
        self,
        group: str,
        queues: Iterable[MessageQueue],
        client_id: str,
        access_key: str | None = None,
    ) -> None:
        """Release those of `queues` that the caller holds."""
        client = _Holder(client_id, access_key)
        locks = self._groups.get(group, {})
        mine = [q for q in queues if q in locks and locks[q].holder == client]
        self._end(group, mine)

    def leave(self, group: str, client_id: str, access_key: str | None = None) -> None:
        """Release all locks of a client that has left the group.

        Java's consumers unlock before they leave; a rebalance at that moment locks again.
        """
        client = _Holder(client_id, access_key)
        if client in self._counts:
            locks = self._groups.get(group, {})
            self._end(group, [queue for queue, lock in locks.items() if lock.holder == client])

    def expiry_steps(self) -> Generator[None, None, None]:
        """Drop locks that ended, and groups without locks."""
        now = self._monotonic()
        for group, locks in list(self._groups.items()):
            ended = []
            for queue, lock in list(locks.items()):
                if self._expired(lock, now):
                    ended.append(queue)
                yield
            for start in range(0, len(ended), _AT_ONCE):
                self._end(group, ended[start : start + _AT_ONCE])
                yield
        for group, refused in list(self._refused.items()):
            for queue, clients in list(refused.items()):
                for client, at in list(clients.items()):
                    if now - at > self._lease_s:
                        self._forget(group, queue, client)
                yield

    # --- one lock

    def _take(self, client: _Holder, current: _Lock | None) -> bool:
        """Count a lock of this client, in place of one that has expired; False beyond a limit."""
        if current is not None:
            self._count(current.holder, -1)
        of_client = self._counts.get(client, 0)
        if self._locks >= self._most() or of_client >= OF_CLIENT_MAX:
            self._full.warning(
                "client %.200s with %d locks gets no further one: there are %d (maxQueueLocks %d,"
                " of a client %d)",
                client.client_id,
                of_client,
                self._locks,
                self._most(),
                OF_CLIENT_MAX,
            )
            if current is not None:
                self._count(current.holder, 1)
            return False
        self._count(client, 1)
        return True

    def _count(self, client: _Holder, more: int) -> None:
        self._locks += more
        count = self._counts.get(client, 0) + more
        if count:
            self._counts[client] = count
        else:
            self._counts.pop(client, None)

    def _end(self, group: str, queues: Iterable[MessageQueue]) -> None:
        locks = self._groups.get(group, {})
        waiting: set[_Holder] = set()
        for queue in queues:
            lock = locks.pop(queue, None)
            if lock is not None:
                self._count(lock.holder, -1)
            for client in list(self._refused.get(group, {}).get(queue, ())):
                self._forget(group, queue, client)
                waiting.add(client)
        if not locks:
            self._groups.pop(group, None)
        if waiting:
            self._freed(group, {client.client_id for client in waiting})

    def _expired(self, lock: _Lock, now: float) -> bool:
        return now - lock.renewed_at > self._lease_s

    # --- refused clients

    def _refuse(self, group: str, queue: MessageQueue, client: _Holder, now: float) -> None:
        clients = self._refused.get(group, {}).get(queue, {})
        if client not in clients:
            if self._refusals >= REFUSALS_MAX:
                return
            self._refusals += 1
            clients = self._refused.setdefault(group, {}).setdefault(queue, clients)
        clients[client] = now

    def _forget(self, group: str, queue: MessageQueue, client: _Holder) -> None:
        queues = self._refused.get(group, {})
        clients = queues.get(queue, {})
        if clients.pop(client, None) is None:
            return
        self._refusals -= 1
        if not clients:
            del queues[queue]
        if not queues:
            del self._refused[group]
