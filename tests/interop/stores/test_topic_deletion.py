"""One store in turn: either broker deletes a topic and makes it again, twice over."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import servers
from harness.drivers import Driver, Json, body, message

from congreve.lake.table import open_catalog
from congreve.store_reader import open_store

from .test_store_exchange import OTHER, Exchange

GONE, KEPT, ONCE = "Deleted", "Kept", "Once"
QUEUES = 2
ROUNDS = 2
DAMAGE = ("damage", "torn", "repair")
"""Words of the broker's log lines about a store that is not as it was left."""


@pytest.fixture
def exchange(namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[Exchange]:
    exchange = Exchange(namesrv, tmp_path / "exchange", java)
    yield exchange
    exchange.kill_if_running()


def delete(exchange: Exchange, topic: str) -> tuple[str, ...]:
    """The arguments of mqadmin."""
    namesrv = ("-n", exchange.namesrv.address)
    return ("deleteTopic", *namesrv, "-c", servers.CLUSTER, "-t", topic)


class Sent:
    """What was sent to both topics since they were made."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.messages: dict[str, list[Json]] = {GONE: [], KEPT: []}
        self._number = 0

    def more(self, count: int) -> None:
        """Send messages to both topics."""
        for topic, sent in self.messages.items():
            new = [
                message(topic, f"{topic} {self._number + i}|".encode() + bytes(400))
                for i in range(count)
            ]
            self._number += count
            results = self._exchange.call("send", messages=new)["results"]
            assert {one["status"] for one in results} == {"SEND_OK"}
            sent += [{**one, **result} for one, result in zip(new, results, strict=True)]

    def make_again(self) -> None:
        """Let the broker that runs delete a topic, and make it again."""
        exchange = self._exchange
        exchange.java.mqadmin(*delete(exchange, GONE))
        folder = exchange.folder / "store/consumequeue" / GONE
        deadline = time.monotonic() + 60
        while any(folder.rglob("0*")):
            assert time.monotonic() < deadline, f"{folder} still has queues"
            time.sleep(0.1)
        self.messages[GONE] = []
        exchange.create_topics(GONE, queues=QUEUES)

    def check(self) -> None:
        """The broker that runs serves exactly these, at these offsets."""
        for topic, sent in self.messages.items():
            pulled = self._exchange.drain([topic])
            places = {(one["queueId"], one["queueOffset"]): one["body"] for one in pulled.values()}
            assert len(places) == len(pulled)
            wanted = {(one["queueId"], one["queueOffset"]): one["body"] for one in sent}
            assert places == wanted
            for one in self._exchange.call("offsets", topic=topic)["queues"]:
                mine = [each for each in sent if each["queueId"] == one["queueId"]]
                assert (one["min"], one["max"]) == (0, len(mine))


def check_log(exchange: Exchange) -> None:
    """Our broker has said nothing of damage."""
    assert exchange.broker is not None
    lines = exchange.broker.log.read_text().splitlines()
    assert not [line for line in lines if any(word in line.lower() for word in DAMAGE)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_topic_is_deleted_and_made_again_by_both(exchange: Exchange, kind: str, how: str) -> None:
    other = OTHER[kind] if kind == "congreve" else "java"
    sent = Sent(exchange)
    exchange.start(kind)
    exchange.create_topics(GONE, KEPT, ONCE, queues=QUEUES)
    sent.more(90)
    exchange.call("send", messages=[message(ONCE, b"%d" % number) for number in range(30)])
    for number in range(2 * ROUNDS):
        exchange.end(how)
        exchange.start((other, kind)[number % 2])
        sent.check()
        if number == 0:
            exchange.java.mqadmin(*delete(exchange, ONCE))
        elif how == "stop":  # after a kill both brokers read the log again
            assert not any((exchange.folder / "store/consumequeue" / ONCE).rglob("0*"))
        sent.make_again()
        sent.check()
        sent.more((40, 150, 70, 20)[number])
        sent.check()
        if number % 2 and kind == "congreve":
            check_log(exchange)
    exchange.end("stop")
    with open_store(exchange.folder / "store") as reader:
        report = reader.verify()
    assert kind == "java" or not report.problems, report.problems


@pytest.mark.parametrize("since", ["nothing", "messages", "made-again"])
def test_a_topic_that_java_deleted_does_not_come_back_after_our_kill(
    exchange: Exchange, kind: str, since: str
) -> None:
    if kind != "congreve":
        pytest.skip("RocketMQ alone brings it back")
    sent = Sent(exchange)
    exchange.start("congreve")
    exchange.create_topics(GONE, KEPT, queues=QUEUES)
    sent.more(90)
    exchange.end("stop")
    exchange.start("java")
    if since == "messages":
        sent.more(40)
    exchange.java.mqadmin(*delete(exchange, GONE))
    if since == "made-again":
        exchange.create_topics(GONE, queues=QUEUES)
    exchange.end("stop")
    for _ in range(2):
        exchange.start("congreve")
        exchange.end("kill")
    exchange.start("congreve")
    queues = exchange.folder / "store/consumequeue" / GONE
    assert not any(queues.rglob("0*"))
    sent.messages[GONE] = []
    if since == "made-again":
        sent.check()
    else:
        del sent.messages[GONE]
        sent.check()
        exchange.create_topics(GONE, queues=QUEUES)
        sent.messages[GONE] = []
    sent.more(20)
    sent.check()


def test_a_table_keeps_the_topic_that_java_deleted(
    exchange: Exchange, kind: str, tmp_path: Path
) -> None:
    if kind != "congreve":
        pytest.skip("tables are ours")
    warehouse = tmp_path / "warehouse"
    sent = Sent(exchange)
    exchange.start("congreve")
    exchange.create_topics(GONE, KEPT, queues=QUEUES)
    sent.more(90)
    for number in range(ROUNDS):
        exchange.end("stop")
        assert export(exchange, warehouse, KEPT) == 0
        assert export(exchange, warehouse, GONE) == (0 if number == 0 else 1)
        rows = {topic: rows_of(warehouse, topic) for topic in (GONE, KEPT)}
        assert rows[KEPT] == sorted(body(one) for one in sent.messages[KEPT])
        if number == 0:
            former = rows[GONE]
            assert former == sorted(body(one) for one in sent.messages[GONE])
        assert rows[GONE] == former, "a message of the new topic is in the former one's table"
        exchange.start("java")
        sent.make_again()
        sent.more((40, 150)[number])
        exchange.end("stop")
        exchange.start("congreve")
        sent.check()
        check_log(exchange)
        sent.more(20)
        sent.check()


def export(exchange: Exchange, warehouse: Path, topic: str) -> int:
    """The exit code of `congreve lake export`."""
    store = ("--store", str(exchange.folder / "store"), "--warehouse", str(warehouse))
    command = [sys.executable, "-m", "congreve", "lake", "export", *store, "-t", topic]
    return subprocess.run(command, check=False, cwd=exchange.folder).returncode


def rows_of(warehouse: Path, topic: str) -> list[bytes]:
    """The bodies in a topic's table."""
    rows = open_catalog(str(warehouse)).load_table(f"rocketmq.{topic}").scan().to_arrow()
    return sorted(rows["body"].to_pylist())
