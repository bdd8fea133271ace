"""A member is a store, not a number: who gets a number that another store has."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd

from congreve.broker.election.coordinator import Claim, GroupState, Master, Seat
from congreve.broker.election.etcd import EtcdCoordinator
from congreve.broker.election.frames import SlaveHandshake
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.member import ElectionMember, Follow, Knowledge, Note, Wait
from congreve.broker.election.operator import Operator, OperatorError
from congreve.client import Message, Producer

MASTER = Master(1, 4, "m:1", "m:2")
EMPTY = Knowledge(-1, 0, has_messages=False, store="new")
FULL = Knowledge(4, 0, has_messages=True, store="new", end=100, is_whole=True)


def state(seat: Seat, master: Master | None = MASTER) -> GroupState:
    return GroupState(master, 4, frozenset({1, 2}), (7, 0), seats={2: seat})


def member() -> ElectionMember:
    return ElectionMember(2, "a", "h", MasterLease(3, 0.5))


@pytest.mark.parametrize("known", [EMPTY, FULL])
@pytest.mark.parametrize("master", [MASTER, None])
def test_another_store_claims_the_number_and_does_nothing_else(
    known: Knowledge, master: Master | None
) -> None:
    other = member()
    claim = Claim("new", is_empty=not known.has_messages)
    seat = Seat("old", claim=claim)
    free = state(Seat("old"), master)
    assert other.next_step(free, known) == Note(free, seat)
    step = other.next_step(state(seat, master), known)
    assert isinstance(step, Wait) and "old" in step.why and "new" in step.why
    assert isinstance(member().next_step(state(Seat("new"), MASTER), EMPTY), Follow)


def test_two_stores_that_claim_a_number_do_not_take_turns() -> None:
    one, two = member(), member()
    of_two = EMPTY._replace(store="third")
    free = state(Seat("old"))
    assert isinstance(one.next_step(free, EMPTY), Note)
    claimed = state(Seat("old", claim=Claim("new", is_empty=True)))
    assert isinstance(two.next_step(claimed, of_two), Note)
    claimed = state(Seat("old", claim=Claim("third", is_empty=True)))
    assert isinstance(one.next_step(claimed, EMPTY), Wait)
    assert isinstance(two.next_step(claimed, of_two), Wait)


def test_the_owner_of_a_number_leaves_a_claim_to_the_master() -> None:
    seat = Seat("new", claim=Claim("other", is_empty=False))
    assert isinstance(member().next_step(state(seat), EMPTY), Follow)


def test_a_number_leaves_the_set_before_it_gets_another_store() -> None:
    term = InSyncSet(GroupState(MASTER, 4, frozenset({1, 2}), (1,)), max_lag_s=10)
    term.connected(2, 0)
    term.reported(2, 100, 100, 0)
    assert term.wanted(100, 1) is None
    term.vacate(2)
    assert term.wanted(100, 1) == {1}
    assert term.confirmed(200) == 100


async def in_sync_with_messages(group: ElectedGroup) -> None:
    await group.start(1)
    assert await group.master() == 1
    await group.start(2)
    async with Producer(group.name_server.address, group="p") as producer:
        for _ in range(5):
            await producer.send(Message(topic="T", body=b"body"))
    await eventually(lambda: group.in_sync() == {1, 2})


async def test_an_empty_store_takes_the_number_of_one_that_is_gone(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await in_sync_with_messages(group)
        end = group.broker(1).store.log.max_offset
        await group.stop(2)
        shutil.rmtree(tmp_path / "2")
        await group.start(2)  # no message waits for the member that is away
        await eventually(lambda: group.broker(2).store.log.max_offset == end)
        await eventually(lambda: group.in_sync() == {1, 2})
        await group.stop(1)
        assert await group.master() == 2


async def test_an_empty_store_waits_while_the_number_is_connected(
    tmp_path: Path, etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await in_sync_with_messages(group)
        await group.start(3, brokerId="2")
        await eventually(lambda: "brokerId 2 belongs to the store" in caplog.text)
        assert group.in_sync() == {1, 2}
        assert group.broker(3).store.log.max_offset == 0
        await group.stop(2)
        end = group.broker(1).store.log.max_offset
        await eventually(lambda: group.broker(3).store.log.max_offset == end)
        # The first one comes back, and finds that its number is another store's.
        caplog.clear()
        await group.start(2)
        await eventually(lambda: "brokerId 2 belongs to the store" in caplog.text)


async def test_a_peer_without_a_store_does_not_take_a_members_place(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await in_sync_with_messages(group)
        term = group.members[1].term
        assert term is not None
        reader, writer = await asyncio.open_connection(*term.master.ha_address.split(":"))
        writer.write(SlaveHandshake(2).encode())
        assert await asyncio.wait_for(reader.read(100), 60) == b""
        writer.close()
        async with Producer(group.name_server.address, group="p") as producer:
            await producer.send(Message(topic="T", body=b"body"))
        assert group.broker(2).store.log.max_offset == group.broker(1).store.log.max_offset
        assert group.in_sync() == {1, 2}


async def test_an_operator_gives_a_number_to_a_store_with_messages(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await in_sync_with_messages(group)
        coordinator = EtcdCoordinator(
            [etcd.url], "DefaultCluster", f"g-{tmp_path.name}", timeout_s=30
        )
        operator = Operator(coordinator, "root@host", ttl_s=1, timeout_s=60)
        for number, why in ((1, "is the master"), (2, "no other store runs")):
            with pytest.raises(OperatorError, match=why):
                await operator.replace(number)
        first = group.broker(2).store.identity
        await group.stop(2)
        own = next((tmp_path / "2").glob("**/identity.json"))
        for each in own.parent.glob("identity.json*"):
            each.unlink()
        await group.start(2)

        async def is_claimed() -> bool:
            seat = (await coordinator.read()).seats[2]
            assert seat.store == first
            return seat.claim is not None and not seat.claim.is_empty

        await eventually(is_claimed)
        assert group.in_sync() == {1, 2}, "no message waits for it"
        second = group.broker(2).store.identity
        assert await operator.replace(2) == second != first
        assert (await coordinator.read()).seats[2] == Seat(second)
        async with Producer(group.name_server.address, group="p") as producer:
            await producer.send(Message(topic="T", body=b"body"))
        await eventually(lambda: group.in_sync() == {1, 2})
