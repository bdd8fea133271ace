"""A connection that is delayed and cut, logs that do not fit together, a full disk at the slave."""

import asyncio
import contextlib
import random
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker.replication.test_sync_master import follows, have_equal_logs, log_of, send
from harness.eventually import eventually
from harness.replication.pairs import broker_config, running_pair

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.client import Message, Producer
from congreve.client.results import SendStatus
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.namesrv.server import NameServer
from congreve.records.message.message import Record


class Proxy:
    """Forwards connections to an address, in pieces, until it cuts them."""

    def __init__(self, target: str, chance: random.Random) -> None:
        self.target = target
        self.cuts = 0
        self._chance = chance
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Reset all connections, in the middle of whatever they carry."""
        self.cuts += len(self._open) // 2
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        self._open |= {writer, back}
        with contextlib.suppress(OSError):
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(self._chance.choice([7, 500, 20_000])):
            await asyncio.sleep(self._chance.choice([0, 0, 0.001]))
            writer.write(data)
            await writer.drain()


async def test_the_slave_has_all_acknowledged_messages_after_any_cut(tmp_path: Path) -> None:
    chance = random.Random(7)
    settings = {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "slaveTimeout": "500"}
    async with running_pair(tmp_path, with_slave=False, master=settings) as pair:
        proxy = Proxy(pair.master.replication.ha_address, chance)
        async with (
            proxy.listening() as address,
            Producer(pair.name_server.address, group="p") as producer,
            Broker(
                broker_config(
                    tmp_path / "proxied",
                    pair.name_server,
                    brokerRole="SLAVE",
                    brokerId="1",
                    haMasterAddress=address,
                    flushDiskType="SYNC_FLUSH",
                )
            ) as slave,
        ):
            acknowledged: list[bytes] = []

            async def send_one(number: int) -> None:
                text = f"{number}|".encode() + chance.randbytes(chance.choice([5, 3000]))
                result = await producer.send(Message(topic="T", body=text))
                if result.status is SendStatus.SEND_OK:
                    acknowledged.append(text)

            for burst in range(12):
                sends = [send_one(burst * 20 + i) for i in range(20)]
                if burst % 3 == 1:
                    sends.append(asyncio.to_thread(proxy.cut))
                await asyncio.gather(*sends)
                stored = log_of(slave)
                assert all(text in stored for text in acknowledged)
                if not pair.master.replication.state().slaves:
                    await eventually(follows(pair))
            assert proxy.cuts >= 2
            assert len(acknowledged) >= 100
            await eventually(lambda: log_of(slave) == log_of(pair.master))


def fill(folder: Path, count: int, text: bytes) -> None:
    """Write a store of messages before a broker opens it."""
    config = StoreConfig(
        root_dir=str(folder),
        mapped_file_size_commit_log=1 << 19,
        max_hash_slot_num=1000,
        max_index_num=2000,
        flush_disk_type="ASYNC_FLUSH",
    )
    with MessageStore(config) as store:
        for number in range(count):
            store.put(Record(topic="T", body=text + b"%d" % number))


async def refusal_of(tmp_path: Path) -> str:
    """Why the slave with the store of that folder does not follow the master."""
    async with running_pair(tmp_path) as pair:
        slave = pair.slave.replication
        await eventually(lambda: "no master is known" not in slave.state().trouble)
        state = slave.state()
        assert not state.master
        assert not pair.master.replication.state().slaves
        return state.trouble


async def test_a_slave_with_a_longer_log_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "slave", 20, b"a")
    assert "ahead of the master's" in await refusal_of(tmp_path)


async def test_a_slave_with_another_log_is_refused(tmp_path: Path) -> None:
    """A slave of 4.9.4 continues in the middle of the log of another master."""
    fill(tmp_path / "master", 30, b"a")
    fill(tmp_path / "slave", 20, b"b")
    assert "is another one in the log" in await refusal_of(tmp_path)


async def test_a_slave_continues_after_its_own_restart(tmp_path: Path) -> None:
    async with running_pair(tmp_path, with_slave=False) as pair:
        config = broker_config(
            tmp_path / "again", pair.name_server, brokerRole="SLAVE", brokerId="1"
        )
        async with Producer(pair.name_server.address, group="p") as producer:
            for _ in range(2):
                await send(producer, 200)
                async with Broker(config) as slave:
                    both = pair._replace(slave=slave)
                    await eventually(have_equal_logs(both))


async def test_a_new_slave_begins_at_the_first_offset_of_an_old_master(tmp_path: Path) -> None:
    async with running_pair(tmp_path, with_slave=False) as pair:
        store = pair.master.store
        for number in range(400):
            store.put(Record(topic="T", body=bytes(4000), properties={"KEYS": f"k{number}"}))
        store.log.delete_oldest()
        assert store.log.min_offset > 0
        config = broker_config(tmp_path / "new", pair.name_server, brokerRole="SLAVE", brokerId="1")
        async with Broker(config) as slave:
            await eventually(have_equal_logs(pair._replace(slave=slave)))
            assert slave.store.log.min_offset == store.log.min_offset
            assert slave.store.max_offset("T", 0) == 400


@pytest.mark.parametrize("size", [1, 700, 200_000])
async def test_a_slave_follows_a_master_whose_log_is_damaged(tmp_path: Path, size: int) -> None:
    sync = {"brokerRole": "SYNC_MASTER"}
    async with running_pair(tmp_path, with_slave=False, master=sync) as pair:
        store = pair.master.store
        places = [store.put(Record(topic="T", body=bytes(500))).physical_offset for _ in range(600)]
        segment = min(Path(store.config.commit_log_dir).iterdir())
        with segment.open("r+b") as file:
            file.seek(places[40] + 100)
            file.write(b"x" * size)
        config = broker_config(
            tmp_path / "slave", pair.name_server, brokerRole="SLAVE", brokerId="1"
        )
        async with Broker(config) as slave:
            await eventually(have_equal_logs(pair._replace(slave=slave)))
            async with Producer(pair.name_server.address, group="p") as producer:
                assert await send(producer, 20) == {SendStatus.SEND_OK}
            assert slave.store.max_offset("T", 0) == store.max_offset("T", 0)


async def test_a_slave_finds_its_master_when_the_name_server_starts_later(tmp_path: Path) -> None:
    async with NameServer(host="127.0.0.1", port=0) as name_server:
        slave_config = broker_config(
            tmp_path / "slave", name_server, brokerRole="SLAVE", brokerId="1"
        )
        async with Broker(slave_config) as slave:
            assert slave.replication.state().trouble == "no master is known yet"
            master = Broker(broker_config(tmp_path / "master", name_server, haListenPort="0"))
            async with master:
                slave.replication.note_master(master.replication.ha_address, master.address)
                await eventually(lambda: bool(master.replication.state().slaves))


def test_the_address_of_a_master_needs_a_port() -> None:
    with pytest.raises(ConfigError, match=r"haMasterAddress: .* has no port"):
        Broker(
            BrokerConfig().changed(
                {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.1"}
            )
        )


@pytest.mark.parametrize("wrong", ["10.0.0.1", "h..x:10912", "127.0.0.1:99999"])
async def test_a_slave_survives_a_wrong_address_of_its_master(tmp_path: Path, wrong: str) -> None:
    async with (
        running_pair(tmp_path, with_slave=False) as pair,
        NameServer(host="127.0.0.1", port=0) as empty,
        Broker(broker_config(tmp_path / "s", empty, brokerRole="SLAVE", brokerId="1")) as slave,
    ):
        replication = slave.replication
        replication.note_master(wrong, pair.master.address)
        await eventually(lambda: wrong in replication.state().trouble)
        replication.note_master(pair.master.replication.ha_address, pair.master.address)
        await eventually(lambda: bool(pair.master.replication.state().slaves))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_whose_disk_is_full_continues_when_there_is_space(
    tmp_path: Path, small_disk: Callable[[int], Path], flush: str
) -> None:
    disk = small_disk(2 << 20)
    role = {"brokerRole": "SLAVE", "brokerId": "1", "flushDiskType": flush}
    async with running_pair(tmp_path, with_slave=False) as pair:
        config = broker_config(disk / "store", pair.name_server, **role)
        async with Broker(config) as slave:
            for number in range(500):
                pair.master.store.put(Record(topic="T", body=bytes(9000), queue_id=number % 2))
            await eventually(lambda: "No space left" in slave.replication.state().trouble)
            assert log_of(pair.master).startswith(log_of(slave))
            if flush == "SYNC_FLUSH":
                reported = [each.acknowledged for each in pair.master.replication.state().slaves]
                durable = slave.store.backend.durable_offset
                assert all(each <= durable for each in reported)
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            await eventually(have_equal_logs(pair._replace(slave=slave)))
            assert sum(slave.store.max_offset("T", queue) for queue in range(2)) == 500
