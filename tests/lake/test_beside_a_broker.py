"""`lakeTopics`: what a broker acknowledges reaches the table, also after a kill of the exporter."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from click.testing import CliRunner

import congreve
from congreve.console.lake import lake

from . import stores


def wait_for_rows(warehouse: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(stores.in_table(warehouse)) < count:
        assert time.monotonic() < deadline, f"the table has fewer than {count} rows"
        time.sleep(0.2)


def test_messages_of_a_running_broker_reach_the_table(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    settings = {
        "lakeTopics": stores.TOPIC,
        "lakeWarehouse": str(warehouse),
        "lakeLagMillis": 1_000,
        "mappedFileSizeCommitLog": 1 << 20,
    }
    with congreve.serve(tmp_path / "data", **settings) as node:
        lake = node.broker._beside.lake
        assert lake is not None
        with node.producer("writers") as producer:
            for number in range(20):
                producer.send(congreve.Message(topic=stores.TOPIC, body=b"%d" % number))
            wait_for_rows(warehouse, 20)
            pid = lake.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            for number in range(20, 30):
                producer.send(congreve.Message(topic=stores.TOPIC, body=b"%d" % number))
        wait_for_rows(warehouse, 30)
    assert lake.pid is None
    assert sorted(int(row[2]) for row in stores.in_table(warehouse)) == list(range(30))


def export(store: Path, warehouse: Path, *options: str) -> tuple[dict[str, object], str]:
    """What the command prints, and its warnings."""
    command = ["export", "-t", stores.TOPIC, "--store", str(store), "--warehouse", str(warehouse)]
    done = CliRunner().invoke(lake, [*command, "--output", "json", *options])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    return row, done.stderr


def test_an_export_knows_the_broker_and_says_what_waits_for_a_checkpoint(tmp_path: Path) -> None:
    store, warehouse = tmp_path / "data" / "store", tmp_path / "lake"
    settings = {"brokerName": "broker-z", "flushConsumeQueueThoroughInterval": 3_600_000}
    with congreve.serve(tmp_path / "data", **settings) as node:
        with node.producer("writers") as producer:
            for number in range(20):
                producer.send(congreve.Message(topic=stores.TOPIC, body=b"%d" % number))
        row, _ = export(store, warehouse)
        assert (row["messages"], row["not_durable"]) == (0, 20)
    row, warnings = export(store, warehouse)
    assert (row["messages"], row["not_durable"], warnings) == (20, 0, "")
    rows = stores.table_of(warehouse).scan().to_arrow().to_pylist()
    assert {row["brokerName"] for row in rows} == {"broker-z"}
    row, warnings = export(store, warehouse, "--broker-name", "broker-y")
    assert row["messages"] == 20 and "is the store of broker-z" in warnings
