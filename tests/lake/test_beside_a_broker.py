"""`lakeTopics`: what a broker acknowledges reaches the table, also after a kill of the exporter."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import congreve

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
