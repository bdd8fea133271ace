"""SYNC_MASTER: an answer waits until a slave has the message."""

import asyncio
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.pairs import Pair, running_pair

from congreve.broker.broker import Broker
from congreve.broker.ha_frames import REPORT
from congreve.client import Message, Producer
from congreve.client.errors import ClientError
from congreve.client.results import SendStatus
from congreve.records.message.message import Record

SYNC = {"brokerRole": "SYNC_MASTER"}


def follows(pair: Pair) -> Callable[[], bool]:
    return lambda: bool(pair.master.replication.state().slaves)


def have_equal_logs(pair: Pair) -> Callable[[], bool]:
    return lambda: log_of(pair.master) == log_of(pair.slave)


def log_of(broker: Broker) -> bytes:
    log = broker.store.log
    whole = b"".join(bytes(memoryview(segment)) for segment in log.segments)
    return whole[: log.max_offset - log.min_offset]


async def send(producer: Producer, count: int, **fields: object) -> set[SendStatus]:
    results = await asyncio.gather(
        *(producer.send(Message(topic="T", body=bytes(i + 1), **fields)) for i in range(count))
    )
    return {result.status for result in results}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_sends_wait_for_the_slave(tmp_path: Path, flush: str) -> None:
    settings = {"flushDiskType": flush}
    async with running_pair(tmp_path, master={**SYNC, **settings}, slave=settings) as pair:
        await eventually(follows(pair))
        async with Producer(pair.name_server.address, group="p") as producer:
            assert await send(producer, 300) == {SendStatus.SEND_OK}
            assert await send(producer, 1) == {SendStatus.SEND_OK}
            confirmed = pair.master.replication.confirm.confirmed_offset
            assert confirmed == pair.master.store.log.max_offset
        assert log_of(pair.slave) == log_of(pair.master)
        if flush == "SYNC_FLUSH":
            assert pair.slave.store.backend.durable_offset == confirmed


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_sends_without_a_slave_are_stored_and_answered_with_slave_not_available(
    tmp_path: Path, flush: str
) -> None:
    settings = {**SYNC, "flushDiskType": flush}
    async with (
        running_pair(tmp_path, with_slave=False, master=settings) as pair,
        Producer(pair.name_server.address, group="p") as producer,
    ):
        assert await send(producer, 20) == {SendStatus.SLAVE_NOT_AVAILABLE}
        assert await send(producer, 20, wait=False) == {SendStatus.SEND_OK}
        if flush == "SYNC_FLUSH":
            store = pair.master.store
            await eventually(lambda: store.backend.durable_offset == store.log.max_offset)


async def test_a_slave_that_confirms_no_byte_causes_a_flush_timeout(tmp_path: Path) -> None:
    settings = {**SYNC, "slaveTimeout": "300"}
    async with (
        running_pair(tmp_path, with_slave=False, master=settings) as pair,
        Producer(pair.name_server.address, group="p") as producer,
    ):
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(REPORT.pack(0))
            await eventually(follows(pair))
            assert await send(producer, 20) == {SendStatus.FLUSH_SLAVE_TIMEOUT}
        await eventually(lambda: not pair.master.replication.state().slaves)
        assert await send(producer, 5) == {SendStatus.SLAVE_NOT_AVAILABLE}


async def test_an_invalid_report_confirms_no_byte(tmp_path: Path) -> None:
    """4.9.4's master then answers every send as if a slave had its message (RocketMQ #3015)."""
    async with (
        running_pair(tmp_path, with_slave=False, master=SYNC) as pair,
        Producer(pair.name_server.address, group="p") as producer,
    ):
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(REPORT.pack((1 << 62) + 1))
            stranger.settimeout(60)
            assert await asyncio.to_thread(stranger.recv, 1) == b""
        assert await send(producer, 5) == {SendStatus.SLAVE_NOT_AVAILABLE}
        assert pair.master.replication.confirm.confirmed_offset == 0


async def test_sends_do_not_wait_for_a_slave_that_is_too_far_behind(tmp_path: Path) -> None:
    settings = {**SYNC, "haSlaveFallbehindMax": "5000"}
    async with (
        running_pair(tmp_path, with_slave=False, master=settings) as pair,
        Producer(pair.name_server.address, group="p") as producer,
    ):
        assert await send(producer, 60) == {SendStatus.SLAVE_NOT_AVAILABLE}
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(REPORT.pack(0))
            await eventually(follows(pair))
            assert await send(producer, 5) == {SendStatus.SLAVE_NOT_AVAILABLE}


async def test_a_slave_with_an_unknown_address_is_refused(tmp_path: Path) -> None:
    settings = {**SYNC, "haAllowedAddresses": "10.9.8.*"}
    async with running_pair(tmp_path, with_slave=False, master=settings) as pair:
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.settimeout(60)
            assert await asyncio.to_thread(stranger.recv, 1) == b""


async def test_a_silent_slave_connection_is_closed(tmp_path: Path) -> None:
    settings = {**SYNC, "haHousekeepingInterval": "200"}
    async with running_pair(tmp_path, with_slave=False, master=settings) as pair:
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.settimeout(60)
            assert await asyncio.to_thread(silent.recv, 1) == b""


async def test_a_slave_refuses_sends(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        await eventually(follows(pair))
        assert pair.slave.store.check_writable() == "this broker is a slave: send to its master"
        pair.master.config.broker_permission = 6
        async with Producer(pair.slave.address, group="p") as producer:
            with pytest.raises(ClientError):
                await producer.send(Message(topic="T", body=b"x"))
        await eventually(have_equal_logs(pair))


async def test_metrics_show_how_far_slaves_are_behind(tmp_path: Path) -> None:
    settings = {**SYNC, "metricsPort": "0"}
    async with running_pair(tmp_path, with_slave=False, master=settings) as pair:
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(REPORT.pack(0))
            await eventually(follows(pair))
            pair.master.store.put(Record(topic="T", body=bytes(100)))
            url = f"http://127.0.0.1:{pair.master.config.metrics_port}/metrics"
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            end = pair.master.store.log.max_offset
            address = "{}:{}".format(*silent.getsockname())
            assert f'congreve_replication_lag_bytes{{slave="{address}"}} {end}' in page
            assert "congreve_replication_slaves 1" in page
