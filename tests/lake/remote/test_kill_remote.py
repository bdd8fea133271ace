"""kill -9 of a broker beside its exporter, and of a catalog: each message is in the table once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from harness import servers
from harness.wire import SEND_MESSAGE_V2, Wire, send_fields

from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import TableError
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog

from .. import stores
from . import rest_catalog

ROUNDS_SHARE = 50  # of --kill-rounds
QUEUES = 3
WAIT_S = 120

Acknowledged = dict[tuple[int, int], bytes]


def exporter(store: Path, warehouse: str, uri: str | None = None) -> Exporter:
    table = TopicTable(open_catalog(warehouse, uri), "rocketmq.T", SCHEMA, "day")
    return Exporter(DurableTopic(store, stores.TOPIC, "broker-a"), table, commit_bytes=1)


def send_until_killed(address: str, seed: int, acknowledged: Acknowledged) -> None:
    chance = random.Random(seed)
    try:
        with Wire(address) as wire:
            for number in range(1_000_000):
                body = b"%d-%d" % (seed, number)
                fields = send_fields(stores.TOPIC, chance.randrange(QUEUES), {"TAGS": "t"})
                answer = wire.call(SEND_MESSAGE_V2, fields, body)
                if answer.code == 0:
                    at = int(answer.fields["queueId"]), int(answer.fields["queueOffset"])
                    acknowledged[at] = body
    except OSError:
        return


def checked(warehouse: Path, acknowledged: Acknowledged) -> int:
    """The rows of the table, none of which is there twice or is another message."""
    found = stores.in_table(warehouse)
    rows = {row[:2]: row[2] for row in found}
    assert len(rows) == len(found), "rows are duplicated"
    assert all(body == acknowledged.get(at, body) for at, body in rows.items())
    return len(rows)


def await_rows(warehouse: Path, acknowledged: Acknowledged, than: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while checked(warehouse, acknowledged) <= than:
        assert time.monotonic() < deadline, "the table does not grow"
        time.sleep(0.2)


@pytest.mark.crash
def test_a_killed_broker_leaves_each_acknowledged_message_once(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    warehouse, chance = tmp_path / "lake", random.Random()
    rounds = max(kill_rounds // ROUNDS_SHARE, 1)
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    settings = {
        "flushDiskType": "SYNC_FLUSH",
        "lakeTopics": stores.TOPIC,
        "lakeWarehouse": str(warehouse),
        "lakeLagMillis": "1000",
        "mappedFileSizeCommitLog": str(1 << 20),
    }
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address, settings=settings)
    acknowledged: Acknowledged = {}
    namesrv.start()
    try:
        for number in range(rounds):
            broker.start()
            sender = threading.Thread(
                target=send_until_killed, args=(broker.address, number, acknowledged)
            )
            sender.start()
            await_rows(warehouse, acknowledged, than=checked(warehouse, acknowledged))
            time.sleep(chance.uniform(0, 0.6))  # an export begins every half second
            broker.kill()
            sender.join(30)
    finally:
        broker.kill()
        namesrv.kill()
    config = StoreConfig(root_dir=str(broker.store), mapped_file_size_commit_log=1 << 20)
    with MessageStore(config):  # recovers the log
        pass
    exporter(broker.store, str(warehouse)).run()
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse)
    assert stores.in_table(warehouse) == stores.in_store(broker.store)
    assert {row[:2] for row in stores.in_table(warehouse)} >= acknowledged.keys()
    campaign("broker beside an exporter: kill", rounds)


def start_catalog(port: int, warehouse: Path) -> subprocess.Popen[bytes]:
    """The stand-in for a REST catalog, in a process of its own; stores.in_table() reads it too."""
    arguments = (str(port), f"sqlite:///{warehouse}/catalog.db", warehouse.as_uri())
    process = subprocess.Popen([sys.executable, rest_catalog.__file__, *arguments])
    deadline = time.monotonic() + WAIT_S
    while not servers.accepts(port):
        assert process.poll() is None and time.monotonic() < deadline, "the catalog does not start"
        time.sleep(0.02)
    return process


@pytest.mark.crash
def test_a_killed_catalog_leaves_each_message_once(
    tmp_path: Path, kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    warehouse, chance = tmp_path / "lake", random.Random()
    rounds = max(kill_rounds // ROUNDS_SHARE, 1)
    store = stores.write(tmp_path / "store", 100)
    started = time.monotonic()
    exporter(store, str(warehouse)).run()
    usual = time.monotonic() - started
    port = servers.free_port()
    for number in range(rounds):
        with stores.open_writer(store) as writer:
            stores.put(writer, 100 * (number + 1), 100)
        catalog = start_catalog(port, warehouse)
        killer = threading.Timer(chance.uniform(0.1, 1) * usual, catalog.kill)
        killer.start()
        with suppress(TableError, OSError):
            exporter(store, warehouse.as_uri(), f"http://{servers.HOST}:{port}").run()
        killer.join()
        catalog.wait()
        checked(warehouse, {})
    exporter(store, str(warehouse)).run()
    assert stores.in_table(warehouse) == stores.in_duckdb(warehouse) == stores.in_store(store)
    campaign("catalog of a table: kill", rounds)
