"""Work that is done once for each key."""

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from congreve.client.producer.idempotence import ClaimStore, Idempotence, RedisClaims, SqliteClaims


class Redis:
    """The part of a client that RedisClaims needs; its clock is stopped."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str, *, nx: bool = False, px: int) -> bool | None:
        assert px > 0
        if nx and key in self.values:
            return None
        self.values[key] = value
        return True

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ClaimStore:
    if request.param == "redis":
        return RedisClaims(Redis())
    return SqliteClaims(tmp_path / "claims.db")


async def test_work_runs_once_for_each_key(store: ClaimStore) -> None:
    done: list[str] = []

    async def work() -> str:
        done.append("x")
        return "result"

    once = Idempotence(store)
    assert [await once.run(key, work) for key in ("a", "a", "b")] == ["result", None, "result"]
    assert len(done) == 2


async def test_failed_or_cancelled_work_may_be_repeated(store: ClaimStore) -> None:
    once = Idempotence(store)

    async def fail() -> None:
        raise ZeroDivisionError

    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def succeed() -> int:
        return 1

    with pytest.raises(ZeroDivisionError):
        await once.run("a", fail)
    task = asyncio.create_task(once.run("a", hang))
    await begun.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert await once.run("a", succeed) == 1


class SlowClaims:
    """A store that claims when the test decides."""

    def __init__(self) -> None:
        self.asked, self.may_claim = threading.Event(), threading.Event()
        self.released = threading.Event()

    def claim(self, key: str) -> bool:
        self.asked.set()
        return self.may_claim.wait(60)

    def confirm(self, key: str) -> None:
        raise AssertionError("no work was done")

    def release(self, key: str) -> None:
        self.released.set()


async def test_a_call_that_is_cancelled_while_it_claims_leaves_no_claim() -> None:
    async def work() -> None:
        raise AssertionError("the call was cancelled")

    store = SlowClaims()
    task = asyncio.create_task(Idempotence(store).run("a", work))
    await asyncio.to_thread(store.asked.wait, 60)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not store.released.is_set()
    store.may_claim.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(store.released.wait, 60)


def test_one_of_many_threads_and_connections_gets_the_key(tmp_path: Path) -> None:
    stores = [SqliteClaims(tmp_path / "claims.db") for _ in range(4)]
    won: list[int] = []

    def compete(store: SqliteClaims) -> None:
        for key in range(50):
            if store.claim(str(key)):
                won.append(key)

    threads = [threading.Thread(target=compete, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(50))


def test_the_claim_of_a_dead_worker_expires_and_finished_work_stays(tmp_path: Path) -> None:
    now = [1000.0]
    store = SqliteClaims(tmp_path / "claims.db", lease_s=60, clock=lambda: now[0])
    assert store.claim("a")
    now[0] += 59
    assert not store.claim("a")
    now[0] += 1
    assert store.claim("a")
    store.confirm("a")
    now[0] += 1_000_000
    store.close()
    again = SqliteClaims(tmp_path / "claims.db", clock=lambda: now[0])
    assert not again.claim("a")
    assert again.forget_before(now[0]) == 1
    assert again.claim("a")


def test_a_damaged_file_does_not_count_as_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "claims.db").write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteClaims(tmp_path / "claims.db")
