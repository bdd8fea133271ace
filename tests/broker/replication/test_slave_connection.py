"""Which reports of a slave a master accepts."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from congreve.broker.ha_frames import HEADER, REPORT
from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record

SEGMENT = 1 << 14
FRAME = 1000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(
        root_dir=str(tmp_path), mapped_file_size_commit_log=SEGMENT, flush_disk_type="ASYNC_FLUSH"
    )
    with MessageStore(config) as store:
        for number in range(40):
            store.put(Record(topic="T", body=bytes(700), properties={"KEYS": f"k{number}"}))
        yield store


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slave = socket.create_connection(listener.getsockname())
        master, _ = listener.accept()
        master.setblocking(False)
        with slave, master:
            yield slave, master


def connected(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> tuple[socket.socket, SlaveConnection]:
    slave, master = ends
    return slave, SlaveConnection(master, store.log, FRAME, 0.0)


def report(slave: socket.socket, connection: SlaveConnection, *offsets: int) -> None:
    slave.sendall(b"".join(map(REPORT.pack, offsets)))
    while connection.read(1.0) and connection.acknowledged != offsets[-1]:
        pass


def test_a_slave_without_a_log_gets_all_of_it(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> None:
    slave, connection = connected(ends, store)
    end = store.log.max_offset
    assert end > SEGMENT  # RocketMQ would begin with the last file
    report(slave, connection, 0)
    assert connection.started
    got, want = bytearray(), b"".join(bytes(memoryview(one)) for one in store.log.segments)
    while len(got) < end:
        connection.send(end, 1.0)
        offset, size = HEADER.unpack(slave.recv(HEADER.size, socket.MSG_WAITALL))
        assert offset == len(got)
        assert 0 < size <= FRAME
        assert offset // SEGMENT == (offset + size - 1) // SEGMENT
        got += slave.recv(size, socket.MSG_WAITALL)
    assert got == want[:end]
    report(slave, connection, end)
    assert connection.state(end, 2.0).lag_bytes == 0


@pytest.mark.parametrize("first", [1 << 40, -1, -(1 << 63), (1 << 63) - 1])
def test_the_first_report_is_checked(
    ends: tuple[socket.socket, socket.socket], store: MessageStore, first: int
) -> None:
    slave, connection = connected(ends, store)
    slave.sendall(REPORT.pack(first))
    with pytest.raises(ReplicationError):
        while connection.read(1.0):
            pass
    assert connection.acknowledged == 0
    assert not connection.started


def test_a_slave_ahead_of_its_master_gets_an_error(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> None:
    slave, connection = connected(ends, store)
    slave.sendall(REPORT.pack(store.log.max_offset + 1))
    with pytest.raises(ReplicationError, match="ahead of this master's"):
        while connection.read(1.0):
            pass


def test_a_report_beyond_the_sent_bytes_is_refused(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> None:
    slave, connection = connected(ends, store)
    report(slave, connection, 0)
    slave.sendall(REPORT.pack(1))
    with pytest.raises(ReplicationError, match="was sent the log up to 0"):
        while connection.read(1.0):
            pass


def test_a_report_never_decreases_the_confirmed_offset(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> None:
    slave, connection = connected(ends, store)
    report(slave, connection, 500)
    slave.sendall(REPORT.pack(499))
    with pytest.raises(ReplicationError):
        while connection.read(1.0):
            pass
    assert connection.acknowledged == 500


def test_reports_are_read_in_pieces(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> None:
    slave, connection = connected(ends, store)
    for byte in REPORT.pack(700):
        slave.sendall(bytes((byte,)))
        connection.read(1.0)
    while connection.acknowledged != 700:
        connection.read(1.0)
    assert connection.next == 700


def test_lag_is_measured_from_the_oldest_unconfirmed_frame(
    ends: tuple[socket.socket, socket.socket], store: MessageStore
) -> None:
    slave, connection = connected(ends, store)
    report(slave, connection, 0)
    connection.send(2000, 10.0)
    state = connection.state(2000, 10.25)
    assert (state.sent, state.lag_bytes, state.lag_ms) == (2000, 2000, 250)
    report(slave, connection, 2000)
    assert connection.state(2000, 11.0).lag_ms == 0
