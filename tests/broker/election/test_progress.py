"""What a member notes of its own progress: nothing that another log of the group can replace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.etcd import Etcd
from harness.replication.pairs import broker_config

from congreve.broker.broker import Broker
from congreve.broker.delay.recalls import Parked
from congreve.engine import writable_store
from congreve.namesrv.server import NameServer
from congreve.records.message.message import Host, Record
from congreve.records.message.topics import TRANS_GROUP, TRANS_HALF_TOPIC

from .test_confirmed_only import ONE_QUEUE, TOPIC, Link, pair

SYNC = {"flushDiskType": "SYNC_FLUSH"}
HALF = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "half", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
HOST: Host = ("127.0.0.1", 1)


def progress(broker: Broker) -> int:
    """The half messages that are ended, as the offset of the broker's own group says."""
    return max(broker.managers.metadata.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0), 0)


async def test_a_transaction_whose_end_was_lost_is_open_at_the_next_master(
    tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link()
    link.hold_back(monkeypatch)
    async with pair(tmp_path, etcd, slaveTimeout="60000", **SYNC) as group:
        master, slave = group.broker(1), group.broker(2)
        transactions = master.managers.transactions
        put = transactions.service.prepare(Record(topic=TOPIC, body=b"x", properties=HALF))
        await eventually(lambda: slave.store.max_offset(TRANS_HALF_TOPIC, 0) == 1)
        link.held = True
        half = transactions.service.find(put.physical_offset)
        assert half is not None and transactions.service.commit(half, 0) is not None
        for _ in range(30):  # the slave copies the offsets each second
            transactions.save()
            await asyncio.sleep(0.1)
        assert (progress(master), progress(slave)) == (0, 0)
        await group.stop(1)
        link.held = False
        assert await group.master() == 2
        transactions = group.broker(2).managers.transactions
        assert transactions.service.open_offsets() == [0]
        half = transactions.service.half_at(0)
        assert half is not None and transactions.service.commit(half, 0) is not None
        await eventually(lambda: group.broker(2).store.max_offset(TOPIC, 0) == 1)
        await eventually(lambda: transactions.save() or progress(group.broker(2)) == 1)


async def test_what_is_not_confirmed_is_in_no_file_of_delayed_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writable_store, "SHOWN_MAX_S", 0.1)
    async with (
        NameServer(host="127.0.0.1", port=0) as names,
        Broker(broker_config(tmp_path, names)) as broker,
    ):
        store, delayed = broker.store, broker.managers.delayed
        broker.managers.metadata.topics.update(ONE_QUEUE)
        await asyncio.gather(*(file.saved() for file in delayed.files))
        before = notes(tmp_path)
        store.show_below(store.log.max_offset)
        recall = Parked(1, 0, int(time.time() * 1000) + 60_000)
        assert delayed.recalls.put(recall, TOPIC, "id", HOST).queue_offset == 0
        delayed.levels.follow_master({2: 7}, store.log.max_offset)
        for _ in range(5):
            delayed.save()
            await asyncio.sleep(0.1)
        assert notes(tmp_path) == before
        assert broker.managers.trouble() is None, "the broker is ready meanwhile"
        store.show_below(store.log.max_offset)
        for file, text in zip(NOTES, ("{2:7", "[0]"), strict=True):
            await eventually(
                lambda file=file, text=text: delayed.save() or text in notes(tmp_path)[file]
            )


def notes(folder: Path) -> dict[str, str]:
    files = {name: folder / name for name in NOTES}
    return {name: file.read_text() if file.exists() else "" for name, file in files.items()}


NOTES = ("config/delayOffset.json", "congreve/recalls.json")
