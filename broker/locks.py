"""Which consumer may consume which queue in order (RocketMQ: RebalanceLockManager).

Locks live in memory only: after a restart the clients lock anew.
"""

from collections.abc import Iterable
from typing import NamedTuple

from congreve.engine.clock import Clock
from congreve.remoting.bodies import MessageQueue

LEASE_MS = 60_000


class _Lock(NamedTuple):
    client_id: str
    renewed_ms: int


class RebalanceLockManager:
    """group -> queue -> who holds it; a lock ends `lease_ms` after its holder last asked for it.

    A closed connection ends no lock: its client may live, and consumes for as long as it believes
    in the lock.
    """

    def __init__(self, clock: Clock, lease_ms: int = LEASE_MS) -> None:
        self._clock = clock
        self._lease_ms = lease_ms
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client: str) -> list[MessageQueue]:
        """Lock or renew what is free or the caller's own; returns what the caller now holds."""
        now = self._clock.now()
        locks = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            current = locks.get(queue)
            if current is None or current.client_id == client or self._expired(current, now):
                locks[queue] = _Lock(client, now)
                held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release those of `queues` that the caller holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            current = locks.get(queue)
            if current is not None and current.client_id == client_id:
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def drop_expired(self) -> None:
        """Forget locks that ended, so that gone groups leave nothing behind."""
        now = self._clock.now()
        for group, locks in list(self._groups.items()):
            for queue in [q for q, lock in locks.items() if self._expired(lock, now)]:
                del locks[queue]
            if not locks:
                del self._groups[group]

    def _expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._lease_ms
