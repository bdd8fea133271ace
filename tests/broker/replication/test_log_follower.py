"""What a slave with SYNC_FLUSH reports first: it acknowledges what is on its disk."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from congreve.broker.ha_frames import REPORT
from congreve.broker.replication.log_follower import LogFollower
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.config import StoreConfig
from congreve.engine.replication.log_receiver import LogReceiver
from congreve.engine.store import MessageStore
from congreve.io_backends.fault.fault import FaultBackend
from congreve.io_backends.fault.plan import Fault, FaultPlan
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.records.message.message import Record

SETTINGS = ReplicationSettings(True, 1 << 15, 30.0, 30.0, "")


def config(folder: Path, flush: str) -> StoreConfig:
    return StoreConfig(
        root_dir=str(folder),
        mapped_file_size_commit_log=1 << 16,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_disk_type=flush,
    )


@contextmanager
def slave_store(tmp_path: Path, plan: FaultPlan) -> Iterator[MessageStore]:
    """A slave that got messages whose flush was not requested yet."""
    with MessageStore(config(tmp_path / "master", "ASYNC_FLUSH")) as master:
        for number in range(5):
            master.put(Record(topic="T", body=b"%d" % number))
        data = bytes(memoryview(master.log.segments[0]))[: master.log.max_offset]
    backend = FaultBackend(MmapBackend(), plan)
    with MessageStore(config(tmp_path / "slave", "SYNC_FLUSH"), backend=backend) as slave:
        receiver = LogReceiver(slave)
        receiver.writable(len(data))[:] = data
        receiver.take(len(data))
        assert slave.backend.durable_offset < slave.log.max_offset == len(data)
        yield slave


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slave = socket.create_connection(listener.getsockname())
        master, _ = listener.accept()
    with slave, master:
        master.settimeout(60)
        yield slave, master


def test_the_first_report_follows_the_flush(tmp_path: Path) -> None:
    with slave_store(tmp_path, FaultPlan()) as store, connected() as (slave, master):
        follower = LogFollower(store, SETTINGS, lambda queues: None)
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(follower.follow, slave, store.log.max_offset)
            (first,) = REPORT.unpack(master.recv(REPORT.size, socket.MSG_WAITALL))
            durable = store.backend.durable_offset
            follower.stop()
            done.result(60)
        follower.close()
        assert first == durable == store.log.max_offset


def test_a_slave_whose_disk_fails_reports_nothing(tmp_path: Path) -> None:
    plan = FaultPlan(groups={0: Fault(error=errno.ENOSPC)})
    with slave_store(tmp_path, plan) as store, connected() as (slave, master):
        follower = LogFollower(store, SETTINGS, lambda queues: None)

        def follow() -> None:
            with slave:
                follower.follow(slave, store.log.max_offset)

        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(follow)
            said = master.recv(REPORT.size)
            follower.stop()
            with pytest.raises(ReplicationError, match="No space left"):
                done.result(60)
        follower.close()
        assert said == b""
