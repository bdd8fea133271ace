"""AutoSwitch replication with RocketMQ 5's own classes at the other end, in both roles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from harness.drivers import Driver, Json, auto_switch_store
from harness.eventually import eventually
from harness.replication.replicas import log_bytes
from harness.servers import HOST, free_port

from congreve.broker.election.complete_log import CleanStopFile, CompleteLog
from congreve.broker.election.coordinator import GroupState, Master
from congreve.broker.election.epoch_log import EpochLog
from congreve.broker.election.fence import Fence
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.master_link import ElectedSlave
from congreve.broker.election.slave_link import AutoSwitchService
from congreve.broker.repair.log_repair import LogRepair
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave import MasterAddress
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.remoting.messages.bodies import KVTable
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

SEGMENT = 1 << 16
JAVA, OURS = 1, 2
SETTINGS = ReplicationSettings(
    sync_flush=False,
    transfer_batch_bytes=1 << 15,
    heartbeat_s=0.2,
    silence_s=30.0,
    allowed_addresses="*",
)


class NoBroker:
    """Answers what a slave asks its master's broker: where an empty log is to begin."""

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        table = {"commitLogMinOffset": "0", "commitLogMaxOffset": "0"}
        return command.reply(0, body=KVTable(table=table).encode())


class Java:
    """A store of RocketMQ 5; the calls wait on another thread."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self._driver = driver
        self.folder = folder
        self.ha_address = f"{HOST}:{(port := free_port())}"
        driver.call("", folder=str(folder), id=JAVA, port=port, segment=SEGMENT)

    async def call(self, do: str, **request: object) -> Json:
        return await asyncio.to_thread(self._driver.call, do, **request)

    async def epochs(self) -> list[tuple[int, int]]:
        return [(number, start) for number, start in (await self.call("state"))["epochs"]]


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Java]:
    driver = auto_switch_store(tmp_path / "driver")
    yield Java(driver, tmp_path / "java")
    driver.kill()


@asynccontextmanager
async def following(store: MessageStore, epochs: EpochLog, java: Java) -> AsyncIterator[None]:
    """Our slave follows their master."""

    async def copy_tables() -> bool:
        return True

    def diverged(at: int) -> None:
        raise AssertionError(f"the logs differ from {at} on")

    slave = ElectedSlave(
        store,
        SETTINGS,
        lambda: MasterAddress(java.ha_address, "broker:1"),
        cast(RemotingClient, NoBroker()),
        lambda queues: None,
        None,
        member=OURS,
        epochs=epochs,
        complete=CompleteLog(CleanStopFile(store.config.own_dir)),
        diverged=diverged,
        copy_tables=copy_tables,
        repair=LogRepair(store),
        names_store=lambda: False,
        show=store.show_below,
    )
    slave.start()
    try:
        yield
    finally:
        await slave.stop()


@asynccontextmanager
async def leading(
    store: MessageStore, epochs: EpochLog, epoch: int
) -> AsyncIterator[tuple[Any, ...]]:
    """Our master; yields its fence and the HA port's address."""
    epochs.save(epochs.epochs.begun(epoch, store.log.max_offset))
    master = Master(OURS, epoch, "broker:2", "ha:2")
    term = InSyncSet(GroupState(master, epoch, frozenset({OURS}), (1,)), max_lag_s=30)
    lease = MasterLease(1000, 1)
    lease.renewed(lease.now())
    confirm = ConfirmOffset(store.backend, waits_for_disk=False, waits_for_slaves=True)
    fence = Fence(term, lease, store.log, confirm, lease.now, show=store.show_below)
    fence.open()
    service = AutoSwitchService(store, SETTINGS, fence=fence, epochs=epochs.epochs)
    service.listen(HOST, 0)
    try:
        yield fence, f"{HOST}:{service.port}"
    finally:
        service.stop()


async def test_rocketmq_5_leads_and_follows(tmp_path: Path, java: Java) -> None:
    """Their epochs and log reach our slave; what it then writes as master replaces theirs."""
    config = StoreConfig(
        root_dir=str(tmp_path / "ours"),
        mapped_file_size_commit_log=SEGMENT,
        max_hash_slot_num=1000,
        max_index_num=4000,
        flush_disk_type="ASYNC_FLUSH",
    )
    epochs = EpochLog(config)
    epochs.load()
    with MessageStore(config) as store:

        async def equal() -> bool:
            return (await java.call("state"))["end"] == store.log.max_offset

        await java.call("lead", epoch=1)
        async with following(store, epochs, java):
            # Their empty log has no offset yet: heartbeats say -1.
            await java.call("put", count=300, text="one")
            await eventually(equal)
        await java.call("put", count=10, text="one more")
        await java.call("lead", epoch=2)
        await java.call("put", count=20, text="two")
        async with following(store, epochs, java):
            await java.call("put", count=300, text="two again")
            await eventually(equal)

            async def is_in_sync() -> bool:
                found = await java.call("state")
                return OURS in found["inSync"] and found["confirmed"] == found["end"]

            await eventually(is_in_sync)
            # Our slave shows what the next frame confirms.
            await eventually(lambda: store.max_offset("T", 0) == 630)
        assert await java.epochs() == list(epochs.epochs.entries)
        assert log_bytes(java.folder) == log_bytes(Path(config.root_dir))

        await java.call("put", count=7, text="lost")  # only their store has these
        async with leading(store, epochs, 3) as (fence, address):
            for number in range(400):
                store.put(Record(topic="T", body=b"three%d" % number))
            await java.call("follow", epoch=3, address=address)
            await eventually(equal)
            await eventually(lambda: fence.proposal() == {JAVA, OURS})
            store.put(Record(topic="T", body=b"four"))
            assert fence.confirmed() < store.log.max_offset or await equal()
            await eventually(lambda: fence.confirmed() == store.log.max_offset)
            assert await java.epochs() == list(epochs.epochs.entries)
            await eventually(lambda: log_bytes(java.folder) == log_bytes(Path(config.root_dir)))

            async def is_dispatched() -> bool:
                return (await java.call("state"))["messages"] == store.max_offset("T", 0) == 1031

            await eventually(is_dispatched)
