"""The HA port of a master: its descriptors and its limit of connections."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness.eventually import eventually

from congreve.broker.ha_frames import REPORT
from congreve.broker.replication import ha_service
from congreve.broker.replication.ha_service import SLAVES_MAX, HAService
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import SlaveConnection
from congreve.broker.replication.slave_loop import SlaveLoop
from congreve.broker.replication.strangers import HANDSHAKE_S, STRANGERS_MAX, Strangers
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.remoting.loop.event_fd import EventFd

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


async def connected(service: HAService, report: bytes = REPORT.pack(0)) -> socket.socket:
    peer = socket.socket()
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, (HOST, service.port))
    if report:
        await asyncio.get_running_loop().sock_sendall(peer, report)
    return peer


async def test_a_slave_too_many_takes_the_place_of_the_one_that_is_furthest_behind(
    store: MessageStore,
) -> None:
    put(store)
    service = HAService(store, confirm_of(store), SETTINGS)
    service.listen(HOST, 0)
    real = REPORT.pack(store.log.max_offset)
    slaves: list[socket.socket] = []
    try:
        for number in range(SLAVES_MAX):  # the second one has the log, all others lack it
            slaves.append(await connected(service, real if number == 1 else REPORT.pack(0)))
            await eventually(lambda number=number: len(service.slaves()) == number + 1)
        for pushed_out in (0, 2):
            slaves.append(await connected(service))
            assert await is_cut(slaves[pushed_out])
            await eventually(lambda: len(service.slaves()) == SLAVES_MAX)
        put(store)
        for served in (1, -1):
            assert await asyncio.get_running_loop().sock_recv(slaves[served], 1 << 16)
    finally:
        service.stop()
        for slave in slaves:
            slave.close()


async def is_cut(peer: socket.socket) -> bool:
    """Whether a connection ends behind what it was sent."""
    while not await is_closed(peer):
        pass
    return True


async def is_closed(peer: socket.socket) -> bool:
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(peer, 100), 60) == b""
    except ConnectionResetError:
        return True


async def test_strangers_take_no_place_of_a_slave(store: MessageStore) -> None:
    service = HAService(store, confirm_of(store), SETTINGS)
    service.listen(HOST, 0)
    peers: list[socket.socket] = []
    try:
        first = await connected(service)
        await eventually(lambda: len(service.slaves()) == 1)
        for _ in range(5 * STRANGERS_MAX):
            peers.append(await connected(service, b"a"))
        for peer in peers[:-STRANGERS_MAX]:  # the newest have pushed out the oldest
            assert await is_closed(peer)
        second = await connected(service)
        await eventually(lambda: len(service.slaves()) == 2)
        peers += [first, second]
    finally:
        service.stop()
        for peer in peers:
            peer.close()


async def test_a_stranger_has_one_time_for_all_its_bytes(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_service, "TICK_S", 0.02)
    now = [1000.0]
    service = HAService(store, confirm_of(store), SETTINGS)
    service._strangers = Strangers(lambda: now[0])
    service.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    slave, stranger = await connected(service), await connected(service, b"a")
    with slave, stranger:
        try:
            await eventually(lambda: len(service.slaves()) == 1 and len(service._strangers) == 1)
            for _ in range(4):  # a byte keeps it from being silent
                now[0] += HANDSHAKE_S / 3
                with suppress(OSError):
                    await loop.sock_sendall(stranger, b"a")
                    await loop.sock_sendall(slave, REPORT.pack(0))
            assert await is_closed(stranger)
            assert len(service.slaves()) == 1
        finally:
            service.stop()


def test_the_oldest_stranger_of_the_address_with_most_is_pushed_out() -> None:
    strangers = Strangers()
    cut: list[object] = []
    strangers.enter("10.0.0.1", lambda: cut.append("the only one of its address"))
    entered = [
        strangers.enter("10.0.0.2", lambda number=number: cut.append(number))
        for number in range(STRANGERS_MAX + 2)
    ]
    assert cut == [0, 1, 2]
    strangers.leave(entered[-1])
    strangers.enter("10.0.0.3", lambda: cut.append("after one has left"))
    assert cut == [0, 1, 2] and len(strangers) == STRANGERS_MAX


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


async def test_a_slave_is_served_when_the_thread_could_not_start_at_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = HAService(store, confirm_of(store), SETTINGS)
    start, failures = service._start_thread, [OSError(errno.EMFILE, "Too many open files")] * 2

    def fails_twice() -> SlaveLoop:
        if failures:
            raise failures.pop()
        return start()

    monkeypatch.setattr(service, "_start_thread", fails_twice)
    service.listen(HOST, 0)
    with await connected(service):
        await eventually(lambda: len(service.slaves()) == 1)
        service.stop()
    assert not failures


async def test_slaves_are_served_after_an_unexpected_error(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = HAService(store, confirm_of(store), SETTINGS)

    def fails_once(name: str) -> list[RuntimeError]:
        do, failures = getattr(service, name), [RuntimeError(f"in {name}")]

        def call(*arguments: object) -> object:
            if failures:
                raise failures.pop()
            return do(*arguments)

        monkeypatch.setattr(service, name, call)
        return failures

    fails_once("_end")
    service.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    try:
        with await connected(service) as slave:
            assert await loop.sock_recv(slave, 100) == b""
        with await connected(service) as slave:
            assert await loop.sock_recv(slave, 1 << 16)
            looks = fails_once("_look")
            await eventually(lambda: not looks)
            put(store)
            assert await loop.sock_recv(slave, 1 << 16)
    finally:
        service.stop()
    assert "serving slaves failed; the next round tries again" in caplog.text
