"""``congreve cluster`` and its verbs, on two brokers of one name server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from harness import servers
from harness.replication.supervisor import Supervisor
from harness.wire import Wire

from congreve.base.errors import CongreveError
from congreve.client import (
    Message,
    SendResult,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncShareConsumer,
    SyncTransactionProducer,
    TransactionState,
)
from congreve.client.settings import ConsumeFrom
from congreve.client.transport import instance
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


UPDATE_TOPIC, GET_RUNTIME, REGISTER_BROKER, UPDATE_GROUP, GET_ALL_GROUPS = 17, 28, 103, 200, 201
GROUPS = ("reads", "reads-skewed", "reads-rolled", "pops")
IGNORED = [each for group in GROUPS for each in ("--ignore", group)]
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
        stuck = two.run(*DRAIN, "--timeout", "1")
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
        left = {row["kind"]: row for row in two.rows("cluster", "drain", "a")}
        kinds = {kind: row["messages"] for kind, row in left.items()}
        assert kinds == {"not consumed": 1, "delayed": 1}
        assert left["delayed"]["group"] is None
        consumer.ack(out)
        stuck = two.run(*DRAIN, "--timeout", "1")
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


def test_a_topic_of_one_broker_is_spread_with_its_groups(two: Two) -> None:
    with SyncProducer(two.namesrv.address, group="p") as producer:
        name = producer.send(Message(topic="skewed", body=b"m")).queue.broker_name
    other = {"a": "b", "b": "a"}[name]
    address = two.brokers[name].address
    with Wire(address) as wire:
        settings = b'{"groupName":"reads-skewed","retryMaxTimes":3}'
        assert wire.call(UPDATE_GROUP, {}, settings).code == 0
    with SyncPullConsumer(two.namesrv.address, group="reads-skewed") as consumer:
        (queue, *_) = consumer.queues("skewed")
        consumer.commit(queue, 1)
    (row,) = [row for row in two.rows("cluster", "spread") if row["topic"] == "skewed"]
    count = row["queues"][name]
    assert row == {"topic": "skewed", "ordered": False, "queues": {name: count, other: 0}}
    plan = [
        {"topic": "skewed", "broker": each, "before": row["queues"][each], "after": count}
        for each in ("a", "b")
    ]
    assert two.rows("cluster", "spread", "skewed") == plan
    assert [each["broker"] for each in two.rows("topic", "route", "skewed")] == [name]
    assert two.rows("cluster", "spread", "skewed", "--apply") == plan
    route = two.rows("topic", "route", "skewed")
    assert [(each["broker"], each["write_queues"]) for each in route] == [
        ("a", count),
        ("b", count),
    ]
    with Wire(two.brokers[other].address) as wire:
        assert b'"reads-skewed"' in wire.call(GET_ALL_GROUPS, {}).body
    again = two.rows("cluster", "spread", "skewed", "--apply")
    assert {each["before"] for each in again} == {count}
    assert "skewed" not in {row["topic"] for row in two.rows("cluster", "spread")}


def test_an_ordered_topic_keeps_its_queues_unless_told(two: Two) -> None:
    with Wire(two.brokers["a"].address) as wire:
        fields = {
            "topic": "in-order",
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "attributes": "+message.type=FIFO",
        }
        assert wire.call(UPDATE_TOPIC, fields).code == 0
    refused = two.run("cluster", "spread", "in-order", "--apply")
    assert (refused.returncode, "in-order is ordered" in refused.stderr) == (1, True)
    every = two.run("cluster", "spread", "--all")
    assert json.loads(every.stdout) == []
    assert "left as it is: in-order is ordered" in every.stderr
    assert len(two.rows("cluster", "spread", "in-order", "--ordered", "--apply")) == 2
    route = two.rows("topic", "route", "in-order")
    assert [(each["broker"], each["write_queues"]) for each in route] == [("a", 2), ("b", 2)]


def test_a_drained_broker_gets_no_queues(two: Two) -> None:
    assert two.run(*DRAIN, "--force", "--ignore", "reads-skewed").returncode == 0
    with SyncProducer(two.namesrv.address, group="p") as producer:
        producer.send(Message(topic="only-b", body=b"m"))
    rows = two.rows("cluster", "spread", "only-b", "-q", "9", "--apply")
    assert [(row["broker"], row["after"]) for row in rows] == [("a", 0), ("b", 9)]


def test_a_broker_that_is_not_registered_is_an_error_of_one_line(two: Two) -> None:
    refused = two.run("cluster", "drain", "nowhere")
    assert (refused.returncode, "they have a, b" in refused.stderr) == (1, True)
    assert len(refused.stderr.splitlines()) == 1


class Sending:
    """A producer that sends in a thread, without a second try, and what became of it."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent: list[int] = []
        self.failures: list[str] = []

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        with SyncProducer(self._namesrv, group="rolled", retries=0) as producer:
            for number in count():
                if self._ended.wait(0.01):
                    return
                try:
                    producer.send(Message(topic=self._topic, body=str(number).encode()))
                    self.sent.append(number)
                except CongreveError as error:
                    self.failures.append(str(error))


def roll(supervisor: Supervisor, *options: str) -> tuple[str, ...]:
    return (
        *("cluster", "roll", "--restart", supervisor.command, "--apply"),
        *("--route-poll", "0.2", *options),
    )


def test_a_roll_restarts_each_broker_without_a_failed_send(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "REFRESH_S", 0.5)
    two.rows("topic", "create", "rolled", "-q", "2")
    read: list[int] = []
    with (
        Supervisor(two.brokers, tmp_path) as supervisor,
        SyncPushConsumer(
            two.namesrv.address,
            group="reads-rolled",
            topics={"rolled": "*"},
            listener=lambda message: read.append(int(message.body)),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
        Sending(two.namesrv.address, "rolled") as sending,
    ):
        preview = two.rows("cluster", "roll", "--restart", "false")
        assert {row["id"] for row in preview} == {0}
        assert [(row["broker"], row["does"]) for row in preview] == [
            ("a", "drain, restart, open"),
            ("b", "drain, restart, open"),
        ]
        begun_ms = int(time.time() * 1000)
        two.rows(*roll(supervisor, "--force", "--route-poll", "4"))  # busy clients poll late
        assert supervisor.stopped() == ["a", "b"]
        two.rows(*roll(supervisor, "--since", str(begun_ms)))
        assert supervisor.stopped() == ["a", "b"], "they have started since"
        assert two.sends() == ["open", "open"]
        sending.__exit__()
        assert sending.failures == []
        deadline = time.monotonic() + 120
        while set(sending.sent) - set(read):
            assert time.monotonic() < deadline, set(sending.sent) - set(read)
            time.sleep(0.05)


def test_a_roll_that_stops_leaves_a_state_that_is_seen_and_continues(
    two: Two, tmp_path: Path
) -> None:
    begun = str(int(time.time() * 1000))
    options = ("--apply", "--force", "--route-poll", "0.1", "--timeout", "2")
    broken = two.run("cluster", "roll", "--restart", "true", *options)
    assert (broken.returncode, "--since" in broken.stderr) == (1, True)
    assert "cluster drain a --undo --apply` opens it" in broken.stderr
    endless = two.run("cluster", "roll", "--restart", "exec sleep 60", *options)
    assert endless.returncode == 1
    assert "has not ended, which it must while the broker runs, after 2 s" in endless.stderr
    assert two.sends() == ["draining", "open"]
    with Supervisor(two.brokers, tmp_path) as supervisor:
        two.rows(*roll(supervisor, "--force", "--since", begun))
        assert supervisor.stopped() == ["a", "b"]
    assert two.sends() == ["open", "open"]


@pytest.mark.parametrize("step", ["waits for producers", "restarts", "registered"])
def test_a_roll_that_is_killed_at_a_step_and_repeated_has_the_same_end(
    two: Two, tmp_path: Path, step: str
) -> None:
    begun_ms = int(time.time() * 1000)
    with Supervisor(two.brokers, tmp_path) as supervisor:
        arguments = roll(supervisor, "a", "--force", "--since", str(begun_ms))
        process = subprocess.Popen(
            [sys.executable, "-m", "congreve", *arguments, "-n", two.namesrv.address],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert any(step in line for line in process.stderr)
        process.kill()
        process.communicate(timeout=60)
        two.rows(*arguments)
        assert set(supervisor.stopped()) == {"a"}
    assert two.sends() == ["open", "open"]
    with Wire(two.brokers["a"].address) as wire:
        figures = json.loads(wire.call(GET_RUNTIME, {}).body)["table"]
    assert int(figures["bootTimestamp"]) > begun_ms


def test_a_drained_broker_is_removed_once(two: Two, tmp_path: Path) -> None:
    refused = two.run("cluster", "remove", "b", "--apply")
    assert (refused.returncode, "drain b --apply` first" in refused.stderr) == (1, True)
    two.rows("cluster", "drain", "b", "--apply", "--force", "--route-poll", "0.1", *IGNORED)
    with Supervisor(two.brokers, tmp_path, starts=False) as supervisor:
        arguments = ("cluster", "remove", "b", "--stop", supervisor.command, *IGNORED)
        (planned,) = two.rows(*arguments)
        assert (planned["state"], two.sends()) == ("to remove", ["open", "draining"])
        (removed,) = two.rows(*arguments, "--apply")
        assert removed == {**planned, "state": "removed"}
        assert [row["broker"] for row in two.rows("cluster")] == ["a"]
        assert two.rows(*arguments, "--apply") == []
        assert supervisor.stopped() == ["b"]
    two.brokers["b"].start()
    assert two.sends() == ["open", "draining"], "as it was"
    two.rows("cluster", "drain", "b", "--undo", "--apply")


def test_a_registration_without_a_broker_is_removed_by_force(two: Two) -> None:
    fields = {
        "brokerName": "gone",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": servers.CLUSTER,
        "haServerAddr": "127.0.0.1:2",
        "brokerId": "0",
    }
    with Wire(two.namesrv.address) as wire:  # its name server forgets it with the connection
        assert wire.call(REGISTER_BROKER, fields).code == 0
        (row,) = [row for row in two.rows("cluster", "status") if row["broker"] == "gone"]
        assert row["state"] == "no answer"
        (left,) = two.rows("cluster", "remove", "gone", "--force", "--apply")
        assert left["state"] == "removed"
        assert [row["broker"] for row in two.rows("cluster")] == ["a", "b"]
