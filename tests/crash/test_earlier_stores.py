"""Stores of an earlier version (harness/earlier_store.py), without identities and marks, go on."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.engine.state.identity import IdentityFile
from congreve.records.message.message import Record
from congreve.records.message.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from congreve.records.record import decode_record
from congreve.store_reader import open_store

GOLDEN = Path(__file__).parents[1] / "golden/earlier_stores.zip"
WRITTEN_MS = 1_795_661_490_000
"""Seconds after the stores were written: their delayed message is not due, nothing has expired."""
KINDS = ("killed", "stopped")


def extract(kind: str, root: Path) -> Path:
    """One of the stores, below `root`."""
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(root, [name for name in archive.namelist() if name.startswith(kind)])
    return root / kind


def broker_of(store: Path, **settings: object) -> Broker:
    usual = {
        "brokerName": "earlier",
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": "0",
        "storePathRootDir": str(store),
        "mappedFileSizeCommitLog": str(1 << 18),
        "mappedFileSizeConsumeQueue": "20000",
        "maxHashSlotNum": "100",
        "maxIndexNum": "400",
        "flushDiskType": "SYNC_FLUSH",
    }
    return Broker(BrokerConfig().changed({**usual, **settings}), clock=ManualClock(WRITTEN_MS))


def bodies(broker: Broker, topic: str, queue_id: int) -> list[bytes]:
    store = broker.store
    queue = store.queues.get(topic, queue_id)
    found = (store.read(queue[offset][0]) for offset in range(queue.min, queue.max))
    return [decode_record(record).body for record in found if record is not None]


def check(broker: Broker, more: int = 0) -> None:
    """The store has what was written, and `more` messages that a later version added."""
    added = [b"added"] * more
    kept = bodies(broker, "Kept", 0) + bodies(broker, "Kept", 1)
    assert sorted(kept) == sorted([*(b"kept %d" % n for n in range(20)), b"committed", *added])
    assert bodies(broker, "Again", 0) == [*(b"new %d" % n for n in range(3)), *added]
    assert bodies(broker, SCHEDULE_TOPIC, 17) == [b"level"]
    assert broker.managers.metadata.topics.get("Kept") is not None
    open_halves = broker.managers.transactions.service.open_offsets()
    assert [bodies(broker, TRANS_HALF_TOPIC, 0)[offset] for offset in open_halves] == [b"half"]
    offsets = broker.managers.metadata.offsets
    read = [offsets.query("g", "Kept", queue_id) for queue_id in range(2)]
    assert sum(max(offset, 0) for offset in read) == 7
    assert broker.store.index is not None


def add(broker: Broker) -> None:
    for topic in ("Kept", "Again"):
        put = broker.store.put(Record(topic=topic, body=b"added"))
        assert put.status.name == "PUT_OK", put
        assert broker.store.wait_durable(put.end, 30)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_of_an_earlier_version_goes_on(kind: str, tmp_path: Path) -> None:
    root = extract(kind, tmp_path)
    assert IdentityFile(str(root / "congreve")).load() is None
    ids = set()
    for lives in range(3):
        async with broker_of(root) as broker:
            check(broker, more=lives)
            add(broker)
            ids.add(broker.store.identity)
            recovery = broker.store.recovery
            assert recovery is not None and not recovery.damaged
    assert len(ids) == 1, "the store keeps the identity of its first use"
    with open_store(root) as reader:
        report = reader.verify()
        assert not report.problems, report
