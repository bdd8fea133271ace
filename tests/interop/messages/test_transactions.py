"""Transactions of the official Java client: ends, checks, restarts, a change of the broker."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from harness import servers
from harness.drivers import Driver, Json, body, message
from harness.replication.replaceable_broker import ReplaceableBroker
from harness.wire import END_TRANSACTION, SEND_MESSAGE_V2, Wire, send_fields

OTHER = {"congreve": "java", "java": "congreve"}
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


@dataclass
class Transacting(ReplaceableBroker):
    """A topic, its broker, and producers of one group."""

    SETTINGS: ClassVar = {"transactionCheckInterval": "700", "transactionTimeOut": "500"}

    topic: str = field(default_factory=lambda: f"transactions-{uuid.uuid4().hex[:8]}")
    producers: list[str] = field(default_factory=list)

    def start_producer(self) -> str:
        """A TransactionMQProducer; all of them are of one group."""
        name = uuid.uuid4().hex
        self.call("transactionStart", id=name, group=f"group-{self.name}", topic=self.topic)
        self.producers.append(name)
        return name

    def stop_producer(self, name: str) -> None:
        self.producers.remove(name)
        self.call("transactionStop", id=name)

    def send(self, producer: str, local: str, *texts: str, **fields: object) -> list[Json]:
        """Send one transaction for each text; `local` is the outcome of its local part."""
        messages = [
            message(self.topic, text.encode(), properties={"local": local}, **fields)
            for text in texts
        ]
        results: list[Json] = self.call("transactionSend", id=producer, messages=messages)[
            "results"
        ]
        assert {one["status"] for one in results} == {"SEND_OK"}
        return results

    def answer(self, producer: str, answer: str) -> None:
        self.call("transactionAnswer", id=producer, answer=answer)

    def checks(self, producer: str) -> list[Json]:
        found: list[Json] = self.call("transactionChecks", id=producer)["checks"]
        return found

    def seen(self, topic: str | None = None) -> Counter[str]:
        """Bodies that a consumer of the topic gets."""
        drained = self.call("drain", topics=[topic or self.topic])["messages"]
        return Counter(body(one).decode() for one in drained)


def wait_until(true: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def transacting(namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[Transacting]:
    made = Transacting(namesrv, tmp_path / "transacting", java)
    yield made
    for producer in list(made.producers):
        made.stop_producer(producer)
    made.kill_if_running()


def test_a_transaction_is_committed_rolled_back_or_checked(
    transacting: Transacting, kind: str
) -> None:
    transacting.start(kind)
    transacting.create_topics(transacting.topic)
    producer = transacting.start_producer()
    transacting.send(producer, "commit", "c0", "c1", tags="TagA", keys="k", flag=9)
    transacting.send(producer, "rollback", "r0")
    (unknown,) = transacting.send(producer, "unknown", "u0", tags="TagA", keys="k", flag=9)
    wait_until(lambda: transacting.seen() == Counter(["c0", "c1"]), "commits are not visible")
    wait_until(lambda: len(transacting.checks(producer)) >= 2, "no checks came")
    check = transacting.checks(producer)[0]
    assert body(check) == b"u0"
    assert (check["topic"], check["queueId"]) == (transacting.topic, unknown["queueId"])
    assert check["transactionId"] == unknown["msgId"]
    assert {body(one) for one in transacting.checks(producer)} == {b"u0"}
    transacting.answer(producer, "commit")
    wait_until(lambda: transacting.seen()["u0"], "a checked commit is not visible")
    transacting.send(producer, "unknown", "u1")
    transacting.answer(producer, "rollback")
    count = len(transacting.checks(producer))
    wait_until(lambda: len(transacting.checks(producer)) > count, "no check of u1 came")
    time.sleep(1.5)
    assert len(transacting.checks(producer)) <= count + 2
    assert transacting.seen() == Counter(["c0", "c1", "u0"])
    for one in transacting.call("drain", topics=[transacting.topic])["messages"]:
        # A checked message has lost its flag in the reference (D21).
        assert (one["flag"], one["properties"]["TAGS"]) == (9, "TagA") or kind == "java"
        assert one["sysFlag"] & 12 == 8
    by_tag = transacting.call("drain", topics=[transacting.topic], expression="TagA")
    assert len(by_tag["messages"]) == 3
    found = transacting.call("query", topic=transacting.topic, keys=["k"], max=64)["found"]["k"]
    assert len({one["body"] for one in found}) == 3


def test_another_producer_of_the_group_is_checked_after_one_died(
    transacting: Transacting, kind: str
) -> None:
    transacting.start(kind)
    transacting.create_topics(transacting.topic)
    first = transacting.start_producer()
    transacting.send(first, "unknown", "orphan")
    transacting.stop_producer(first)
    second = transacting.start_producer()
    transacting.answer(second, "commit")
    wait_until(lambda: transacting.checks(second), "the successor was not asked")
    wait_until(lambda: transacting.seen() == Counter(["orphan"]), "the orphan was not committed")
    transacting.stop_producer(second)


def test_the_go_client_commits_rolls_back_and_answers_checks(
    transacting: Transacting, go: Driver, kind: str
) -> None:
    transacting.start(kind)
    transacting.create_topics(transacting.topic)
    done = go.call(
        "transact",
        **{"namesrv": transacting.namesrv.address, "topic": transacting.topic},
        **{"group": f"go-{transacting.name}", "answer": "commit", "expected": 2},
        **{"locals": ["commit", "rollback", "unknown", "unknown"], "timeoutMs": 60_000},
    )
    assert done["ok"] == 4
    assert set(done["checks"]) == {"2|unknown", "3|unknown"}
    expected = Counter(["0|commit", "2|unknown", "3|unknown"])
    wait_until(lambda: transacting.seen() == expected, "a commit is not visible")


def test_a_half_message_that_stays_unknown_is_discarded(
    transacting: Transacting, kind: str
) -> None:
    transacting.start(kind, transactionCheckMax="2")
    transacting.create_topics(transacting.topic)
    producer = transacting.start_producer()
    transacting.send(producer, "unknown", "never")
    wait_until(
        lambda: (
            GIVEN_UP in transacting.java.mqadmin("topicList", "-n", transacting.namesrv.address)
        ),
        "the topic of those given up was not made",
    )
    wait_until(lambda: transacting.seen(GIVEN_UP)["never"], "it is not there")
    wait_until(lambda: len(transacting.checks(producer)) >= 2, "too few checks came")
    assert len(transacting.checks(producer)) == 2
    assert transacting.seen() == Counter()


def half_by_wire(wire: Wire, topic: str, age_s: int = 0) -> dict[str, str]:
    """The header of END_TRANSACTION that commits a new half message."""
    properties = {"UNIQ_KEY": f"key-{age_s}", "TRAN_MSG": "true", "PGROUP": "by-wire"}
    born = str((int(time.time()) - age_s) * 1_000)
    fields = send_fields(topic, 1, properties) | {"f": "4", "g": born}
    answer = wire.call(SEND_MESSAGE_V2, fields, b"half")
    assert (answer.code, answer.fields["queueId"]) == (0, "1")
    return {
        "producerGroup": "by-wire",
        "tranStateTableOffset": answer.fields["queueOffset"],
        "commitLogOffset": str(int(answer.fields["msgId"][16:], 16)),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": properties["UNIQ_KEY"],
    }


def test_an_end_for_another_group_or_offset_is_refused(transacting: Transacting, kind: str) -> None:
    transacting.start(kind, transactionTimeOut="60000")
    transacting.create_topics(transacting.topic)
    assert transacting.broker is not None
    with Wire(transacting.broker.address) as wire:
        end = half_by_wire(wire, transacting.topic)
        beyond = str(int(end["commitLogOffset"]) + 1_000_000)
        for wrong, says in (
            ({"producerGroup": "another"}, "producer group wrong"),
            ({"tranStateTableOffset": "7"}, "transaction state table offset wrong"),
            ({"commitLogOffset": beyond}, "Find prepared transaction message failed"),
        ):
            for how in ("8", "12"):
                refused = wire.call(END_TRANSACTION, end | wrong | {"commitOrRollback": how})
                assert (refused.code, says in (refused.remark or "")) == (1, True), refused
        assert transacting.seen() == Counter()
        assert wire.call(END_TRANSACTION, end).code == 0
        wait_until(lambda: transacting.seen() == Counter(["half"]), "the commit is not visible")
        if kind == "congreve":
            again = wire.call(END_TRANSACTION, end)
            assert (again.code, "ended before" in (again.remark or "")) == (1, True)
            assert transacting.seen() == Counter(["half"])


def test_a_half_message_sets_the_time_before_its_first_check(
    transacting: Transacting, kind: str
) -> None:
    transacting.start(kind)
    transacting.create_topics(transacting.topic)
    producer = transacting.start_producer()
    begin = time.monotonic()
    immune = {"local": "unknown", "CHECK_IMMUNITY_TIME_IN_SECONDS": "4"}
    messages = [
        message(transacting.topic, b"immune", properties=immune),
        message(transacting.topic, b"plain", properties={"local": "unknown"}),
    ]
    transacting.call("transactionSend", id=producer, messages=messages)
    wait_until(lambda: transacting.checks(producer), "no checks came")
    asked: list[str] = []
    while "immune" not in asked:
        assert time.monotonic() - begin < 60, asked
        asked = [body(one).decode() for one in transacting.checks(producer)]
        time.sleep(0.05)
    assert time.monotonic() - begin >= 4
    assert asked[0] == "plain"


def test_a_half_message_older_than_the_retention_is_discarded_without_a_check(
    transacting: Transacting, kind: str
) -> None:
    transacting.start(kind)
    transacting.create_topics(transacting.topic)
    assert transacting.broker is not None
    with Wire(transacting.broker.address) as wire:
        half_by_wire(wire, transacting.topic, age_s=72 * 3_600 - 600)
        half_by_wire(wire, transacting.topic, age_s=72 * 3_600 + 600)

        def kept() -> list[str]:
            # No route to it before the broker makes it, and it registers at once.
            topics = transacting.java.mqadmin("topicList", "-n", transacting.namesrv.address)
            if GIVEN_UP not in topics:
                return []
            drained = transacting.call("drain", topics=[GIVEN_UP])["messages"]
            return [one["properties"]["UNIQ_KEY"] for one in drained]

        wait_until(kept, "it is not there")
        time.sleep(1)
        assert kept() == [f"key-{72 * 3_600 + 600}"]


@pytest.mark.parametrize(
    ("direction", "how"), [("same", "kill"), ("from-server", "stop"), ("to-server", "kill")]
)
def test_the_next_broker_continues_open_transactions(
    transacting: Transacting, kind: str, direction: str, how: str
) -> None:
    """The same broker restarts, or the other one opens the store for a while."""
    other = kind if direction == "same" else OTHER[kind]
    writer, reader = (other, kind) if direction == "to-server" else (kind, other)
    transacting.start(writer)
    transacting.create_topics(transacting.topic)
    producer = transacting.start_producer()
    committed = [f"committed-{i}" for i in range(20)]
    open_ones = [f"open-{i}" for i in range(10)]
    for i in range(10):
        transacting.send(producer, "commit", committed[2 * i])
        transacting.send(producer, "unknown", open_ones[i])
        transacting.send(producer, "rollback", f"rolled-back-{i}")
        transacting.send(producer, "commit", committed[2 * i + 1])
    wait_until(lambda: transacting.seen() == Counter(committed), "commits are not visible")
    wait_until(lambda: len(transacting.checks(producer)) >= 10, "no checks came")
    transacting.end(how)
    transacting.start(reader)
    assert transacting.seen() == Counter(committed)
    late = transacting.send(producer, "unknown", "late")
    transacting.answer(producer, "commit")
    expected = Counter([*committed, *open_ones, "late"])
    wait_until(lambda: len(transacting.seen()) == len(expected), "open ones were not committed")
    assert late[0]["local"] == "UNKNOW"
    transacting.end(how)
    count = len(transacting.checks(producer))
    transacting.start(writer)
    time.sleep(1.5)
    seen = transacting.seen()
    assert set(seen) == set(expected)
    if kind == "congreve" and direction == "same":
        assert seen == expected
        assert len(transacting.checks(producer)) == count
