"""Runs work once for each key, even when the message with that key arrives several times.

Brokers deliver at least once. A consumer that runs its work through Idempotence skips the keys that
a claim store has recorded as done.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

LEASE_S = 300.0
"""Lifetime in seconds of a claim that is neither confirmed nor released; after that another worker
may claim the key."""


class ClaimStore(Protocol):
    """Records which keys are being worked on and which are done. Methods may be called from any
    thread."""

    def claim(self, key: str) -> bool:
        """Claim the key; returns False when it is done or another worker has claimed it."""

    def confirm(self, key: str) -> None:
        """Record that the work for the key is done."""

    def release(self, key: str) -> None:
        """Give up the claim after a failure, so that another worker may try."""


class Idempotence:
    """Runs work for keys that are not done yet."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store

    async def run(self, key: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of `work`, or None when the key is done or claimed.

        When `work` raises or the call is cancelled, the claim is released and the exception
        propagates.
        """
        claiming = asyncio.ensure_future(asyncio.to_thread(self._store.claim, key))
        try:
            if not await asyncio.shield(claiming):
                return None
        except asyncio.CancelledError:
            await asyncio.shield(self._undo(claiming, key))
            raise
        try:
            result = await work()
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._store.release, key))
            raise
        await asyncio.shield(asyncio.to_thread(self._store.confirm, key))
        return result

    async def _undo(self, claiming: asyncio.Future[bool], key: str) -> None:
        """Release a claim that its thread may make only after the call was cancelled."""
        await asyncio.wait([claiming])
        if claiming.exception() is None and claiming.result():
            await asyncio.to_thread(self._store.release, key)


class SqliteClaims:
    """A ClaimStore in a SQLite file, which processes of one machine can share. `clock` returns
    seconds since 1970."""

    def __init__(
        self, path: Path | str, *, lease_s: float = LEASE_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._lease_s = lease_s
        self._clock = clock
        self._inherited: list[sqlite3.Connection] = []
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            self._path, timeout=10, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS claims"
            " (key TEXT PRIMARY KEY, done INTEGER NOT NULL, at REAL NOT NULL) WITHOUT ROWID"
        )

    def _locked(self) -> threading.Lock:
        """The lock of the connection. A child made by fork() opens one of its own first: SQLite
        connections may not cross a fork, not even to be closed."""
        if os.getpid() != self._pid:
            self._inherited.append(self._connection)
            self._open()
        return self._lock

    def claim(self, key: str) -> bool:
        """See ClaimStore.claim()."""
        now = self._clock()
        with self._locked():
            found = self._connection.execute(
                "INSERT INTO claims VALUES (?1, 0, ?2) ON CONFLICT (key) DO UPDATE SET at = ?2"
                " WHERE done = 0 AND at <= ?3",
                (key, now, now - self._lease_s),
            )
            return found.rowcount == 1

    def confirm(self, key: str) -> None:
        """See ClaimStore.confirm()."""
        with self._locked():
            self._connection.execute(
                "INSERT INTO claims VALUES (?1, 1, ?2)"
                " ON CONFLICT (key) DO UPDATE SET done = 1, at = ?2",
                (key, self._clock()),
            )

    def release(self, key: str) -> None:
        """See ClaimStore.release()."""
        with self._locked():
            self._connection.execute("DELETE FROM claims WHERE key = ? AND done = 0", (key,))

    def forget_before(self, at: float) -> int:
        """Delete the keys that were done before that time; returns how many."""
        with self._locked():
            found = self._connection.execute("DELETE FROM claims WHERE done = 1 AND at < ?", (at,))
            return found.rowcount

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class RedisClaims:
    """A ClaimStore in Redis. `redis` is a client of the package of that name; keys that are done
    expire after `keep_s` seconds."""

    def __init__(
        self,
        redis: Any,
        *,
        prefix: str = "congreve:claim:",
        lease_s: float = LEASE_S,
        keep_s: float = 7 * 86_400.0,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._lease_ms = int(lease_s * 1000)
        self._keep_ms = int(keep_s * 1000)

    def claim(self, key: str) -> bool:
        """See ClaimStore.claim()."""
        return bool(self._redis.set(self._prefix + key, "claimed", nx=True, px=self._lease_ms))

    def confirm(self, key: str) -> None:
        """See ClaimStore.confirm()."""
        self._redis.set(self._prefix + key, "done", px=self._keep_ms)

    def release(self, key: str) -> None:
        """See ClaimStore.release()."""
        self._redis.delete(self._prefix + key)
