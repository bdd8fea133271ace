"""``congreve cluster drain`` and ``spread``, killed at each of their requests and repeated."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from harness import servers
from harness.wire import Wire

from congreve.client import Message, SyncProducer, SyncPullConsumer
from tests.console.conftest import congreve

UPDATE_TOPIC, UPDATE_GROUP, GET_ALL_GROUPS = 17, 200, 201
APPLY = ("--apply", "--output", "json")
DRAIN = ("cluster", "drain", "a", *APPLY)
QUICK_STEP = 7


class Cluster:
    """Two brokers, each with its own name server and that of the other."""

    def __init__(self, folder: Path) -> None:
        self.name_servers = [servers.namesrv("congreve", folder / f"n{each}") for each in (1, 2)]
        for each in self.name_servers:
            each.start()
        self.namesrv = ";".join(each.address for each in self.name_servers)
        self.brokers = {}
        for name in ("a", "b"):
            broker = servers.broker(
                *("congreve", folder / name, self.name_servers[0].address),
                broker_name=name,
                settings={"namesrvAddr": self.namesrv},
            )
            broker.command[-1] = self.namesrv
            broker.start()
            self.brokers[name] = broker

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        for each in self.name_servers:
            each.kill()

    def rows(self, *arguments: str, namesrv: str = "") -> list[dict[str, Any]]:
        run = congreve(*arguments, namesrv=namesrv or self.namesrv)
        assert run.returncode == 0, run.stderr
        found: list[dict[str, Any]] = json.loads(run.stdout)
        return found

    def killed(self, number: int, *arguments: str) -> bool:
        """Run a command; whether it was killed before it ended."""
        run = congreve(*arguments, namesrv=self.namesrv, killed_at=number)
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
        return run.returncode != 0

    def sends(self) -> list[str]:
        status = self.rows("cluster", "status", "--output", "json")
        assert {row["registered"] for row in status} == {2}
        return [row["sends"] for row in status]

    def routes(self, topic: str) -> list[dict[str, tuple[int, int]]]:
        """Write queues and permission by broker, of each name server."""
        return [
            {row["broker"]: (row["write_queues"], row["perm"]) for row in rows}
            for rows in (
                self.rows("topic", "route", topic, "--output", "json", namesrv=each.address)
                for each in self.name_servers
            )
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("two"))
    yield found
    found.stop()


def killed_at_each(quick: bool, walk: Callable[[int], bool]) -> int:
    """`walk` kills at a request and says whether there was one; returns how many there are."""
    for number in count(1, QUICK_STEP if quick else 1):
        if not walk(number):
            return number - 1
    raise AssertionError


def test_a_drain_that_was_killed_at_any_request_has_the_same_end(
    cluster: Cluster, quick: bool
) -> None:
    cluster.rows("topic", "create", "drained", "-q", "2", "--output", "json")
    with (
        SyncProducer(cluster.namesrv, group="p") as producer,
        SyncPullConsumer(cluster.namesrv, group="reads") as consumer,
    ):
        for queue in consumer.queues("drained"):
            producer.send(Message(topic="drained", body=b"m"), queue=queue)
            consumer.commit(queue, 1)

    def walk(number: int) -> bool:
        killed = cluster.killed(number, *DRAIN, "--route-poll", "0.1")
        assert cluster.sends() in (["open", "open"], ["draining", "open"]), "no third state"
        end = cluster.rows(*DRAIN, "--route-poll", "0.1")
        assert end == [{"broker": "a", "sends": "draining", "remaining": 0}]
        assert cluster.sends() == ["draining", "open"]
        assert cluster.routes("drained") == 2 * [{"a": (2, 4), "b": (2, 6)}]
        undo_killed = cluster.killed(number, *DRAIN, "--undo")
        assert cluster.rows(*DRAIN, "--undo") == [{"broker": "a", "sends": "open"}]
        assert cluster.sends() == ["open", "open"]
        assert cluster.routes("drained") == 2 * [{"a": (2, 6), "b": (2, 6)}]
        return killed or undo_killed

    assert killed_at_each(quick, walk) > QUICK_STEP


def test_a_spread_that_was_killed_at_any_request_has_the_same_end(
    cluster: Cluster, quick: bool
) -> None:
    def walk(number: int) -> bool:
        topic, group = f"spread-{number}", f"reads-{number}"
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "3",
            "writeQueueNums": "3",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }
        settings = json.dumps({"groupName": group, "retryMaxTimes": 3}).encode()
        with Wire(cluster.brokers["a"].address) as wire:
            assert wire.call(UPDATE_TOPIC, fields).code == 0
            assert wire.call(UPDATE_GROUP, {}, settings).code == 0
        with SyncPullConsumer(cluster.namesrv, group=group) as consumer:
            consumer.commit(consumer.queues(topic)[0], 0)
        killed = cluster.killed(number, "cluster", "spread", topic, *APPLY)
        end = cluster.rows("cluster", "spread", topic, *APPLY)
        assert [(row["broker"], row["after"]) for row in end] == [("a", 3), ("b", 3)]
        assert cluster.routes(topic) == 2 * [{"a": (3, 6), "b": (3, 6)}]
        with Wire(cluster.brokers["b"].address) as wire:
            groups = json.loads(wire.call(GET_ALL_GROUPS, {}).body)["subscriptionGroupTable"]
        assert groups[group]["retryMaxTimes"] == 3
        return killed

    assert killed_at_each(quick, walk) > QUICK_STEP
