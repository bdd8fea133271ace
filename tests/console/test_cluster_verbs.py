"""``congreve cluster`` and its verbs, on two brokers of one name server."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import servers

from congreve.client import (
    Message,
    SendResult,
    SyncProducer,
    SyncPullConsumer,
    SyncShareConsumer,
    SyncTransactionProducer,
    TransactionState,
)
from congreve.client.settings import ConsumeFrom
from tests.console.conftest import congreve


class Two:
    """A name server and two brokers."""

    def __init__(self, folder: Path) -> None:
        self.namesrv = servers.namesrv("congreve", folder / "namesrv")
        self.namesrv.start()
        self.brokers = {
            name: servers.broker("congreve", folder / name, self.namesrv.address, broker_name=name)
            for name in ("a", "b")
        }
        for broker in self.brokers.values():
            broker.start()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return congreve(*arguments, "--output", "json", namesrv=self.namesrv.address)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        run = self.run(*arguments)
        assert run.returncode == 0, run.stderr
        found: list[dict[str, Any]] = json.loads(run.stdout)
        return found

    def sends(self) -> list[str]:
        return [row["sends"] for row in self.rows("cluster", "status")]

    def stop(self) -> None:
        for broker in self.brokers.values():
            assert broker.stop() == 0, broker.tail()
        self.namesrv.stop()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    cluster = Two(tmp_path_factory.mktemp("two"))
    yield cluster
    cluster.stop()


@pytest.fixture(autouse=True)
def open_sends(two: Two) -> Iterator[None]:
    yield
    two.run("cluster", "drain", "a", "--undo", "--apply")


def perms(two: Two, topic: str) -> dict[str, int]:
    return {row["broker"]: row["perm"] for row in two.rows("topic", "route", topic)}


DRAIN = ("cluster", "drain", "a", "--apply", "--route-poll", "0.1")


def test_the_status_has_a_row_for_each_broker(two: Two) -> None:
    first, second = two.rows("cluster", "status")
    assert first == {
        "cluster": servers.CLUSTER,
        "broker": "a",
        "id": 0,
        "address": two.brokers["a"].address,
        "state": "answers",
        "sends": "open",
        "slaves": 0,
        "in_sync": 0,
        "lag_bytes": 0,
        "registered": 1,
        "name_servers": 1,
    }
    assert second["broker"] == "b"
    assert [row["broker"] for row in two.rows("cluster")] == ["a", "b"]
    misplaced = congreve("cluster", "-n", two.namesrv.address, "status")
    assert (misplaced.returncode, "after the verb" in misplaced.stderr) == (2, True)


def test_the_status_names_what_takes_sends_away(two: Two) -> None:
    def change(setting: str) -> None:
        two.rows("config", "set", setting, "-b", "a")

    change("draining=true")
    assert two.sends() == ["draining", "open"]
    change("draining=false")
    change("brokerPermission=4")
    assert two.sends() == ["forbidden", "open"]
    change("brokerPermission=6")
    assert two.sends() == ["open", "open"]


def test_a_drain_waits_for_groups_and_changes_nothing_without_apply(two: Two) -> None:
    two.rows("topic", "create", "drained", "-q", "1")
    with (
        SyncProducer(two.namesrv.address, group="p") as producer,
        SyncPullConsumer(two.namesrv.address, group="reads") as consumer,
    ):
        queue = next(each for each in consumer.queues("drained") if each.broker_name == "a")
        for _ in range(3):
            producer.send(Message(topic="drained", body=b"m"), queue=queue)
        consumer.commit(queue, 1)
        shown = two.run("cluster", "drain", "a")
        left = {"broker": "a", "kind": "not consumed", "group": "reads", "topic": "drained"}
        assert json.loads(shown.stdout) == [{**left, "messages": 2}]
        assert two.sends() == ["open", "open"]
        stuck = two.run(*DRAIN, "--timeout", "2")
        assert (stuck.returncode, json.loads(stuck.stdout)) == (1, [{**left, "messages": 2}])
        assert two.sends() == ["draining", "open"]
        assert perms(two, "drained") == {"a": 4, "b": 6}
        producer.send(Message(topic="drained", body=b"m"), queue=queue)  # is taken nevertheless
        assert two.run(*DRAIN, "--ignore", "reads").returncode == 0
        consumer.commit(queue, 4)
        drained = two.rows(*DRAIN)
    assert drained == [{"broker": "a", "sends": "draining", "remaining": 0}]
    two.rows("cluster", "drain", "a", "--undo", "--apply")
    assert two.sends() == ["open", "open"]
    assert perms(two, "drained") == {"a": 6, "b": 6}


def test_delayed_and_popped_messages_remain(two: Two) -> None:
    two.rows("topic", "create", "popped", "-q", "1")
    with (
        SyncProducer(two.namesrv.address, group="p") as producer,
        SyncPullConsumer(two.namesrv.address, group="unused") as reader,
        SyncShareConsumer(
            two.namesrv.address,
            group="pops",
            topics={"popped": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer,
    ):
        queue = next(each for each in reader.queues("popped") if each.broker_name == "a")
        due_ms = int(time.time() * 1000) + 7_200_000
        producer.send(Message(topic="popped", body=b"m"), queue=queue)
        producer.send(Message(topic="popped", body=b"m", deliver_ms=due_ms), queue=queue)
        (out,) = consumer.receive(1, wait_s=20)
        kinds = {row["kind"]: row["messages"] for row in two.rows("cluster", "drain", "a")}
        assert kinds == {"not consumed": 1, "delayed": 1}
        consumer.ack(out)
        stuck = two.run(*DRAIN, "--timeout", "2")
        assert [row["kind"] for row in json.loads(stuck.stdout)] == ["delayed"]
        assert "1 delayed remain" in stuck.stderr
        (delayed,) = two.rows("timers", "list", "-t", "popped")
        two.rows("timers", "recall", delayed["handle"])
    assert two.run(*DRAIN).returncode == 0


def test_an_open_transaction_remains(two: Two) -> None:
    two.rows("topic", "create", "halves", "-q", "1")
    found: list[dict[str, Any]] = []

    def execute(_: Message, sent: SendResult) -> TransactionState:
        found.extend(two.rows("cluster", "drain", sent.queue.broker_name))
        return TransactionState.ROLLBACK

    with SyncTransactionProducer(
        two.namesrv.address, group="tx", check=lambda _: TransactionState.UNKNOWN
    ) as producer:
        producer.send_in_transaction(Message(topic="halves", body=b"m"), execute, timeout_s=60)
    (left,) = found
    assert (left["kind"], left["messages"]) == ("open transactions", 1)


def test_a_drain_refuses_to_stop_the_producers_of_a_topic(two: Two) -> None:
    with SyncProducer(two.namesrv.address, group="p") as producer:
        found = {producer.send(Message(topic="lone", body=b"m")).queue.broker_name}
    (name,) = found
    refused = two.run("cluster", "drain", name, "--apply")
    assert (refused.returncode, "lone" in refused.stderr) == (1, True)
    assert two.sends() == ["open", "open"]
    two.rows("topic", "delete", "lone")


def test_a_broker_that_is_not_registered_is_an_error_of_one_line(two: Two) -> None:
    refused = two.run("cluster", "drain", "nowhere")
    assert (refused.returncode, "they have a, b" in refused.stderr) == (1, True)
    assert len(refused.stderr.splitlines()) == 1
