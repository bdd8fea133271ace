"""Failures of RocketMQ 5's controller mode that users reported; issue numbers are in the names."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd

from congreve.base.errors import CongreveError
from congreve.broker.election.coordinator import GroupState, Master, Seat
from congreve.broker.election.fence import NO_LIMIT, Fence
from congreve.broker.election.frames import Report, SlaveHandshake
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.member import Elect, ElectionMember, Knowledge, Wait
from congreve.broker.election.slave_link import AutoSwitchConnection
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.client import Message, Producer, PushConsumer
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.state.epochs import Epoch, Epochs
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

MASTER = Master(1, 4, "m:1", "m:2")


def term(*members: int) -> InSyncSet:
    return InSyncSet(GroupState(MASTER, 4, frozenset(members), (1,)), max_lag_s=10)


def test_6662_an_isolated_master_with_one_slave_acknowledges_no_message() -> None:
    mine = term(1, 2, 3)
    for member in (2, 3):
        mine.connected(member, 0)
        mine.reported(member, 100, 100, 0)
    mine.reported(3, 200, 200, 1)
    assert mine.confirmed(200) == 100


def test_9897_two_slaves_that_are_lost_together_leave_in_one_change() -> None:
    mine = term(1, 2, 3)
    for member in (2, 3):
        mine.connected(member, 0)
        mine.reported(member, 100, 100, 0)
        mine.disconnected(member)
    assert mine.wanted(100, 1) is None  # no message waits for them yet
    assert mine.wanted(200, 1) == {1}
    mine.propose(frozenset({1}))
    assert mine.confirmed(200) == 100  # not before the change has happened
    mine.committed(GroupState(MASTER, 4, frozenset({1}), (2,)))
    assert mine.confirmed(200) == 200


def test_no_member_leaves_a_set_that_would_be_too_small() -> None:
    """It has all that is acknowledged, and may become the master."""
    mine = InSyncSet(GroupState(MASTER, 4, frozenset({1, 2, 3}), (1,)), max_lag_s=10, min_in_sync=2)
    for member in (2, 3):
        mine.connected(member, 0)
        mine.reported(member, 100, 100, 0)
        mine.disconnected(member)
    assert mine.wanted(200, 1) is None
    assert not mine.is_large_enough
    assert (mine.confirmed(200), mine.acknowledged) == (-1, 0)
    mine.connected(3, 2)
    mine.begun(3, 100)
    mine.reported(3, 200, 200, 2)
    assert mine.wanted(200, 2) == {1, 3}


def test_the_set_of_the_term_before_counts_until_all_have_what_was_there() -> None:
    before = GroupState(None, 4, frozenset({1, 2, 3}), (1,))
    state = before.elected(Master(1, 5, "m:1", "m:2"))
    assert (state.in_sync, state.epoch, state.set_epoch) == ({1, 2, 3}, 5, 4)
    mine = InSyncSet(state, 100, max_lag_s=10, min_in_sync=2)
    assert mine.confirmed(100) == -1
    assert mine.wanted(100, 0) is None
    for member in (2, 3):
        mine.connected(member, 0)
    mine.reported(2, 100, 100, 0)
    assert mine.wanted(100, 0) is None
    mine.reported(3, 90, 100, 0)
    assert mine.since(frozenset({1, 2, 3})) == 4
    mine.reported(3, 100, 100, 0)
    assert mine.wanted(100, 0) == {1, 2, 3}
    assert mine.since(frozenset({1, 2, 3})) == 5


def test_a_lost_answer_keeps_both_sets_required() -> None:
    mine = term(1, 2)
    mine.connected(2, 0)
    mine.reported(2, 100, 100, 0)
    mine.connected(3, 0)
    mine.reported(3, 100, 100, 0)
    assert mine.wanted(100, 0) == {1, 2, 3}
    mine.propose(frozenset({1, 2, 3}))
    mine.reported(2, 200, 200, 1)
    assert mine.confirmed(200) == 100
    assert mine.wanted(200, 1) is None


def test_a_slave_that_begins_behind_enters_when_it_has_caught_up() -> None:
    mine = term(1)
    assert mine.confirmed(200) == 200
    mine.connected(2, 0)
    assert mine.wanted(200, 0) is None  # messages do not wait for one that has reported nothing
    assert mine.required == {1}
    mine.begun(2, 100)
    assert mine.admits(2)
    mine.reported(2, 200, 200, 1)
    assert mine.wanted(200, 1) == {1, 2}


def test_numbers_that_connect_once_are_forgotten() -> None:
    mine = term(1, 2)
    mine.connected(2, 0)
    mine.reported(2, 100, 100, 0)
    empty = sys.getsizeof(mine._slaves)
    for number in range(3, 1000):
        mine.connected(number, 0)
        mine.disconnected(number)
    assert sys.getsizeof(mine._slaves) == empty
    mine.disconnected(2)
    assert mine.confirmed(200) == 100  # what a member of the set has reported stays true


def test_5009_8380_9717_10875_a_failed_election_is_repeated() -> None:
    member = ElectionMember(1, "a", "h", MasterLease(3, 0.5))
    known = Knowledge(newest_epoch=4, claimed=0, has_messages=True, store="one", is_whole=True)
    seats = {1: Seat("one")}
    free = GroupState(None, 4, frozenset({1, 2}), (7,), seats=seats)
    steps = [member.next_step(free, known) for _ in range(3)]
    assert steps == [Elect(free, Master(1, 5, "a", "h", asks_store=True))] * 3
    for state, mine in (
        (GroupState(None, 4, frozenset({2}), (7,), seats=seats), known),  # not in the set
        (free, known._replace(newest_epoch=3)),  # another disk than the one that was in the set
        (free, known._replace(newest_epoch=9)),  # etcd has lost its data
    ):
        assert isinstance(member.next_step(state, mine), Wait)


@contextmanager
def slave_and_master(
    store: MessageStore, fence: Fence, epochs: Epochs
) -> Iterator[tuple[socket.socket, AutoSwitchConnection]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slave = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    peer.setblocking(False)
    connection = AutoSwitchConnection(peer, store.log, 1 << 16, 0.0, fence=fence, epochs=epochs)
    with slave:
        yield slave, connection
        connection.close()


def wait_readable(connection: AutoSwitchConnection) -> None:
    connection.socket.setblocking(True)
    connection.socket.recv(1, socket.MSG_PEEK)
    connection.socket.setblocking(False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(root_dir=str(tmp_path), mapped_file_size_commit_log=1 << 16)
    with MessageStore(config) as opened:
        for _ in range(5):
            opened.put(Record(topic="T", body=b"x" * 100))
        yield opened


@pytest.fixture
def fence(store: MessageStore) -> Fence:
    """The fence of a master that is alone in its set; no message waits for a slave."""
    confirm = ConfirmOffset(store.backend, waits_for_disk=False, waits_for_slaves=True)
    lease = MasterLease(1000, 1)
    lease.renewed(lease.now())
    opened = Fence(term(1), lease, store.log, confirm, lease.now, show=store.show_below)
    opened.open()
    assert confirm.confirmed_offset == NO_LIMIT
    return opened


@pytest.mark.parametrize(
    "unknown_peer",
    [
        b"\x00" * 16,
        b"GET / HTTP/1.1\r\n\r\n",
        Report(0).encode(),
        SlaveHandshake(1).encode(),
        SlaveHandshake(2).encode() * 2,
        SlaveHandshake(2).encode() + Report(1 << 40).encode(),
    ],
)
def test_10956_an_unknown_peer_on_the_port_is_disconnected(
    store: MessageStore, fence: Fence, unknown_peer: bytes
) -> None:
    with slave_and_master(store, fence, Epochs((Epoch(4, 0),))) as (slave, connection):
        slave.sendall(unknown_peer)
        wait_readable(connection)
        with pytest.raises(ReplicationError):
            while True:
                connection.read(0.0)
                wait_readable(connection)
    assert fence.term.required == {1}


@pytest.mark.parametrize("learner", [False, True])
def test_a_learner_gets_the_log_and_never_enters_the_set(
    store: MessageStore, fence: Fence, learner: bool
) -> None:
    """RocketMQ 5: asyncLearner."""
    end = store.log.max_offset
    with slave_and_master(store, fence, Epochs((Epoch(4, 0),))) as (slave, connection):
        slave.sendall(SlaveHandshake(2, learner=learner).encode() + Report(0).encode())
        while not connection.started:
            wait_readable(connection)
            connection.read(0.0)
        while connection.next < end:
            connection.send(end, 0.0)
        slave.sendall(Report(end).encode())
        while connection.acknowledged < end:
            wait_readable(connection)
            connection.read(0.0)
        fence.proposal()  # messages begin to wait for a slave first
        fence.proposal()
        assert fence.proposal() == (None if learner else {1, 2})


async def test_7689_9689_9804_7923_the_new_master_continues_the_data_of_the_old_one(
    tmp_path: Path, etcd: Etcd
) -> None:
    """Queue offsets, a log with several epochs of one master, topics, and messages due later."""
    async with ElectedGroup(tmp_path, etcd) as group:
        for _ in range(2):  # two epochs without another member
            await group.start(1)
            await group.master()
            async with Producer(group.name_server.address, group="p") as producer:
                first = await producer.send(Message(topic="T", body=b"now"))
                queue = first.queue
                await group.stop(1)
        await group.start(1)
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        async with Producer(group.name_server.address, group="p") as producer:

            async def sent() -> bool:
                try:
                    await producer.send(Message(topic="T", body=b"later", delay_level=2))
                except CongreveError:
                    return False
                return True

            await eventually(sent)
            table = group.broker(1).managers.metadata.topics.table
            await eventually(
                lambda: group.broker(2).managers.metadata.topics.table.keys() >= table.keys()
            )
            before = group.broker(1).store.max_offset("T", queue.queue_id)
            await group.stop(1)
            assert await group.master() == 2
            assert group.broker(2).store.max_offset("T", queue.queue_id) >= before
        received: list[bytes] = []
        async with PushConsumer(
            group.name_server.address, group="c", topics={"T": "*"}
        ) as consumer:
            async for message in consumer:
                received.append(message.body)
                if b"later" in received:
                    break
        assert received.count(b"later") == 1
