"""``congreve cluster`` beside mqadmin and Java clients, on a broker of ours and one of RocketMQ."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import servers
from harness.drivers import Driver, message
from harness.replication.supervisor import Supervisor

TIMEOUT_S = 300
POLL_MS = 1_000
ROUTE_POLL_S = "6"
"""Longer than a poll, because a busy JVM may be late."""


class Mixed:
    """A name server, our broker `ours`, RocketMQ's broker `theirs`."""

    def __init__(self, folder: Path) -> None:
        self.namesrv = servers.namesrv("congreve", folder / "namesrv")
        self.namesrv.start()
        kinds = {"ours": "congreve", "theirs": "java"}
        self.brokers = {
            name: servers.broker(
                kind, folder / name, self.namesrv.address, broker_name=name, watchdog_millis=0
            )
            for name, kind in kinds.items()
        }
        for broker in self.brokers.values():
            broker.start()

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows of `congreve cluster`."""
        run = subprocess.run(
            [
                *(sys.executable, "-m", "congreve", "cluster", *arguments),
                *("-n", self.namesrv.address, "--output", "json"),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        found: list[dict[str, Any]] = json.loads(run.stdout)
        return found

    def sends(self) -> dict[str, str]:
        return {row["broker"]: row["sends"] for row in self.rows("status")}

    def perms(self, java: Driver, topic: str) -> dict[str, int]:
        out = java.mqadmin("topicRoute", "-t", topic, "-n", self.namesrv.address)
        found = re.findall(r'"brokerName":"(\w+)",\s*"perm":(\d)', out)
        return {name: int(perm) for name, perm in found}

    def create(self, java: Driver, topic: str, broker: str) -> None:
        out = java.mqadmin(
            *("updateTopic", "-n", self.namesrv.address, "-b", self.brokers[broker].address),
            *("-t", topic, "-r", "2", "-w", "2"),
        )
        assert "success" in out, out


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    cluster = Mixed(tmp_path_factory.mktemp("mixed"))
    yield cluster
    for broker in cluster.brokers.values():
        broker.kill()
    cluster.namesrv.stop()


def test_mqadmin_and_the_verbs_see_each_others_changes(mixed: Mixed, java: Driver) -> None:
    namesrv = ("-n", mixed.namesrv.address)
    mixed.create(java, "spread", "theirs")
    assert mixed.perms(java, "spread") == {"theirs": 6}
    mixed.rows("spread", "spread", "--apply")
    assert mixed.perms(java, "spread") == {"ours": 6, "theirs": 6}
    java.mqadmin("updateTopicPerm", *namesrv, "-c", servers.CLUSTER, "-t", "spread", "-p", "4")
    mixed.create(java, "usual", "ours")
    mixed.rows("spread", "usual", "--apply")
    for name in mixed.brokers:
        java.mqadmin("wipeWritePerm", *namesrv, "-b", name)
        assert mixed.sends()[name] == "wiped"
        assert mixed.perms(java, "usual")[name] == 4
        mixed.rows("drain", name, "--undo", "--apply")
        assert mixed.perms(java, "usual")[name] == 6
        assert mixed.perms(java, "spread")[name] == 4, "addWritePerm would make it 6"
        mixed.rows("drain", name, "--apply", "--force", "--route-poll", "0.1")
        assert mixed.perms(java, "usual")[name] == 4
        mixed.rows("drain", name, "--undo", "--apply")
    assert mixed.sends() == {"ours": "open", "theirs": "open"}


def test_what_remains_of_a_java_consumer_and_of_delays_is_named(mixed: Mixed, java: Driver) -> None:
    mixed.create(java, "left", "theirs")
    messages = [message("left", b"1"), message("left", b"2"), message("left", b"3", delayLevel=18)]
    java.call("send", namesrv=mixed.namesrv.address, messages=messages)
    java.call(
        "consumerStart",
        id="left",
        group="left",
        topic="left",
        instances=1,
        failures=10_000,
        namesrv=mixed.namesrv.address,
    )  # it sends back each message
    found = {row["kind"]: row for row in mixed.rows("drain", "theirs")}
    java.call("consumerStop", id="left")
    assert found["delayed"]["messages"] >= 1
    assert (found["not consumed"]["group"], found["not consumed"]["topic"]) == ("left", "left")


def test_a_roll_fails_no_send_of_java_and_keeps_the_order(
    mixed: Mixed, java: Driver, tmp_path: Path
) -> None:
    namesrv = mixed.namesrv.address
    for name in mixed.brokers:
        mixed.create(java, "rolled", name)
    java.call(
        "attemptsStart",
        id="p",
        topic="rolled",
        namesrv=namesrv,
        retries=0,
        pauseMs=10,
        pollMs=POLL_MS,
        timeoutMs=30_000,
    )
    java.call(
        "consumerStart",
        id="c",
        group="rolled",
        topic="rolled",
        namesrv=namesrv,
        instances=2,
        orderly=True,
        places=True,
        hasty=True,
    )
    mixed.rows("spread", "--all", "--apply")
    with Supervisor(mixed.brokers, tmp_path) as supervisor:
        mixed.rows("roll", "--restart", supervisor.command, "--apply", "--route-poll", ROUTE_POLL_S)
        assert supervisor.stopped() == ["ours", "theirs"]
    answer = java.call("attemptsStop", id="p")
    sent = {number: broker for _, _, number, broker in answer["attempts"]}
    assert all(sent.values()), answer["why"]
    assert set(sent.values()) == {"ours", "theirs"}
    java.call("consumerWait", id="c", expected=len(sent), timeoutMs=120_000, quietMs=0)
    places = java.call("consumerPlaces", id="c")["places"]
    java.call("consumerStop", id="c")
    assert {number for _, _, number in places} == sent.keys()
    first: dict[tuple[str, int], list[int]] = {}
    for queue, _, number in places:
        numbers = first.setdefault((sent[number], queue), [])
        if number not in numbers:
            numbers.append(number)
    assert all(numbers == sorted(numbers) for numbers in first.values())
    assert mixed.sends() == {"ours": "open", "theirs": "open"}
