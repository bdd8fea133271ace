"""Which consumer may consume which queue in order (RocketMQ: RebalanceLockManager).

Locks live in memory only: after a restart the clients lock anew.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from congreve.engine.clock import Clock
from congreve.remoting.bodies import MessageQueue

LEASE_MS = 60_000

Freed = Callable[[str, set[str]], None]


class _Lock(NamedTuple):
    client_id: str
    renewed_ms: int


class RebalanceLockManager:
    """group -> queue -> who holds it; a lock ends `lease_ms` after its holder last asked for it.

    A closed connection ends no lock: its client may live, and consumes for as long as it believes
    in the lock. `freed` is given a group and those of its clients that had asked in vain for queues
    which nobody holds any more; by themselves they would ask again after 20 s.
    """

    def __init__(
        self, clock: Clock, lease_ms: int = LEASE_MS, freed: Freed = lambda group, clients: None
    ) -> None:
        self._clock = clock
        self._lease_ms = lease_ms
        self._freed = freed
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._refused: dict[str, dict[MessageQueue, dict[str, int]]] = {}  # and when

    def lock(self, group: str, queues: Iterable[MessageQueue], client: str) -> list[MessageQueue]:
        """Lock or renew what is free or the caller's own; returns what the caller now holds."""
        now = self._clock.now()
        locks = self._groups.setdefault(group, {})
        refused = self._refused.setdefault(group, {})
        held = []
        for queue in queues:
            current = locks.get(queue)
            if current is None or current.client_id == client or self._expired(current, now):
                locks[queue] = _Lock(client, now)
                held.append(queue)
                refused.get(queue, {}).pop(client, None)
            else:
                refused.setdefault(queue, {})[client] = now
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release those of `queues` that the caller holds."""
        locks = self._groups.get(group, {})
        mine = [q for q in queues if q in locks and locks[q].client_id == client_id]
        self._end(group, mine)

    def drop_expired(self) -> None:
        """Forget locks that ended, so that gone groups leave nothing behind."""
        now = self._clock.now()
        for group, locks in list(self._groups.items()):
            self._end(group, [q for q, lock in locks.items() if self._expired(lock, now)])
        for refused in self._refused.values():
            for queue, clients in list(refused.items()):
                fresh = {c: at for c, at in clients.items() if now - at <= self._lease_ms}
                refused[queue] = fresh
                if not fresh:
                    del refused[queue]

    def _end(self, group: str, queues: Iterable[MessageQueue]) -> None:
        locks, refused = self._groups.get(group, {}), self._refused.get(group, {})
        waiting: set[str] = set()
        for queue in queues:
            del locks[queue]
            waiting |= refused.pop(queue, {}).keys()
        if not locks:
            self._groups.pop(group, None)
            self._refused.pop(group, None)
        if waiting:
            self._freed(group, waiting)

    def _expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._lease_ms
