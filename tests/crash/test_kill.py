"""kill -9 at random moments: every acknowledged message is served, and nothing else.

Run as a program, this file is the writer that is killed.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.engine.store_files.verify import StoreExaminer
from congreve.io_backends.backend import Backend
from congreve.io_backends.backends import BACKENDS, Options, refusal
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TOPIC = "CrashTest"
QUEUES = 4
DISK_S = 60

#: queue, queue offset, physical offset, and the number that the body repeats
Acknowledged = tuple[int, int, int, int]


def config_of(root: str, policy: str = "SYNC_FLUSH") -> StoreConfig:
    """Small files, quick flushes and checkpoints, so that kills hit every boundary."""
    return StoreConfig(
        root_dir=root,
        flush_disk_type=policy,
        flush_interval_commit_log=5,
        flush_commit_log_least_pages=0,
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_consume_queue_thorough_interval=100,
        flush_interval_consume_queue=20,
    )


def body_of(number: int) -> bytes:
    """Of one to about 3,000 bytes, so that records end anywhere in a segment."""
    return (b"%d," % number) * (1 + number * 7919 % 500)


def backend_of(name: str) -> Backend:
    """A backend by its name in ioBackend; skips the test if it cannot work here."""
    return BACKENDS[name].make(Options(prewrites=False, locked=True, window=1 << 20))


def opened(config: StoreConfig, backend: str) -> MessageStore:
    """A full disk of the machine must not end the test."""
    return MessageStore(config, backend=backend_of(backend), disk_use=lambda _: 0.5)


def write_until_killed(root: str, number: int, backend: str, policy: str) -> None:
    """Prints a line for each acknowledged message, after it is durable.

    With ASYNC_FLUSH only the flush timer syncs. With mmap the kernel has every byte at once, and
    only a power cut could lose it.
    """
    with opened(config_of(root, policy), backend) as store:
        print("ready", flush=True)
        while True:
            lines, end = "", 0
            for _ in range(random.randint(1, 20)):
                tags = "odd" if number % 2 else "even"
                put = store.put(
                    Record(
                        topic=TOPIC,
                        body=body_of(number),
                        properties={"KEYS": f"k{number}", "TAGS": tags},
                        queue_id=number % QUEUES,
                    )
                )
                if put.status is not PutStatus.PUT_OK:
                    sys.exit(f"put of {number} answered {put.status}")
                lines += f"{number % QUEUES} {put.queue_offset} {put.physical_offset} {number}\n"
                end = put.end
                number += 1
            if not kept(store, end, backend, policy):
                sys.exit(f"the disk did not answer within {DISK_S} s")
            print(lines, end="", flush=True)


def kept(store: MessageStore, end: int, backend: str, policy: str) -> bool:
    """Whether all bytes below `end` survive a kill of this process, under the flush policy."""
    if policy == "SYNC_FLUSH":
        return store.wait_durable(end, DISK_S)
    deadline = time.monotonic() + DISK_S
    while backend != "mmap" and store.backend.durable_offset < end:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def write_and_kill(
    root: Path, first: int, pause_s: float, backend: str, policy: str
) -> list[Acknowledged]:
    """Lines that the writer printed whole before it was killed."""
    with subprocess.Popen(
        [sys.executable, __file__, str(root), str(first), backend, policy],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # a buffer would hold more than the first line, which communicate() would miss
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n", writer.communicate()[1]
        try:
            out, err = writer.communicate(timeout=pause_s)
        except subprocess.TimeoutExpired:
            writer.kill()
            out, err = writer.communicate()
        assert writer.returncode == -9, err
    whole = out[: out.rfind(b"\n") + 1].splitlines()
    return [tuple(map(int, line.split())) for line in whole]  # type: ignore[misc]


def keys_found(store: MessageStore, key: str) -> list[bytes]:
    """Bodies by key, once the index has caught up with the log."""
    assert store.index is not None
    deadline = time.monotonic() + DISK_S
    while store.index.indexed_offset < store.log.max_offset and time.monotonic() < deadline:
        time.sleep(0.002)
    return [decode_record(hit).body for hit in store.query(TOPIC, key, 10, 0, 1 << 60).buffers]


def check(root: Path, acknowledged: list[Acknowledged], backend: str) -> int:
    """Check the store after a kill; returns the number with which the next round may begin."""
    highest = -1
    with opened(config_of(str(root)), backend) as store:
        for queue_id, queue_offset, physical_offset, number in acknowledged:
            found = store.get(TOPIC, queue_id, queue_offset, 1)
            record = decode_record(b"".join(found.buffers))
            assert record.physical_offset == physical_offset
            assert record.queue_offset == queue_offset
            assert record.body == body_of(number)
        for queue_id in range(QUEUES):
            end = store.max_offset(TOPIC, queue_id)
            if end:
                last = decode_record(b"".join(store.get(TOPIC, queue_id, end - 1, 1).buffers))
                highest = max(highest, int(last.body.split(b",")[0]))
        if acknowledged:
            assert keys_found(store, f"k{number}") == [body_of(number)]
    assert StoreExaminer(str(root)).verify().problems == []
    return highest + 1


POLICIES = ["SYNC_FLUSH", "ASYNC_FLUSH"]


@pytest.mark.crash
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_kills_lose_no_acknowledged_message(
    tmp_path: Path,
    kill_rounds: int,
    backend: str,
    policy: str,
    campaign: Callable[[str, int], None],
) -> None:
    if (reason := refusal(backend, str(tmp_path))) is not None:
        pytest.skip(reason)
    dice = random.Random(20220713)
    acknowledged: list[Acknowledged] = []
    first = 0
    rounds = -(-kill_rounds // (len(BACKENDS) * len(POLICIES)))
    for _ in range(rounds):
        acknowledged += write_and_kill(tmp_path, first, dice.uniform(0.0, 0.15), backend, policy)
        first = check(tmp_path, acknowledged[-500:], backend)
        campaign(f"R1 kill -9, {backend}, {policy}", 1)
    assert len(acknowledged) > rounds
    check(tmp_path, acknowledged, "mmap")


if __name__ == "__main__":
    write_until_killed(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
