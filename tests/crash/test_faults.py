"""Injected disk faults: only durable messages are acknowledged, and all of those are served."""

import errno
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.read.reader import GetStatus
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.io_backends.backend import Backend
from congreve.io_backends.backends import BACKENDS, Options, refusal
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import Fault, FaultPlan, Group
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.io_backends.pool import PoolBackend
from congreve.records.message.message import Record
from congreve.records.record import decode_record

TOPIC = "Faults"
SEGMENT = 64 << 10
SECTORS = (512, 4096)
WAIT_S = 60.0

Count = Callable[[str, int], None]


def config_of(root: Path, **settings: object) -> StoreConfig:
    return StoreConfig(
        root_dir=str(root),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 500,
        message_index_enable=False,
        **settings,  # type: ignore[arg-type]
    )


def inner_backend(name: str, folder: Path) -> Backend:
    if (reason := refusal(name, str(folder))) is not None:
        pytest.skip(reason)
    return BACKENDS[name].make(Options(prewrites=False, buffers=8, locked=True, window=1 << 20))


def body_of(number: int) -> bytes:
    return (b"%d," % number) * (1 + number * 7919 % 300)


def store_of(config: StoreConfig, backend: Backend | None = None) -> MessageStore:
    """A full disk of the machine must not end the test."""
    return MessageStore(config, backend=backend, disk_use=lambda _: 0.5)


def put(store: MessageStore, number: int) -> int:
    """The physical offset after the record; -1 if it was refused."""
    done = store.put(Record(topic=TOPIC, body=body_of(number)))
    return done.end if done.status is PutStatus.PUT_OK else -1


def body_at(store: MessageStore, offset: int) -> bytes | None:
    found = store.get(TOPIC, 0, offset, 1)
    if found.status is not GetStatus.FOUND:
        return None
    return decode_record(b"".join(found.buffers)).body


def assert_served(store: MessageStore, numbers: Iterator[int] | range) -> None:
    for number in numbers:
        assert body_at(store, number) == body_of(number)


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_sync_acknowledges_no_message_and_ends_all_writes(
    tmp_path: Path, kill_rounds: int, backend: str, campaign: Count
) -> None:
    """The reference moves its flushed offset over a failed force (D16)."""
    for round_ in range(max(3, kill_rounds // 20)):
        failing = random.Random(round_).randrange(8)
        error = (errno.EIO, errno.ENOSPC, errno.EDQUOT)[round_ % 3]
        root = tmp_path / str(round_)
        faulty = FaultBackend(
            inner_backend(backend, tmp_path), FaultPlan(groups={failing: Fault(error=error)})
        )
        with store_of(config_of(root), backend=faulty) as store:
            safe = 0
            end = put(store, safe)
            while store.wait_durable(end, WAIT_S):
                safe += 1
                end = put(store, safe)
            assert faulty.groups == failing + 1
            durable = store.backend.durable_offset
            assert durable < end
            # No thread may sync again: the next sync would succeed, because the pages count as
            # clean.
            assert store.check_writable() is not None
            assert "disk failed" in store.check_writable()
            assert put(store, safe + 1) == -1
            assert not store.wait_durable(end, 0.01)
            assert store.backend.durable_offset == durable
            assert_served(store, range(safe))
        with store_of(config_of(root)) as store:
            assert_served(store, range(safe))
            assert put(store, store.max_offset(TOPIC, 0)) > 0
        campaign(f"R8 failed sync, {backend}, SYNC_FLUSH", 1)


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_sync_ends_all_writes_even_if_no_send_waits(
    tmp_path: Path, kill_rounds: int, backend: str, campaign: Count
) -> None:
    """With ASYNC_FLUSH earlier messages were acknowledged; after the failure all are refused."""
    for round_ in range(max(3, kill_rounds // 20)):
        failing = random.Random(round_).randrange(4)
        root = tmp_path / str(round_)
        faulty = FaultBackend(
            inner_backend(backend, tmp_path), FaultPlan(groups={failing: Fault(error=errno.EIO)})
        )
        config = config_of(
            root,
            flush_disk_type="ASYNC_FLUSH",
            flush_interval_commit_log=1,
            flush_commit_log_least_pages=0,
        )
        ends: list[int] = []
        with store_of(config, backend=faulty) as store:
            while (end := put(store, len(ends))) > 0:
                ends.append(end)
                time.sleep(0.001)
            assert faulty.groups == failing + 1
            durable = store.backend.durable_offset
            assert "disk failed" in (store.check_writable() or "")
            assert_served(store, range(len(ends)))
        with store_of(config_of(root)) as store:
            assert_served(store, range(sum(end <= durable for end in ends)))
            assert put(store, store.max_offset(TOPIC, 0)) > 0
        campaign(f"R8 failed sync, {backend}, ASYNC_FLUSH", 1)


@pytest.mark.crash
@pytest.mark.parametrize("failing", range(1, 5))
def test_messages_are_refused_until_a_segment_can_be_created(
    tmp_path: Path, failing: int, campaign: Count
) -> None:
    creates = {failing: errno.ENOSPC, failing + 1: errno.ENOSPC}
    faulty = FaultBackend(MmapBackend(), FaultPlan(creates=creates))
    with store_of(config_of(tmp_path), backend=faulty) as store:
        stored = refused = 0
        while stored < 300:
            if put(store, stored) > 0:
                stored += 1
            else:
                refused += 1
                assert refused <= 2
        assert store.writable
        assert_served(store, range(stored))
    with store_of(config_of(tmp_path)) as store:
        assert_served(store, range(stored))
    campaign("R7 N-th create fails", 1)


def test_a_slow_disk_delays_messages_and_loses_none(tmp_path: Path) -> None:
    plan = FaultPlan(groups={number: Fault(delay_s=0.02) for number in range(5)})
    with store_of(config_of(tmp_path), backend=FaultBackend(PoolBackend(), plan)) as store:
        for number in range(20):
            assert store.wait_durable(put(store, number), WAIT_S)
        assert_served(store, range(20))


def recorded_groups(folder: Path, backend: str, seed: int) -> tuple[list[Group], dict[int, int]]:
    """A run's groups, and for each message the offset after it."""
    dice = random.Random(seed)
    faulty = FaultBackend(inner_backend(backend, folder), FaultPlan(record=True))
    ends: dict[int, int] = {}
    with store_of(config_of(folder / f"run-{backend}-{seed}"), backend=faulty) as store:
        for _ in range(dice.randrange(5, 15)):
            for _ in range(dice.randrange(1, 25)):
                ends[len(ends)] = put(store, len(ends))
            assert store.wait_durable(ends[len(ends) - 1], WAIT_S)
    return list(faulty.recorded), ends


def write_image(folder: Path, groups: list[Group], torn: bytes) -> None:
    """The log as it is with all of `groups` and `torn` after them; zeros follow."""
    log = b"".join(group.data for group in groups) + torn
    (folder / "commitlog").mkdir(parents=True)
    for base in range(0, max(len(log), 1), SEGMENT):
        piece = log[base : base + SEGMENT]
        path = folder / "commitlog" / f"{base:020d}"
        path.write_bytes(piece + bytes(SEGMENT - len(piece)))
    (folder / "abort").touch()


def torn_group(group: Group, sector: int, dice: random.Random) -> bytes:
    """What a power cut may leave of a group: any of its sectors, in any order of writing.

    A sector that begins before the group keeps what earlier groups have put there.
    """
    first = group.start - group.start % sector
    left = bytearray(len(group.data))
    kept = dice.choice((0.1, 0.5, 0.9))
    for at in range(first, group.start + len(group.data), sector):
        start, end = max(at - group.start, 0), min(at + sector - group.start, len(left))
        if dice.random() < kept:
            left[start:end] = group.data[start:end]
    return bytes(left)


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_crash_image_holds_all_acknowledged_messages(
    tmp_path: Path, image_folder: Path, kill_rounds: int, backend: str, campaign: Count
) -> None:
    """1,000 rounds replay 20,000 images."""
    images = 0
    wanted = max(30, kill_rounds * 20 // 3)
    for seed in range(wanted):
        groups, ends = recorded_groups(tmp_path, backend, seed)
        dice = random.Random(seed)
        for cut in range(len(groups)):
            if images == wanted:
                return
            root = image_folder / "replayed"
            shutil.rmtree(root, ignore_errors=True)
            torn = torn_group(groups[cut], SECTORS[images % 2], dice)
            write_image(root, groups[:cut], torn)
            safe = sum(end <= groups[cut].start for end in ends.values())
            with store_of(config_of(root)) as store:
                assert_served(store, range(safe))
                found = store.max_offset(TOPIC, 0)
                assert safe <= found <= len(ends)
                assert_served(store, range(found))
                assert put(store, found) > 0
                assert_served(store, range(found + 1))
            campaign(f"R3 crash images, {backend}", 1)
            images += 1
