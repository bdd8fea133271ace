"""The HA port of a master: its descriptors and its limit of connections."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.eventually import eventually

from congreve.broker.replication.frames import REPORT
from congreve.broker.replication.ha_service import HAService
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import SlaveConnection
from congreve.broker.replication.slave_loop import CONNECTIONS_MAX, SlaveLoop
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.remoting.transport.event_fd import EventFd

HOST = "127.0.0.1"
SETTINGS = ReplicationSettings(False, 1 << 20, 60.0, 60.0, "*")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(
        root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=1 << 16,
        flush_disk_type="ASYNC_FLUSH",
    )
    with MessageStore(config) as store:
        put(store)
        yield store


def put(store: MessageStore) -> None:
    assert store.put(Record(topic="T", body=bytes(100))).end


def confirm_of(store: MessageStore) -> ConfirmOffset:
    return ConfirmOffset(store.backend, waits_for_disk=False)


def test_appends_signal_nothing_once_the_last_slave_is_removed(
    store: MessageStore, tmp_path: Path
) -> None:
    wake = EventFd()
    number = wake.descriptor
    loop = SlaveLoop(store.log, confirm_of(store), wake=number, sync_flush=False)
    with socket.create_server((HOST, 0)) as listener:
        slave = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    with slave, peer:
        peer.setblocking(False)
        connection = SlaveConnection(peer, store.log, 1 << 20, time.monotonic())
        slave.sendall(REPORT.pack(store.log.max_offset))
        while not connection.started:
            connection.read(time.monotonic())
        loop.add(connection)
        loop.serve(time.monotonic() + 0.01)  # it rests, and appends signal `wake`
        loop.serve(time.monotonic() + 0.01)
        loop.remove(connection)
    with (tmp_path / "other").open("wb") as other:
        wake.close()
        os.dup2(other.fileno(), number)
        try:
            put(store)
            assert os.fstat(number).st_size == 0
        finally:
            os.close(number)


class SlowService(HAService):
    """An HA port whose thread waits before it serves the first connection."""

    gate = threading.Event()

    def _connection(self, peer: socket.socket) -> SlaveConnection:
        self.gate.wait()
        return super()._connection(peer)


async def test_connections_above_the_limit_are_closed(store: MessageStore) -> None:
    service = SlowService(store, confirm_of(store), SETTINGS)
    service.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    slaves: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS_MAX + 1):
            slave = socket.socket()
            slave.setblocking(False)
            slaves.append(slave)
            await loop.sock_connect(slave, (HOST, service.port))
            if len(slaves) <= CONNECTIONS_MAX:
                await loop.sock_sendall(slave, REPORT.pack(0))
        await asyncio.sleep(0.1)
        service.gate.set()
        await eventually(lambda: len(service.slaves()) == CONNECTIONS_MAX)
        assert await loop.sock_recv(slaves[-1], 100) == b""
        assert await loop.sock_recv(slaves[0], 1 << 16)
        put(store)
        assert await loop.sock_recv(slaves[0], 1 << 16)
    finally:
        service.gate.set()
        service.stop()
        for slave in slaves:
            slave.close()


async def test_a_port_without_descriptors_rests_and_accepts_later(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = HAService(store, confirm_of(store), SETTINGS)
    failures = []
    monkeypatch.setattr(service._refusals, "warning", lambda *text: failures.append(text))
    service.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    with socket.socket() as slave:
        slave.setblocking(False)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    taken.append(os.dup(slave.fileno()))
            await loop.sock_connect(slave, (HOST, service.port))
            await loop.sock_sendall(slave, REPORT.pack(0))
            await asyncio.sleep(0.1)
            assert 1 <= len(failures) <= 10
        finally:
            for each in taken:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await eventually(lambda: len(service.slaves()) == 1)
        service.stop()
