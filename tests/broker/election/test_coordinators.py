"""Both coordinators give the same guarantees, with a real etcd and a stand-in for Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.etcd import Etcd
from harness.servers import free_port

from congreve.broker.election.coordinator import (
    Coordinator,
    CoordinatorError,
    ElectRequest,
    GroupState,
    LeaseLostError,
    LogEnd,
    Master,
    OutcomeUnknownError,
    Seat,
    StateChangedError,
)
from congreve.broker.election.etcd import EtcdCoordinator
from congreve.broker.election.json_http import JsonHttp
from congreve.broker.election.kubernetes import KubernetesCoordinator
from congreve.broker.errors import ConfigError

from .fake_kubernetes import FakeKubernetes

Make = Callable[[str], Coordinator]
Service = Callable[[], AbstractAsyncContextManager[Make]]
LONG_S = 600
SHORT_S = 1


def candidate(member: int, epoch: int) -> Master:
    return Master(member, epoch, f"127.0.0.1:{10 * member}", f"127.0.0.1:{10 * member + 1}")


async def test_the_first_election_of_a_group_succeeds(service: Service) -> None:
    async with service() as make:
        mine, other = make("g"), make("g")
        assert await mine.read() == GroupState(None, 0, frozenset(), (await mine.read()).guard)
        elected = await mine.elect(await mine.read(), candidate(1, 1), LONG_S)
        assert (elected.master, elected.epoch, elected.in_sync) == (candidate(1, 1), 1, {1})
        assert await other.read() == elected
        await mine.keep_alive()
        assert (await make("another").read()).epoch == 0


async def test_one_of_two_candidates_wins(service: Service) -> None:
    async with service() as make:
        members = {number: make("g") for number in (1, 2)}
        seen = {number: await members[number].read() for number in members}
        outcomes = await asyncio.gather(
            *(members[each].elect(seen[each], candidate(each, 1), LONG_S) for each in members),
            return_exceptions=True,
        )
        won = [outcome for outcome in outcomes if isinstance(outcome, GroupState)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, StateChangedError)]
        assert (len(won), len(lost)) == (1, 1)
        assert await members[1].read() == won[0]


async def test_only_the_holder_of_the_lease_changes_the_set(service: Service) -> None:
    async with service() as make:
        mine, other = make("g"), make("g")
        first = await mine.elect(await mine.read(), candidate(1, 1), LONG_S)
        grown = await mine.change_set(first, frozenset({1, 2}), 1)
        assert grown.in_sync == {1, 2}
        assert await other.read() == grown
        with pytest.raises(StateChangedError):
            await mine.change_set(first, frozenset({1, 3}), 1)
        await mine.resign()
        free = await other.read()
        assert (free.master, free.epoch, free.in_sync) == (None, 1, {1, 2})
        second = await other.elect(free, candidate(2, 2), LONG_S)
        with pytest.raises((StateChangedError, LeaseLostError)):
            await mine.change_set(grown, frozenset({1}), 1)
        with pytest.raises(LeaseLostError):
            await mine.keep_alive()
        assert await mine.read() == second
        # Member 1 has all that is acknowledged until the new master changes the set.
        assert (second.in_sync, second.since) == ({1, 2}, 1)
        alone = await other.change_set(second, frozenset({2}), 2)
        assert (alone.in_sync, alone.set_epoch) == ({2}, 2)
        assert await mine.read() == alone


async def test_an_operators_request_stays_until_the_next_election(service: Service) -> None:
    async with service() as make:
        mine, operator = make("g"), make("g")
        first = ElectRequest(1, "root@host", unclean=True)
        asked = await operator.request_election(await operator.read(), first)
        assert asked.request == first
        assert await mine.read() == asked
        elected = await mine.elect(asked, candidate(1, 1_000), LONG_S)
        assert elected.request is None
        assert (await mine.read()).request is None
        second = ElectRequest(2, "root@host")
        with pytest.raises(StateChangedError):
            await operator.request_election(asked, second)
        again = await operator.request_election(await operator.read(), second)
        assert (again.master, again.in_sync, again.request) == (candidate(1, 1_000), {1}, second)
        with pytest.raises(StateChangedError):
            await mine.change_set(elected, frozenset({1, 2}), 1)  # it has not seen the request
        await mine.keep_alive()
        assert await mine.read() == again
        await mine.resign()
        assert (await operator.request_election(await operator.read(), None)).request is None


async def test_a_seat_is_noted_in_the_state_that_its_member_has_seen(service: Service) -> None:
    async with service() as make:
        mine, other = make("g"), make("g")
        seen = await mine.read()
        first = await mine.note(seen, 1, Seat("a"))
        assert first.seats == {1: Seat("a")}
        with pytest.raises(StateChangedError):
            await other.note(seen, 2, Seat("b"))
        waits = Seat("b", LogEnd(waits_in=0, epoch=-1, end=7))
        both = await other.note(first, 2, waits)
        assert await mine.read() == both
        with pytest.raises(StateChangedError):
            await mine.elect(first, candidate(1, 1), LONG_S)
        elected = await mine.elect(both, candidate(1, 1), LONG_S)
        assert elected.seats == {1: Seat("a"), 2: waits}
        noted = await other.note(elected, 2, Seat("b"))
        assert (noted.master, noted.seats[2]) == (elected.master, Seat("b"))
        await mine.keep_alive()
        # The master does not have to know the newest seats.
        grown = await mine.change_set(elected, frozenset({1, 2}), 1)
        assert (grown.in_sync, (await mine.read()).seats) == ({1, 2}, noted.seats)
        await mine.resign()


async def test_members_of_an_earlier_version_keep_seats_and_ignore_them(service: Service) -> None:
    """They write the state without them, and read it with fields that they do not know."""
    async with service() as make:
        mine = make("g")
        noted = await mine.note(await mine.read(), 1, Seat("a"))
        elected = await mine.elect(noted, candidate(2, 1), LONG_S)
        assert elected.seats == (await make("g").read()).seats == {1: Seat("a")}


async def test_a_lease_without_renewals_ends(service: Service) -> None:
    async with service() as make:
        mine, other = make("g"), make("g")
        held = await mine.elect(await mine.read(), candidate(1, 1), SHORT_S)

        async def is_free() -> bool:
            return (await other.changed(held, 0.2)).master is None

        await eventually(is_free)
        await other.elect(await other.read(), candidate(2, 2), LONG_S)
        with pytest.raises(LeaseLostError):
            await mine.keep_alive()


async def test_a_change_ends_the_wait_for_one(service: Service) -> None:
    async with service() as make:
        mine, other = make("g"), make("g")
        seen = await other.read()
        waiting = asyncio.create_task(other.changed(seen, LONG_S))
        elected = await mine.elect(await mine.read(), candidate(1, 1), LONG_S)
        assert await waiting == elected
        waiting = asyncio.create_task(other.changed(elected, LONG_S))
        grown = await mine.change_set(elected, frozenset({1, 2}), 1)
        assert await waiting == grown
        assert await other.changed(grown, 0.01) == grown


async def test_a_member_waits_for_a_change_after_etcd_has_compacted_its_history(
    etcd: Etcd, tmp_path: Path
) -> None:
    mine, busy = (
        EtcdCoordinator([etcd.url], "test", f"{tmp_path.name}-{group}", timeout_s=LONG_S)
        for group in ("g", "busy")
    )
    seen = await mine.elect(await mine.read(), candidate(1, 1), LONG_S)
    other = await busy.elect(await busy.read(), candidate(1, 1), LONG_S)
    for number in (2, 3):
        other = await busy.change_set(other, frozenset({1, number}), 1)
    answer = await JsonHttp(etcd.url).request(
        "POST", "/v3/kv/compaction", {"revision": str(other.guard[1])}, LONG_S
    )
    assert answer.status == 200
    waiting = asyncio.create_task(mine.changed(seen, LONG_S))
    await asyncio.wait({waiting}, timeout=1)
    assert not waiting.done()
    grown = await mine.change_set(seen, frozenset({1, 2}), 1)
    assert await waiting == grown


async def test_an_absent_and_a_paused_server_are_different_errors(tmp_path: Path) -> None:
    nothing = f"http://127.0.0.1:{free_port()}"
    absent = EtcdCoordinator([nothing], "c", "g", timeout_s=5)
    with pytest.raises(CoordinatorError) as refused:
        await absent.change_set(GroupState(guard=(1, 1, 1)), frozenset(), 1)
    assert not isinstance(refused.value, OutcomeUnknownError)
    server = Etcd(tmp_path)
    server.start()
    try:
        # An endpoint that nothing listens on does not keep the next one from answering.
        both = EtcdCoordinator([nothing, server.url], "c", "g", timeout_s=30)
        held = await both.elect(await both.read(), candidate(1, 1), LONG_S)
        server.pause()
        hasty = EtcdCoordinator([server.url], "c", "g", timeout_s=0.2)
        with pytest.raises(OutcomeUnknownError):
            await hasty.change_set(held, frozenset({1, 2}), 1)
        server.resume()
        after = await both.read()
        assert after.in_sync in ({1}, {1, 2})  # the transaction may have been carried out
    finally:
        server.stop()


async def test_a_lost_answer_of_kubernetes_is_an_unknown_outcome() -> None:
    api = FakeKubernetes()
    await api.start()
    mine = KubernetesCoordinator(JsonHttp(api.url), "test", "g", timeout_s=30)
    held = await mine.elect(await mine.read(), candidate(1, 1), LONG_S)
    api.lose_answers = True
    with pytest.raises(OutcomeUnknownError):
        await mine.change_set(held, frozenset({1, 2}), 1)
    api.lose_answers = False
    assert (await mine.read()).in_sync == {1, 2}
    await mine.keep_alive()
    await api.stop()


@pytest.mark.parametrize("url", ["127.0.0.1:2379", "ftp://x", "http://", "http://x/path"])
def test_the_error_for_an_invalid_address_names_it(url: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        JsonHttp(url)
