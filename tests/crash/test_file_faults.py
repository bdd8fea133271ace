"""Each call of the file layer fails once, or from then on: nothing acknowledged is lost."""

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from harness.stores.small_store import small_store

from congreve.engine.errors import StoreError
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.errors import BackendError
from congreve.io_backends.files.faulty import Failpoint, FaultyFileSystem
from congreve.io_backends.files.file_system import DISK, FileSystem
from congreve.io_backends.files.recording import RecordingFileSystem
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record

QUEUES = 3
MESSAGES = 60
LASTING = 1 << 30
FAULTS = [*product((errno.EIO, errno.ENOSPC, errno.EMFILE), (1, LASTING))]
GONE = "Gone"

#: The body that each acknowledged message has, by its queue and offset.
Acknowledged = dict[tuple[int, int], bytes]


def store_on(root: Path, files: FileSystem = DISK) -> MessageStore:
    config = small_store(
        root,
        mapped_file_size_commit_log=16 << 10,
        mapped_file_size_consume_queue=20 * 10,
        max_hash_slot_num=50,
        max_index_num=40,
        flush_disk_type="SYNC_FLUSH",
        flush_interval_consume_queue=5,
    )
    return MessageStore(config, backend=MmapBackend(), files=files, disk_use=lambda _: 0.5)


def put(store: MessageStore, topic: str, number: int) -> tuple[int, bytes] | None:
    """Queue offset and body of a message that is on disk; None if it was refused."""
    body = b"%d " % number * 100
    record = Record(
        topic=topic, body=body, properties={"KEYS": f"k{number}"}, queue_id=number % QUEUES
    )
    done = store.put(record)
    if done.status is not PutStatus.PUT_OK or not store.wait_durable(done.end, 10):
        return None
    return done.queue_offset, body


def live(store: MessageStore, acknowledged: Acknowledged) -> None:
    """One run of a store: messages, new segments and files, checkpoints, a deleted topic, a stop.

    Raises StoreError or BackendError if the store does not start.
    """
    with store:
        for number in range(MESSAGES):
            done = put(store, "Kept", number)
            if done is not None:
                acknowledged[number % QUEUES, done[0]] = done[1]
            if number % 20 == 5:
                put(store, GONE, number)
                with suppress(StoreError, BackendError):
                    store.checkpoint()
            if number % 20 == 15:
                with suppress(StoreError, BackendError):
                    store.delete_topic(GONE)


def missing(root: Path, acknowledged: Acknowledged) -> list[str]:
    """The acknowledged messages that a store without faults lacks or has damaged."""
    found = []
    with store_on(root) as store:
        for (queue_id, offset), body in acknowledged.items():
            got = store.get("Kept", queue_id, offset, 1)
            if not got.buffers or decode_record(b"".join(got.buffers)).body != body:
                found.append(f"queue {queue_id}, offset {offset}")
    return found + [str(problem) for problem in StoreExaminer(str(root)).verify().problems]


@pytest.mark.crash
def test_a_call_that_fails_once_or_always_loses_no_acknowledged_message(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    whole: Acknowledged = {}
    recording = RecordingFileSystem(DISK, str(tmp_path / "whole"))
    live(store_on(tmp_path / "whole", recording), whole)
    assert len(whole) == MESSAGES
    points = [*product(range(1, len(recording.calls) + 1), FAULTS)]
    random.Random(61).shuffle(points)
    wrong = []
    refused = 0
    for nth, (error, times) in points[: max(10, kill_rounds)]:
        root = tmp_path / f"{nth}-{error}-{times}"
        acknowledged: Acknowledged = {}
        files = FaultyFileSystem(DISK, Failpoint("", str(root), error, nth, times))
        try:
            live(store_on(root, files), acknowledged)
        except (StoreError, BackendError):
            refused += 1
        call = f"call {nth}, {errno.errorcode[error]} x {times}"
        wrong += [f"{call}: {fault}" for fault in missing(root, acknowledged)]
        campaign("a call of the file layer fails", 1)
    assert not wrong
    assert refused
