"""A full disk: messages are refused, not lost, and accepted again when there is space."""

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

TOPIC = "FullDisk"
DISK = 24 << 20
SEGMENT = 1 << 20
BODY = 20_000


def config_of(folder: Path) -> StoreConfig:
    return StoreConfig(
        root_dir=str(folder / "store"),
        mapped_file_size_commit_log=SEGMENT,
        mapped_file_size_consume_queue=20 * 300,
        max_hash_slot_num=100,
        max_index_num=400,
    )


def opened(folder: Path, backend: str) -> MessageStore:
    """A store that refuses messages only when the disk is really full, not by its used share."""
    return MessageStore(config_of(folder), backend=backend_of(backend), disk_use=lambda _: 0.5)


def backend_of(name: str) -> Backend:
    return BACKENDS[name].make(Options(prewrites=False, locked=True, window=1 << 20))


def body_of(number: int) -> bytes:
    return b"%08d" % number + bytes(BODY)


def fill(store: MessageStore, acknowledged: dict[int, int]) -> PutStatus:
    """Put until the store refuses; acknowledged messages are durable. number -> queue offset."""
    while True:
        number = len(acknowledged)
        put = store.put(Record(topic=TOPIC, body=body_of(number), properties={"KEYS": f"{number}"}))
        if put.status is not PutStatus.PUT_OK:
            return put.status
        assert store.wait_durable(put.end, 10)
        acknowledged[number] = put.queue_offset


def assert_all_served(store: MessageStore, acknowledged: dict[int, int]) -> None:
    for number, offset in acknowledged.items():
        found = store.get(TOPIC, 0, offset, 1)
        assert decode_record(b"".join(found.buffers)).body == body_of(number)


@pytest.mark.crash
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_broker_on_a_full_disk_serves_reads_and_accepts_messages_after_space_is_freed(
    small_disk: Callable[[int], Path],
    kill_rounds: int,
    backend: str,
    campaign: Callable[[str, int], None],
) -> None:
    for cycle in range(max(1, kill_rounds // 50)):
        disk = small_disk(DISK)
        if (reason := refusal(backend, str(disk))) is not None:
            pytest.skip(reason)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(DISK // 2 + cycle % 20 * 100_000))
        acknowledged: dict[int, int] = {}
        with opened(disk, backend) as store:
            assert fill(store, acknowledged) is PutStatus.CREATE_MAPEDFILE_FAILED
            assert fill(store, acknowledged) is PutStatus.CREATE_MAPEDFILE_FAILED
            full = len(acknowledged)
            assert_all_served(store, acknowledged)
            ballast.unlink()
            fill(store, acknowledged)
            assert len(acknowledged) > full
            assert_all_served(store, acknowledged)
        with opened(disk, backend) as store:
            assert_all_served(store, acknowledged)
        assert StoreExaminer(str(disk / "store")).verify().problems == []
        campaign(f"R9 full disk, {backend}", 1)
