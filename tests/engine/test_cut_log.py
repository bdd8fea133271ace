"""A log that is cut at a message: the store is as if what follows had never been stored."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from congreve.base.clock import ManualClock
from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreFormatError
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

START = 1_700_000_000_000
QUEUES = (("orders", 0), ("orders", 1), ("bills", 0))


class Stored(NamedTuple):
    topic: str
    queue_id: int
    body: bytes
    end: int


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=100,
        max_hash_slot_num=7,
        max_index_num=64,
        max_message_size=2000,
    )


def fill(store: MessageStore, count: int, seed: int) -> list[Stored]:
    choose = random.Random(seed)
    stored = []
    for number in range(count):
        topic, queue_id = choose.choice(QUEUES)
        body = f"{seed}-{number}-".encode() * choose.randrange(1, 60)
        record = Record(
            topic=topic, queue_id=queue_id, body=body, properties={"KEYS": f"{seed}-{number}"}
        )
        stored.append(Stored(topic, queue_id, body, store.put(record).end))
    assert store.wait_durable(stored[-1].end, 60)
    return stored


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    end = store.max_offset(topic, queue_id)
    found = []
    for offset in range(end):
        place = store.place_of(store.queues.get(topic, queue_id), offset)
        assert place is not None
        record = store.read(place)
        assert record is not None
        found.append(bytes(record))
    return found


def check(store: MessageStore, expected: list[Stored]) -> None:
    assert store.log.max_offset == (expected[-1].end if expected else 0)
    for topic, queue_id in QUEUES:
        mine = [each.body for each in expected if (each.topic, each.queue_id) == (topic, queue_id)]
        records = bodies(store, topic, queue_id)
        assert len(records) == len(mine)
        assert all(body in record for body, record in zip(mine, records, strict=True))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep", [0, 1, 5, 23, 39, 40])
def test_a_cut_log_continues_as_if_no_record_had_followed(
    tmp_path: Path, keep: int, clean: bool
) -> None:
    clock = ManualClock(START)
    store = MessageStore(config_of(tmp_path), clock=clock)
    store.start()
    stored = fill(store, 40, 1)
    store.checkpoint()
    fill(store, 5, 2)
    store.close()
    if not clean:
        (tmp_path / "abort").touch()
    end = stored[keep - 1].end if keep else 0
    cut = MessageStore(config_of(tmp_path), clock=clock)
    cut.start(cut_at=end)
    check(cut, stored[:keep])
    assert len(cut.query("orders", "2-0", 9, 0, 2 * START).buffers) == 0
    cut.close()
    reopened = MessageStore(config_of(tmp_path), clock=clock)
    reopened.start()
    check(reopened, stored[:keep])
    more = fill(reopened, 12, 3)
    check(reopened, stored[:keep] + more)
    reopened.close()
    with MessageStore(config_of(tmp_path), clock=clock) as last:
        check(last, stored[:keep] + more)


def test_7689_and_10666_bytes_after_the_cut_never_return(tmp_path: Path) -> None:
    """RocketMQ 5 truncates in memory, and a crash brings the old bytes back.

    The new message has the size of the one that was cut off, so that the record behind it would be
    at a valid place again.
    """
    clock = ManualClock(START)
    record = Record(topic="orders", body=b"x" * 100)
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        ends = [store.put(record).end for _ in range(6)]
        assert store.wait_durable(ends[-1], 60)
    cut = MessageStore(config_of(tmp_path), clock=clock)
    cut.start(cut_at=ends[1])
    log = (tmp_path / "commitlog" / f"{0:020}").read_bytes()
    assert not log[ends[1] :].strip(b"\0")
    assert cut.put(record).queue_offset == 2
    assert cut.wait_durable(ends[2], 60)
    cut.close()
    (tmp_path / "abort").touch()  # as after a crash
    (tmp_path / "congreve" / "queues.json").unlink()
    with MessageStore(config_of(tmp_path), clock=clock) as store:
        assert store.log.max_offset == ends[2]
        assert store.max_offset("orders", 0) == 3


def test_a_cut_inside_a_message_is_refused(tmp_path: Path) -> None:
    with MessageStore(config_of(tmp_path), clock=ManualClock(START)) as store:
        stored = fill(store, 5, 1)
    with pytest.raises(StoreFormatError, match="no record ends there"):
        MessageStore(config_of(tmp_path), clock=ManualClock(START)).start(cut_at=stored[2].end - 7)


def test_a_cut_at_damage_leaves_no_filler_in_queues(tmp_path: Path) -> None:
    """Recovery keeps the offsets of records that are damaged; a cut gives them to others."""
    with MessageStore(config_of(tmp_path), clock=ManualClock(START)) as store:
        stored = fill(store, 9, 1)
        queues = [queue for queue in store.queues if queue.max]
    end = stored[7].end
    for queue in queues:
        with MessageStore(config_of(tmp_path), clock=ManualClock(START)) as store:
            found = store.queues.get(queue.topic, queue.queue_id)
            found.fill_to(found.max + 3)
    cut = MessageStore(config_of(tmp_path), clock=ManualClock(START))
    cut.start(cut_at=end)
    check(cut, stored[:8])
    cut.close()
    with MessageStore(config_of(tmp_path), clock=ManualClock(START)) as store:
        more = fill(store, 6, 2)
        check(store, stored[:8] + more)
