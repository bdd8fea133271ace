"""A log that arrives byte for byte from another store."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreFormatError
from congreve.engine.log.watch import watch
from congreve.engine.replication.log_receiver import LogReceiver
from congreve.engine.store import MessageStore
from congreve.io_backends.backends import BACKENDS, refusal
from congreve.io_backends.errors import BackendError
from congreve.records.message.message import Record

SEGMENT = 1 << 16


def config(folder: Path, **settings: object) -> StoreConfig:
    values = {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 20 * 50,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "flush_disk_type": "ASYNC_FLUSH",
    }
    return StoreConfig(root_dir=str(folder), **{**values, **settings})


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MessageStore]:
    """A store of several segments with messages of many sizes."""
    chance = random.Random(1)
    with MessageStore(config(tmp_path / "master")) as store:
        for number in range(300):
            record = Record(
                topic=f"T{number % 3}",
                queue_id=number % 2,
                body=chance.randbytes(chance.choice([0, 10, 700, 5000])),
                properties={"KEYS": f"k{number}", "TAGS": "a"},
            )
            assert store.put(record).end
        yield store


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore(config(tmp_path / "slave")) as store:
        yield store


def log_of(store: MessageStore) -> bytes:
    return log_of_segments(store)[: store.log.max_offset]


def receive(receiver: LogReceiver, data: bytes, chance: random.Random) -> None:
    """Hand over `data` in pieces of any size."""
    while data:
        room = receiver.writable(min(chance.choice([1, 7, 90, 4000, 1 << 18]), len(data)))
        room[:] = data[: len(room)]
        data = data[len(room) :]
        receiver.take(len(room))


def queues_of(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    return {
        (queue.topic, queue.queue_id): [queue[i] for i in range(queue.min, queue.max)]
        for queue in store.queues
    }


@pytest.mark.parametrize("seed", range(5))
def test_bytes_in_pieces_become_the_same_log_and_queues(
    master: MessageStore, slave: MessageStore, seed: int
) -> None:
    receiver = LogReceiver(slave)
    receive(receiver, log_of(master), random.Random(seed))
    assert receiver.received == slave.log.max_offset == master.log.max_offset
    assert log_of(slave) == log_of(master)
    assert queues_of(slave) == queues_of(master)


def test_a_part_of_a_record_is_not_in_the_log(master: MessageStore, slave: MessageStore) -> None:
    data = log_of(master)
    receiver = LogReceiver(slave)
    for upto in range(1, 300):
        receive(receiver, data[upto - 1 : upto], random.Random(0))
        assert slave.log.max_offset in (0, *(end for end in ends(master) if end <= upto))
    receiver.drop_partial()
    rest = slave.log.max_offset
    assert receiver.received == rest
    receive(receiver, data[rest:], random.Random(0))
    assert log_of(slave) == data


def ends(store: MessageStore) -> list[int]:
    return sorted(
        offset + size
        for queue in store.queues
        for offset, size, _ in (queue[i] for i in range(queue.max))
    )


@pytest.mark.parametrize("at", [0, 4, 8, 28])
def test_invalid_records_are_refused(master: MessageStore, slave: MessageStore, at: int) -> None:
    data = bytearray(log_of(master)[: ends(master)[2]])
    data[at] ^= 0x55
    receiver = LogReceiver(slave)
    with pytest.raises(StoreFormatError):
        receive(receiver, bytes(data), random.Random(0))
    assert slave.log.max_offset == 0


def test_a_record_before_an_invalid_one_is_dropped_with_it(
    master: MessageStore, slave: MessageStore
) -> None:
    data = bytearray(log_of(master)[: ends(master)[3]])
    receiver = LogReceiver(slave)
    receive(receiver, bytes(data[: ends(master)[0]]), random.Random(0))
    good = bytes(data[ends(master)[0] :])
    data[ends(master)[2] + 4] ^= 0x55
    room = receiver.writable(len(good))
    room[:] = data[ends(master)[0] :]
    with pytest.raises(StoreFormatError):
        receiver.take(len(room))
    receiver.drop_partial()
    assert (receiver.last_record, slave.log.max_offset) == (0, ends(master)[0])
    receive(receiver, good, random.Random(0))
    assert receiver.last_record == ends(master)[2]


def test_another_segment_size_is_named(master: MessageStore, tmp_path: Path) -> None:
    other = config(tmp_path / "other", mapped_file_size_commit_log=2 * SEGMENT)
    with MessageStore(other) as slave, pytest.raises(StoreFormatError, match="mappedFileSize"):
        receive(LogReceiver(slave), log_of(master), random.Random(0))


def test_watched_queues_are_reported(master: MessageStore, slave: MessageStore) -> None:
    queue = slave.queues.get("T1", 1)
    watch(slave.log.lock, queue, 1)
    receiver = LogReceiver(slave)
    data = log_of(master)[: ends(master)[9]]
    receiver.writable(len(data))[:] = data
    assert receiver.take(len(data)) == {queue}


def test_a_receiver_continues_after_a_restart(master: MessageStore, tmp_path: Path) -> None:
    data, half = log_of(master), ends(master)[150]
    folder = tmp_path / "again"
    with MessageStore(config(folder)) as slave:
        receiver = LogReceiver(slave)
        receive(receiver, data[: half + 11], random.Random(3))
        receiver.drop_partial()
        assert slave.log.max_offset == half
    with MessageStore(config(folder)) as slave:
        receiver = LogReceiver(slave)
        assert receiver.received == half
        assert receiver.last_record + len(slave.log.read(receiver.last_record) or b"") == half
        receive(receiver, data[half:], random.Random(4))
        assert log_of(slave) == data
        assert queues_of(slave) == queues_of(master)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_log_begins_at_the_first_offset_of_an_old_master(
    master: MessageStore, tmp_path: Path, backend: str
) -> None:
    if (reason := refusal(backend, str(tmp_path), SEGMENT)) is not None:
        pytest.skip(reason)
    settings = {"flush_disk_type": "SYNC_FLUSH", "io_backend": backend}
    data, begin = log_of(master), 2 * SEGMENT
    folder = tmp_path / backend
    with MessageStore(config(folder, **settings)) as slave:
        receiver = LogReceiver(slave)
        with pytest.raises(StoreFormatError):
            receiver.begin_at(begin + 1)
        receiver.begin_at(begin)
        receive(receiver, data[begin:], random.Random(5))
        end = slave.log.max_offset
        assert (slave.log.min_offset, end) == (begin, len(data))
        assert slave.wait_durable(end, 60)
        assert log_of_segments(slave)[: end - begin] == data[begin:]
    with MessageStore(config(folder, **settings)) as slave:
        assert (slave.log.min_offset, slave.log.max_offset) == (begin, len(data))
        assert log_of_segments(slave)[: len(data) - begin] == data[begin:]
        for queue in slave.queues:
            same = master.queues.get(queue.topic, queue.queue_id)
            assert queue.max == same.max
            assert [queue[i] for i in range(queue.min, queue.max)] == [
                same[i] for i in range(queue.min, same.max)
            ]


def test_a_log_begins_once_its_first_segment_can_be_made(
    master: MessageStore, slave: MessageStore
) -> None:
    folder = Path(slave.log.folder)
    begin = 2 * SEGMENT
    path = folder / f"{begin:020d}"
    path.mkdir()  # no segment can be made there
    receiver = LogReceiver(slave)
    with pytest.raises(BackendError):
        receiver.begin_at(begin)
    path.rmdir()
    assert (receiver.received, slave.log.min_offset) == (begin, begin)
    receive(receiver, log_of(master)[begin:], random.Random(0))
    assert slave.log.max_offset == master.log.max_offset
    assert min(each.name for each in folder.iterdir()) == path.name


def log_of_segments(store: MessageStore) -> bytes:
    return b"".join(bytes(memoryview(segment)) for segment in store.log.segments)


@pytest.mark.parametrize("at", ["body", "magic", "sector", "end of a segment"])
@pytest.mark.parametrize("seed", range(3))
def test_damage_of_the_masters_own_log_is_taken_at_the_second_time(
    master: MessageStore, slave: MessageStore, at: str, seed: int
) -> None:
    chance, data = random.Random(seed), bytearray(log_of(master))
    queues = queues_of(master)
    place = max(entry[0] for entries in queues.values() for entry in entries[:40])
    match at:
        case "body":
            data[place + 88] ^= 1
        case "magic":
            data[place + 4] ^= 1
        case "sector":
            data[place : place + 512] = bytes(512)
        case _:
            data[SEGMENT - 6000 : SEGMENT] = bytes(6000)
    receiver = LogReceiver(slave)
    with pytest.raises(StoreFormatError, match="are not a record"):
        receive(receiver, bytes(data), chance)
    receiver.drop_partial()
    rest = bytes(data[receiver.received :])
    while rest:  # in pieces as a master sends them
        room = receiver.writable(min(32 << 10, len(rest)))
        room[:], rest = rest[: len(room)], rest[len(room) :]
        receiver.take(len(room))
    assert slave.log.max_offset == master.log.max_offset
    found = queues_of(slave)
    assert {key: len(entries) for key, entries in found.items()} == {
        key: len(entries) for key, entries in queues.items()
    }
    lost = [
        key
        for key, entries in queues.items()
        for entry, copy in zip(entries, found[key], strict=True)
        if entry != copy
    ]
    assert len(lost) <= (0 if at == "body" else 60)
    slave.close()
    with MessageStore(slave.config) as again:
        assert again.log.max_offset == master.log.max_offset
        assert queues_of(again).keys() == queues.keys()


@pytest.mark.parametrize("byte", [4, 88])
def test_damage_in_many_places_is_refused_once_for_each_piece(
    master: MessageStore, slave: MessageStore, byte: int
) -> None:
    data, piece = bytearray(log_of(master)), 32 << 10
    places = [entry[0] for entries in queues_of(master).values() for entry in entries]
    for place in sorted(places)[1:-2:2]:
        data[place + byte] ^= 1
    receiver, refusals = LogReceiver(slave), 0
    while receiver.received < master.log.max_offset:
        room = receiver.writable(min(piece, len(data) - receiver.received))
        room[:] = data[receiver.received : receiver.received + len(room)]
        try:
            receiver.take(len(room))
        except StoreFormatError:
            receiver.drop_partial()
            refusals += 1
            assert refusals <= 2 * (len(data) // piece + len(master.log.segments))
    assert slave.log.max_offset == master.log.max_offset
    assert 0 < refusals < len(places) // 4
