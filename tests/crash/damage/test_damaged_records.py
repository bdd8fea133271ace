"""Flipped bytes in records that were on disk before a kill: only those records are lost.

Run as a program, this file is the writer that is killed.
"""

import logging
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.read.reader import GetStatus
from congreve.engine.results import PutStatus
from congreve.engine.state.durable_mark import DurableMarkFile
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.backends import BACKENDS, Options, refusal
from congreve.records.errors import RecordError
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TOPIC = "Damaged"
QUEUES = 3
MESSAGES = 1000
SEGMENT = 64 << 10
FLIPPED = (0, 4, 8, 30, 88)
"""Bytes of a record: of its size, magic, CRC and physical offset, and the first of its body."""
MARK_S = 60.0

Place = tuple[int, int]
"""Where a record begins in the log, and where it ends."""


def config_of(root: str | Path) -> StoreConfig:
    """No checkpoint covers the records: only the mark does."""
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 500,
        max_hash_slot_num=100,
        max_index_num=4000,
        flush_consume_queue_thorough_interval=3_600_000,
    )


def body_of(number: int) -> bytes:
    return b"%d," % number * (1 + number * 7919 % 90)


def store_of(config: StoreConfig, backend: str = "mmap") -> MessageStore:
    """A full disk of the machine must not end the test."""
    made = BACKENDS[backend].make(Options(prewrites=False, locked=True))
    return MessageStore(config, backend=made, disk_use=lambda _: 0.5)


def write_and_wait(root: str, backend: str) -> None:
    """Print where each acknowledged record is, then a line when a mark names the last one."""
    config = config_of(root)
    with store_of(config, backend) as store:
        for number in range(MESSAGES):
            keys = {"KEYS": f"k{number}"}
            put = store.put(
                Record(
                    topic=TOPIC,
                    body=body_of(number),
                    queue_id=number % QUEUES,
                    properties=keys,
                )
            )
            assert store.wait_durable(put.end, 60)
            print(put.physical_offset, put.end)
        file, deadline = DurableMarkFile(config.own_dir), time.monotonic() + MARK_S
        while (mark := file.load()) is None or mark.end < put.end:
            assert time.monotonic() < deadline, mark
            time.sleep(0.01)
        print("marked", flush=True)
        time.sleep(600)


def killed_writer(root: Path, backend: str) -> list[Place]:
    """Where the records are that a writer has stored before its kill."""
    if (reason := refusal(backend, str(root.parent))) is not None:
        pytest.skip(reason)
    with subprocess.Popen(
        [sys.executable, __file__, str(root), backend], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        places = []
        for line in writer.stdout:
            if line == "marked\n":
                break
            begin, end = map(int, line.split())
            places.append((begin, end))
        writer.kill()
    assert len(places) == MESSAGES
    return places


def finds(store: MessageStore, key: str) -> bool:
    """Whether the index has the key, once its thread has read the log."""
    until = time.monotonic() + MARK_S
    while not store.query(TOPIC, key, 9, 0, 1 << 60).buffers:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def flip(root: Path, place: int) -> None:
    base = place // SEGMENT * SEGMENT
    path = root / "commitlog" / f"{base:020d}"
    data = bytearray(path.read_bytes())
    data[place - base] ^= 0x40
    path.write_bytes(data)


def served(store: MessageStore) -> set[int]:
    """The numbers of the messages whose records pulls return undamaged."""
    found = set()
    for queue_id in range(QUEUES):
        offset = store.min_offset(TOPIC, queue_id)
        while offset < store.max_offset(TOPIC, queue_id):
            got = store.get(TOPIC, queue_id, offset, 1)
            assert got.next_offset > offset
            if got.status is GetStatus.FOUND:
                try:
                    record = decode_record(b"".join(got.buffers))
                except RecordError:
                    record = None
                if record is not None:
                    number = record.queue_offset * QUEUES + queue_id
                    assert record.body == body_of(number)
                    found.add(number)
            offset = got.next_offset
    return found


def check_queues_go_on(store: MessageStore) -> None:
    """Check that no offset of an acknowledged message is given to another one."""
    for queue_id in range(QUEUES):
        put = store.put(Record(topic=TOPIC, body=b"new", queue_id=queue_id))
        assert put.status is PutStatus.PUT_OK
        assert put.queue_offset == len(range(queue_id, MESSAGES, QUEUES))
        assert store.wait_durable(put.end, 60)


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_flipped_byte_loses_only_its_record(
    tmp_path: Path,
    backend: str,
    kill_rounds: int,
    campaign: Callable[[str, int], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for seed in range(max(3, kill_rounds // 20)):
        dice = random.Random(seed)
        root = tmp_path / str(seed)
        places = killed_writer(root, backend)
        # The 500th, some others in several segments, the last of each queue.
        chosen = {500} if seed == 0 else {*dice.sample(range(MESSAGES - QUEUES), 4)}
        if seed % 3 == 1:
            chosen |= {*range(MESSAGES - QUEUES, MESSAGES)}
        for number in chosen:
            flip(root, places[number][0] + dice.choice(FLIPPED))
        with caplog.at_level(logging.ERROR), store_of(config_of(root), backend) as store:
            assert store.recovery is not None
            assert store.recovery.damaged
            assert store.log.max_offset >= places[-1][1]
            assert served(store) >= {*range(MESSAGES)} - chosen
            check_queues_go_on(store)
            assert finds(store, f"k{max({*range(MESSAGES)} - chosen)}")
        assert any(str(places[number][0]) in caplog.text for number in chosen)
        named = StoreExaminer(str(root)).verify().problems
        assert any(str(places[number][0]) in problem for number in chosen for problem in named)
        with store_of(config_of(root), backend) as store:
            assert store.max_offset(TOPIC, 0) == len(range(0, MESSAGES, QUEUES)) + 1
        campaign(f"a flipped byte below the mark, {backend}", 1)


if __name__ == "__main__":
    write_and_wait(*sys.argv[1:])
