"""Queue locks for orderly consumption (RocketMQ: RebalanceLockManager).

Locks are in memory only: after a restart the clients lock again. Leases use the monotonic clock.
The reference uses the system's clock: set back, it keeps a dead member's locks; set forward, it
ends the locks of living members.
"""

import time
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from congreve.remoting.messages.bodies import MessageQueue

LEASE_MS = 60_000
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
    20 s. (RocketMQ: RebalanceLockManager.)
    """

    def __init__(
        self,
        lease_ms: int = LEASE_MS,
        freed: Freed = lambda group, clients: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._lease_s = lease_ms / 1000
        self._freed = freed
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._refused: dict[str, dict[MessageQueue, dict[_Holder, float]]] = {}  # -> time

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
        locks = self._groups.setdefault(group, {})
        refused = self._refused.setdefault(group, {})
        held = []
        for queue in queues:
            current = locks.get(queue)
            if current is None or current.holder == client or self._expired(current, now):
                locks[queue] = _Lock(client, now)
                held.append(queue)
                refused.get(queue, {}).pop(client, None)
            else:
                refused.setdefault(queue, {})[client] = now
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
                fresh = {c: at for c, at in clients.items() if now - at <= self._lease_s}
                if fresh:
                    refused[queue] = fresh
                else:
                    refused.pop(queue, None)
                yield
            if not refused and group not in self._groups:
                self._refused.pop(group, None)

    def _end(self, group: str, queues: Iterable[MessageQueue]) -> None:
        locks, refused = self._groups.get(group, {}), self._refused.get(group, {})
        waiting: set[_Holder] = set()
        for queue in queues:
            locks.pop(queue, None)
            waiting |= refused.pop(queue, {}).keys()
        if not locks:
            self._groups.pop(group, None)
            self._refused.pop(group, None)
        if waiting:
            self._freed(group, {client.client_id for client in waiting})

    def _expired(self, lock: _Lock, now: float) -> bool:
        return now - lock.renewed_at > self._lease_s
