"""A store in one process: put, flush, roll, stop.

failpoints.c injects faults if it is preloaded, else the Failpoint of the last argument (JSON) does.

Prints `queue, queue offset, physical offset, number` of each acknowledged message, and `state` with
a number when a state file was replaced. Exits with 0 at its end, 3 when the store refused a message
(and still serves all acknowledged ones), 4 when it did not start, both with the reason.
"""

import os
import random
import sys
from functools import partial
from pathlib import Path

import msgspec

from congreve.engine.config import StoreConfig
from congreve.engine.errors import StoreError
from congreve.engine.results import PutStatus
from congreve.engine.state.state_file import StateFile
from congreve.engine.store import MessageStore
from congreve.io_backends.backend import Backend
from congreve.io_backends.backends import BACKENDS, Options
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TOPIC = "CrashTest"
QUEUES = 4
ROUNDS = 40

Line = tuple[int, int, int, int]


def config_of(root: str) -> StoreConfig:
    """Small files, frequent checkpoints and queue flushes, so that every step happens often."""
    return StoreConfig(
        root_dir=root,
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_consume_queue_thorough_interval=20,
        flush_interval_consume_queue=5,
    )


def backend_of(name: str) -> Backend:
    return BACKENDS[name].make(Options(locked=True, window=1 << 20))


def body_of(number: int) -> bytes:
    return (b"%d," % number) * (1 + number * 7919 % 500)


def record_of(number: int) -> Record:
    return Record(
        topic=TOPIC,
        body=body_of(number),
        properties={"KEYS": f"k{number}", "TAGS": "even"},
        queue_id=number % QUEUES,
    )


def put_some(store: MessageStore, number: int, count: int) -> list[Line]:
    """The messages that are on disk; fewer than asked for when the store or the disk refused."""
    lines: list[Line] = []
    end = 0
    for at in range(number, number + count):
        put = store.put(record_of(at))
        if put.status is not PutStatus.PUT_OK:
            break
        end = put.end
        lines.append((at % QUEUES, put.queue_offset, put.physical_offset, at))
    return lines if store.wait_durable(end, 10) else []


def assert_served(store: MessageStore, lines: list[Line]) -> None:
    for queue_id, queue_offset, _, number in lines:
        found = store.get(TOPIC, queue_id, queue_offset, 1)
        assert decode_record(b"".join(found.buffers)).body == body_of(number), number


def live(store: MessageStore, state: StateFile, first: int) -> str | None:
    """Use the store to its end; returns why it refused a message, or None."""
    acknowledged: list[Line] = []
    number = first
    for round_ in range(ROUNDS):
        count = random.randint(1, 20)
        lines = put_some(store, number, count)
        for line in lines:
            print(*line, flush=True)
        acknowledged += lines
        if len(lines) < count:
            assert_served(store, acknowledged)
            reason = store.check_writable()
            if reason is not None:
                # Final: what is on disk is unknown, so a second attempt must not succeed.
                assert put_some(store, number, 1) == []
                return reason
        number += count
        if round_ % 5 == 0:
            state.replace(str(number))
            print("state", number, flush=True)
    assert_served(store, acknowledged)
    return None


def main(root: str, first: int, backend: str, failpoint: str | None = None) -> int:
    files: FileSystem = DISK
    if failpoint is not None:
        point = msgspec.json.decode(failpoint, type=Failpoint)
        files = FaultyFileSystem(DISK, point, end=partial(os._exit, 9))
    state = StateFile(str(Path(root) / "config" / "state.json"), files=files)
    try:
        # A full disk of the machine must not end a run.
        with MessageStore(
            config_of(root), backend=backend_of(backend), files=files, disk_use=lambda _: 0.5
        ) as store:
            try:
                reason = live(store, state, first)
            except (StoreError, BackendError) as error:
                reason = str(error)
    except (StoreError, BackendError) as error:
        print(error, file=sys.stderr)
        return 4
    if reason is not None:
        print(reason, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
