"""Exchanges of a store: the Java broker opens Congreve's, Congreve the Java broker's, and back."""

from __future__ import annotations

import random
import re
import shutil
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner
from harness import servers
from harness.drivers import Driver, Json, body, message
from harness.replication.replaceable_broker import ReplaceableBroker

import congreve
from congreve.console.store import store as store_command
from congreve.io_backends.probe import uring_refusal
from congreve.remoting.messages import fastjson

TOPICS = 8
MESSAGES = 700
SEGMENT_BYTES = 1 << 19
COMPRESSED = 1
OTHER = {"congreve": "java", "java": "congreve"}


class Exchange(ReplaceableBroker):
    """A store whose files are so small that each kind has several."""

    SETTINGS: ClassVar = {
        "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
        "mappedFileSizeConsumeQueue": str(20 * 40),
        # Small enough that the store needs a second index file too.
        "maxHashSlotNum": "1000",
        "maxIndexNum": "1500",
    }

    def drain(self, topics: list[str]) -> dict[str, Json]:
        """Every message by its offset message id, as pulls serve it."""
        messages = self.call("drain", topics=topics)["messages"]
        return {one["offsetMsgId"]: one for one in messages}

    def query(self, topic: str, keys: list[str]) -> dict[str, list[str]]:
        """For each key the distinct bodies found through the index.

        Distinct, because the reference indexes messages again when it recovers from a kill, so that
        queries find them twice.
        """
        found = self.call("query", topic=topic, keys=keys, max=64)["found"]
        return {key: sorted({one["body"] for one in found[key]}) for key in keys}

    def await_index(self, topic: str, key: str) -> None:
        """The index lags behind the log: wait for the newest key."""
        deadline = time.monotonic() + 60
        while not self.query(topic, [key])[key]:
            assert time.monotonic() < deadline, f"{key} is not in the index"
            time.sleep(0.1)


@pytest.fixture
def exchange(namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[Exchange]:
    exchange = Exchange(namesrv, tmp_path / "exchange", java)
    yield exchange
    exchange.kill_if_running()


def stored_part(one: Json) -> Json:
    """Without the fields that only the answer to a pull has."""
    properties = {
        name: value
        for name, value in one["properties"].items()
        if name not in ("MIN_OFFSET", "MAX_OFFSET")
    }
    return {**one, "properties": properties}


def new_messages(topics: list[str], count: int, seed: int) -> list[Json]:
    """Messages of many sizes with keys, tags, flags and properties."""
    chance = random.Random(seed)
    return [
        message(
            chance.choice(topics),
            f"{seed}-{i}|".encode() + chance.randbytes(chance.choice([0, 10, 400, 3000, 6000])),
            tags=chance.choice(["TagA", "TagB", "Größe"]),
            keys=f"key-{seed}-{i} shared-{i % 7}",
            flag=i,
            properties={"number": str(i), "städtchen": "Ü" * (i % 5 + 1)},
        )
        for i in range(count)
    ]


def fill(exchange: Exchange, topics: list[str], count: int, seed: int) -> list[Json]:
    """Send messages; returns each with its answer."""
    messages = new_messages(topics, count, seed)
    results = exchange.call("send", messages=messages)["results"]
    assert {one["status"] for one in results} == {"SEND_OK"}
    return [{**sent, **result} for sent, result in zip(messages, results, strict=True)]


def assert_serves(exchange: Exchange, topics: list[str], sent: list[Json]) -> dict[str, Json]:
    """Check every message by pull, by id and by key; returns the pulled messages."""
    pulled = exchange.drain(topics)
    assert len(pulled) == len(sent)
    for one in sent:
        got = pulled[one["offsetMsgId"]]
        assert (got["topic"], got["queueId"]) == (one["topic"], one["queueId"])
        assert got["queueOffset"] == one["queueOffset"]
        assert got["body"] == one["body"]
        # The client compresses bodies over 4 KiB; the CRC is that of the stored bytes.
        if not got["sysFlag"] & COMPRESSED:
            assert got["bodyCrc"] == zlib.crc32(body(one)) & 0x7FFFFFFF
        assert got["flag"] == one["flag"]
        assert got["msgId"] == one["msgId"]
        wanted = {"TAGS": one["tags"], "KEYS": one["keys"], **one["properties"]}
        assert got["properties"].items() >= wanted.items()
    ids = [one["offsetMsgId"] for one in sent]
    for viewed in exchange.call("view", ids=ids)["messages"]:
        assert stored_part(viewed) == stored_part(pulled[viewed["offsetMsgId"]])
    for topic in topics:
        mine = [one for one in sent if one["topic"] == topic]
        exchange.await_index(topic, mine[-1]["keys"].split()[0])
        found = exchange.query(topic, [one["keys"].split()[0] for one in mine])
        assert found == {one["keys"].split()[0]: [one["body"]] for one in mine}
        shared = [one["body"] for one in mine if one["keys"].endswith("shared-3")]
        assert exchange.query(topic, ["shared-3"])["shared-3"] == sorted(shared)
        tagged = exchange.call("drain", topics=[topic], expression="Größe")["messages"]
        assert {one["offsetMsgId"] for one in tagged} == {
            one["offsetMsgId"] for one in mine if one["tags"] == "Größe"
        }
    return pulled


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("direction", ["from-server", "to-server"])
def test_the_other_broker_serves_every_message_and_the_first_one_reopens_the_store(
    exchange: Exchange, kind: str, direction: str, how: str
) -> None:
    # On the reference alone (which proves the test) both sides are Java.
    other = OTHER[kind] if kind == "congreve" else "java"
    writer, reader = (kind, other) if direction == "from-server" else (other, kind)
    topics = [f"exchange-{i}" for i in range(TOPICS)]

    exchange.start(writer)
    exchange.create_topics(*topics, queues=3)
    sent = fill(exchange, topics, MESSAGES, seed=1)
    before = assert_serves(exchange, topics, sent)
    exchange.end(how)
    segments = [p for p in (exchange.folder / "store" / "commitlog").iterdir() if p.is_file()]
    assert len(segments) >= 3
    left = leave_removed_queues(exchange, topics[0]) if writer == "congreve" else None

    exchange.start(reader)
    assert assert_serves(exchange, topics, sent) == before
    assert left is None or left.is_dir(), "the reference does not look there"
    offsets = {
        (one["queueId"], topic): (one["min"], one["max"])
        for topic in topics
        for one in exchange.call("offsets", topic=topic)["queues"]
    }
    for (queue_id, topic), (least, largest) in offsets.items():
        mine = [s for s in sent if s["topic"] == topic and s["queueId"] == queue_id]
        assert (least, largest) == (0, len(mine))
    sent += fill(exchange, topics, MESSAGES // 5, seed=2)
    after = assert_serves(exchange, topics, sent)
    exchange.end("stop")

    exchange.start(writer)
    assert assert_serves(exchange, topics, sent) == after
    deadline = time.monotonic() + 60
    while left is not None and left.exists():
        assert time.monotonic() < deadline, f"{left} is not unlinked"
        time.sleep(0.1)


def leave_removed_queues(exchange: Exchange, topic: str) -> Path:
    """Queues of a deleted topic as a kill leaves them that comes before they are unlinked."""
    store = exchange.folder / "store"
    return Path(shutil.copytree(store / "consumequeue" / topic, store / "congreve/removed/1"))


def test_every_broker_and_backend_reads_a_store_written_with_io_uring(
    exchange: Exchange, kind: str, tmp_path: Path
) -> None:
    if kind != "congreve":
        pytest.skip("io_uring is ours")
    if (refusal := uring_refusal(str(tmp_path))) is not None:
        pytest.skip(refusal)
    topics = [f"rings-{i}" for i in range(4)]
    # A kill loses bytes that io_uring has not written; SYNC_FLUSH has written what it acknowledged.
    exchange.start("congreve", ioBackend="uring", flushDiskType="SYNC_FLUSH")
    exchange.create_topics(*topics, queues=3)
    sent = fill(exchange, topics, MESSAGES // 2, seed=3)
    before = assert_serves(exchange, topics, sent)
    exchange.end("kill")
    segments = [p for p in (exchange.folder / "store" / "commitlog").iterdir() if p.is_file()]
    assert len(segments) >= 2

    exchange.start("java")
    assert assert_serves(exchange, topics, sent) == before
    sent += fill(exchange, topics, MESSAGES // 10, seed=4)
    exchange.end("stop")

    exchange.start("congreve", ioBackend="mmap")
    sent += fill(exchange, topics, MESSAGES // 10, seed=5)
    after = assert_serves(exchange, topics, sent)
    exchange.end("kill")

    exchange.start("congreve", ioBackend="uring")
    assert assert_serves(exchange, topics, sent) == after
    exchange.end("stop")


@pytest.mark.parametrize("direction", ["from-server", "to-server"])
def test_the_other_broker_reads_groups_and_offsets_from_the_store(
    exchange: Exchange, kind: str, direction: str
) -> None:
    other = OTHER[kind] if kind == "congreve" else "java"
    writer, reader = (kind, other) if direction == "from-server" else (other, kind)
    exchange.start(writer, enablePropertyFilter="true")
    exchange.create_topics("groups-0", queues=3)
    namesrv = ("-n", exchange.namesrv.address)
    assert exchange.broker is not None
    broker = ("-b", exchange.broker.address)
    exchange.java.mqadmin("updateSubGroup", *namesrv, *broker, "-g", "made", "-r", "9")
    consumer: Json = {"id": exchange.name, "group": "readers", "topic": "groups-0", "instances": 1}
    consumer["sql"] = "UNIQ_KEY IS NOT NULL"
    wait: Json = {"id": exchange.name, "timeoutMs": 60_000, "quietMs": 500}
    load: Json = {"topic": "groups-0", "mode": "sync", "size": 20}
    exchange.call("load", count=60, **load)
    exchange.call("consumerStart", **consumer)
    assert exchange.call("consumerWait", expected=60, **wait)["total"] == 60
    exchange.call("consumerStop", id=exchange.name)
    exchange.end("stop")
    written = stored_filter(exchange)

    exchange.start(reader, enablePropertyFilter="true")
    shown = exchange.java.mqadmin("getConsumerConfig", *namesrv, "-g", "made")
    assert "retryMaxTimes" in shown
    assert " 9" in next(line for line in shown.splitlines() if "retryMaxTimes" in line)
    exchange.call("load", count=30, **load)
    exchange.call("consumerStart", **consumer)
    seen = exchange.call("consumerWait", expected=30, **wait)
    exchange.call("consumerStop", id=exchange.name)
    assert (seen["distinct"], seen["total"]) == (30, 30), seen
    exchange.end("stop")
    kept = stored_filter(exchange)
    # The same since its birth, although the group came back with a newer version of it.
    assert kept.pop("clientVersion") > written.pop("clientVersion")
    assert kept.pop("deadTime") > written.pop("deadTime")
    assert kept == written


def stored_filter(exchange: Exchange) -> Json:
    """The readers' entry of consumerFilter.json."""
    text = (exchange.folder / "store" / "config" / "consumerFilter.json").read_text()
    topics: Json = fastjson.loads(text)["filterDataByTopic"]
    entry: Json = topics["groups-0"]["groupFilterData"]["readers"]
    return entry


def test_a_rocketmq_broker_opens_a_small_store_with_the_lines_of_store_info(
    namesrv: servers.Server, java: Driver, tmp_path: Path
) -> None:
    with congreve.serve(tmp_path, brokerName="small") as node, node.producer("p") as producer:
        for number in range(100):
            producer.send(congreve.Message(topic="small", body=b"%d" % number))
    root = tmp_path / "store"
    printed = CliRunner().invoke(store_command, ["info", str(root)]).stdout.splitlines()
    lines = dict(line.split("=", 1) for line in printed if re.fullmatch(r"\w+=\d+", line))
    assert lines.keys() == {"mappedFileSizeCommitLog", "maxHashSlotNum", "maxIndexNum"}
    with pytest.raises(RuntimeError, match="33554432 length not matched"):
        java_broker(namesrv, tmp_path, root, {}).start()
    broker = java_broker(namesrv, tmp_path, root, lines)
    broker.start()
    try:
        found = java.call("drain", topics=["small"], namesrv=namesrv.address)["messages"]
        assert len(found) == 100
    finally:
        broker.kill()


def java_broker(
    namesrv: servers.Server, folder: Path, store: Path, sizes: dict[str, str]
) -> servers.BrokerServer:
    settings = {"mappedFileSizeCommitLog": str(1 << 30), **sizes}
    return servers.broker(
        *("java", folder / "java", namesrv.address),
        broker_name="small",
        store=store,
        settings=settings,
    )
