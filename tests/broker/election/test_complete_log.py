"""A member that stopped uncleanly is not elected before it is known what its log lacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd
from harness.replication.replicas import log_bytes

from congreve.broker.election.complete_log import CleanStop, CleanStopFile, CompleteLog
from congreve.broker.election.coordinator import GroupState, LogEnd, Master, Seat
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.member import Elect, ElectionMember, Follow, Knowledge, Note, Wait
from congreve.client import Message, Producer
from congreve.engine.state.epochs import Epochs
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

LEFT = CleanStop("store", end=100, epoch=4)
TOPIC = "T"


def life(folder: Path) -> CompleteLog:
    log = CompleteLog(CleanStopFile(str(folder)))
    log.load()
    return log


def test_only_a_log_that_is_as_it_was_left_is_whole(tmp_path: Path) -> None:
    for found, found_clean, whole in (
        (LEFT, True, True),
        (LEFT, False, False),  # another version has used the store since, and was killed
        (CleanStop("store", 99, 4), True, False),
        (CleanStop("store", 100, 3), True, False),
        (CleanStop("copy", 100, 4), True, False),
    ):
        CleanStopFile(str(tmp_path)).save(LEFT)
        log = life(tmp_path)
        log.opened(found, found_clean=found_clean)
        assert log.is_whole is whole
        assert list(tmp_path.iterdir()) == []  # while it runs there is no mark


def test_a_log_is_not_whole_again_by_a_clean_stop(tmp_path: Path) -> None:
    killed = life(tmp_path)
    killed.opened(LEFT, found_clean=True)
    assert not killed.is_whole
    killed.closed(LEFT, left_clean=True)
    killed.save()
    after = life(tmp_path)
    after.opened(LEFT, found_clean=True)
    assert not after.is_whole
    after.admitted(5)
    after.closed(LEFT, left_clean=False)  # its disk has failed
    after.save()
    again = life(tmp_path)
    again.opened(LEFT, found_clean=True)
    assert not again.is_whole
    again.admitted(5)
    again.closed(LEFT, left_clean=True)
    again.save()
    last = life(tmp_path)
    last.opened(LEFT, found_clean=True)
    assert last.is_whole


def test_a_damaged_mark_is_none(tmp_path: Path) -> None:
    CleanStopFile(str(tmp_path)).save(LEFT)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace("100", "101"))
    assert CleanStopFile(str(tmp_path)).take() is None
    assert CleanStopFile(str(tmp_path)).take() is None


def member(number: int) -> ElectionMember:
    return ElectionMember(number, "a", "h", MasterLease(3, 0.5))


def test_the_longest_log_is_elected_once_all_of_the_set_wait() -> None:
    known = {
        1: Knowledge(4, 4, True, "one", 300),
        2: Knowledge(5, 0, True, "two", 200),
        3: Knowledge(5, 0, True, "three", 250),
    }
    seats = {number: Seat(mine.store) for number, mine in known.items()}
    state = GroupState(None, 5, frozenset(known), (7, 0), seats=seats)
    for number, mine in known.items():
        step = member(number).next_step(state, mine)
        seat = Seat(mine.store, LogEnd(5, mine.newest_epoch, mine.end))
        assert step == Note(state, seat)
        others = GroupState(None, 5, frozenset(known), (7, 0), seats={**state.seats, number: seat})
        assert isinstance(member(number).next_step(others, mine), Wait) is (number != 3)
        state = others
    steps = {number: member(number).next_step(state, mine) for number, mine in known.items()}
    assert steps[3] == Elect(state, Master(3, 6, "a", "h", asks_store=True))
    assert isinstance(steps[1], Wait) and isinstance(steps[2], Wait)
    shorter = known[3]._replace(end=240)
    assert isinstance(member(3).next_step(state, shorter), Note)  # it has stopped again since
    # An election makes void what was said before it.
    later = GroupState(None, 6, frozenset(known), (8, 0), seats=state.seats)
    assert isinstance(member(3).next_step(later, known[3]), Note)


def test_a_member_with_a_complete_log_does_not_wait_for_others() -> None:
    state = GroupState(None, 5, frozenset({1, 2}), (7, 0), seats={1: Seat("one")})
    for complete in ({"is_whole": True}, {"admitted_in": 5}):
        known = Knowledge(5, 0, True, "one", 300, **complete)  # type: ignore[arg-type]
        assert isinstance(member(1).next_step(state, known), Elect)
    known = Knowledge(5, 0, True, "one", 300, admitted_in=4)
    assert isinstance(member(1).next_step(state, known), Note)


def test_a_member_takes_back_its_logs_end_before_it_follows() -> None:
    master = Master(2, 5, "a", "h")
    waits = {1: Seat("one", LogEnd(5, 5, 300))}
    state = GroupState(master, 5, frozenset({1, 2}), (7, 0), seats=waits)
    known = Knowledge(5, 0, True, "one", 300)
    assert member(1).next_step(state, known) == Note(state, Seat("one"))
    free = GroupState(master, 5, frozenset({1, 2}), (7, 0), seats={1: Seat("one")})
    assert member(1).next_step(free, known) == Follow(master)


async def filled(group: ElectedGroup) -> None:
    """Members 1 and 2, in the set with ten messages."""
    await group.start(1)
    assert await group.master() == 1
    await group.start(2)
    async with Producer(group.name_server.address, group="p") as producer:
        for _ in range(10):
            await producer.send(Message(topic=TOPIC, body=b"body"))
    await eventually(lambda: group.in_sync() == {1, 2})
    end = group.broker(1).store.log.max_offset
    await eventually(lambda: group.broker(2).store.log.max_offset == end)


def shorten(store: MessageStore, epochs: Epochs) -> None:
    """Let the store end with its last but one record."""
    with MessageStore(store.config) as opened:
        queues = [queue for queue in opened.queues if queue.max > queue.min]
        last = max(queue[queue.max - 1][0] for queue in queues)
    assert last > epochs.entries[-1].start
    cut = MessageStore(store.config)
    cut.start(cut_at=last)
    cut.close()


async def test_a_member_that_lost_the_end_of_its_log_waits_for_the_other(
    tmp_path: Path, etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await filled(group)
        store, end = group.broker(2).store, group.broker(2).store.log.max_offset
        epochs = group.members[2]._epochs.epochs
        assert not list(tmp_path.glob("**/clean-stop.json*"))
        await group.stop(2)
        await group.stop(1)
        assert len(list(tmp_path.glob("**/clean-stop.json*"))) == 2
        shorten(store, epochs)
        await group.start(2)
        await eventually(lambda: "stopped uncleanly" in caplog.text)
        assert not group.members[2].is_master
        await group.start(1)
        assert await group.master() == 1
        await eventually(lambda: group.broker(2).store.log.max_offset == end)
        await eventually(lambda: group.in_sync() == {1, 2})
        # It has caught up, and may be elected again.
        await group.stop(1)
        assert await group.master() == 2


async def test_after_a_power_cut_of_all_the_longest_log_is_elected(
    tmp_path: Path, etcd: Etcd
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await filled(group)
        store, end = group.broker(1).store, group.broker(1).store.log.max_offset
        epochs = group.members[1]._epochs.epochs
        await group.stop(2)
        await group.stop(1)
        for mark in tmp_path.glob("**/clean-stop.json*"):
            mark.unlink()
        shorten(store, epochs)
        await group.start(1)
        await group.start(2)
        assert await group.master() == 2
        await eventually(lambda: group.in_sync() == {1, 2})
        await eventually(lambda: group.broker(1).store.log.max_offset == end)


async def test_a_member_with_a_damaged_log_gets_what_was_damaged(
    tmp_path: Path, etcd: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await filled(group)
        store = group.broker(2).store
        root = Path(store.config.root_dir)
        await eventually((root / "congreve" / "durable.json").exists)
        queues = [queue for queue in store.queues if queue.topic == TOPIC]
        offset = sorted(queue[each][0] for queue in queues for each in range(queue.max))[4]
        image = tmp_path / "image"
        shutil.copytree(root, image)  # as a kill leaves it
        await group.stop(2)
        shutil.rmtree(root)
        image.rename(root)
        segment = min(Path(store.config.commit_log_dir).iterdir())
        with segment.open("r+b") as file:
            file.seek(segment.read_bytes().index(b"body", offset))
            file.write(b"Body")
        await group.start(2)
        of_master = Path(group.broker(1).store.config.root_dir)
        await eventually(lambda: log_bytes(root) == log_bytes(of_master))
        await eventually(lambda: group.in_sync() == {1, 2})
        # A master that is busy does not answer in time: then the member copies the rest again.
        assert "are repaired, from the log of" in caplog.text or "it is cut there" in caplog.text


async def test_a_member_follows_a_master_with_a_damaged_log(tmp_path: Path, etcd: Etcd) -> None:
    async with ElectedGroup(tmp_path, etcd) as group:
        await group.start(1)
        assert await group.master() == 1
        store = group.broker(1).store
        places = [store.put(Record(topic=TOPIC, body=b"body")).physical_offset for _ in range(20)]
        segment = min(Path(store.config.commit_log_dir).iterdir())
        with segment.open("r+b") as file:
            file.seek(segment.read_bytes().index(b"body", places[7]))
            file.write(b"Body")
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        await eventually(lambda: group.broker(2).store.max_offset(TOPIC, 0) == len(places))
