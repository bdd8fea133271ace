"""Replication on the HA port, with the reference at either end."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness import servers
from harness.drivers import Driver, Json, message
from harness.replication.replicas import Replicas, await_equal_logs
from harness.servers import BrokerServer

from congreve.console.replication.replicas import replicas as replicas_command

MESSAGES = 400


@pytest.fixture
def replicas(namesrv: servers.Server, tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(namesrv, tmp_path)
    yield made
    made.kill()


def messages(topic: str, count: int, seed: int) -> list[Json]:
    """Messages of many sizes, which end segments at many places."""
    chance = random.Random(seed)
    return [
        message(
            topic,
            f"{seed}-{i}|".encode() + chance.randbytes(chance.choice([0, 10, 400, 3000, 30_000])),
            keys=f"key-{seed}-{i}",
            tags=chance.choice(["TagA", "TagB"]),
            **({"delayLevel": 2} if i % 50 == 0 else {}),
        )
        for i in range(count)
    ]


def send(java: Driver, namesrv: servers.Server, sent: list[Json]) -> list[Json]:
    results = java.call("send", messages=sent, namesrv=namesrv.address)["results"]
    assert {one["status"] for one in results} == {"SEND_OK"}
    return results


@pytest.mark.parametrize(("master", "slave"), [("java", "congreve"), ("congreve", "java")])
def test_a_slave_has_the_same_bytes_as_its_master(
    replicas: Replicas, java: Driver, namesrv: servers.Server, master: str, slave: str
) -> None:
    topic = f"ha-{replicas.name}"
    first = replicas.master(master)
    java.mqadmin(
        *("updateTopic", "-n", namesrv.address, "-b", first.address, "-t", topic, "-r", "4"),
        *("-w", "4"),
    )
    send(java, namesrv, messages(topic, MESSAGES, 1))
    second = replicas.slave(slave)
    await_equal_logs(first, second)
    send(java, namesrv, messages(topic, MESSAGES, 2))
    await_equal_logs(first, second)
    # A RocketMQ slave copies tables 3 s after its start, and then each 10 s.
    await_topic(second, topic)
    shown = java.mqadmin("clusterList", "-n", namesrv.address)
    assert [line.split()[2] for line in shown.splitlines() if replicas.name in line] == ["0", "1"]
    rows = replica_rows(namesrv, replicas.name)
    assert [(row["role"], row["lag_bytes"]) for row in rows] == (
        [("master", None), ("slave", 0)] if master == "java" else [("master", 0), ("slave", None)]
    )
    if slave == "congreve":
        shown = java.mqadmin("brokerStatus", "-n", namesrv.address, "-b", second.address)
        assert re.search(rf"haMaster +: {first.address.partition(':')[0]}:{first.port + 1}", shown)
    else:
        shown = java.mqadmin("brokerStatus", "-n", namesrv.address, "-b", first.address)
        assert re.search(r"haSlaves +: 127.0.0.1:\d+ lag 0 bytes 0 ms", shown)


def replica_rows(namesrv: servers.Server, name: str) -> list[Json]:
    """What `congreve replicas` shows of one group."""
    done = CliRunner().invoke(
        replicas_command, ["-n", namesrv.address, "--output", "json"], catch_exceptions=False
    )
    return [row for row in json.loads(done.stdout) if row["broker"] == name]


def await_topic(slave: BrokerServer, topic: str) -> None:
    """Wait until the slave's table has the topic."""
    file = slave.store / "config" / "topics.json"
    deadline = time.monotonic() + 60
    while not file.exists() or f'"{topic}"' not in file.read_text():
        assert time.monotonic() < deadline, slave.tail()
        time.sleep(0.05)
