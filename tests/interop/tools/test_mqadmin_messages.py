"""mqadmin 4.9.4's commands that read, send and trace messages, and that watch consumers."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.console import Console, eventually
from harness.drivers import Driver, Json, message

GOLDEN = Path(__file__).parents[2] / "golden"
TRACES = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def mqadmin(java: Driver, cluster: Cluster) -> Console:
    return Console(java, cluster)


@pytest.fixture
def filled(java: Driver, cluster: Cluster, topic: str) -> str:
    """Three messages of tag A and two of tag B in queue 2."""
    texts = [message(topic, f"{i}|".encode(), tags="AAABB"[i]) for i in range(5)]
    java.call("send", namesrv=cluster.namesrv.address, messages=texts, queueId=2)
    return topic


def bodies(out: str) -> list[str]:
    return re.findall(r"BODY: (\d+)\|", out)


def test_messages_are_printed_and_counted_by_queue(mqadmin: Console, filled: str) -> None:
    queue = ("-t", filled, "-a", "broker-a", "-i", "2")
    out = mqadmin("printMsgByQueue", *queue, "-p", "true", "-d", "true", "-f", "true")
    assert bodies(out) == ["0", "1", "2", "3", "4"]
    assert re.search(r"Tag: A +Count: 3", out), out
    assert re.search(r"Tag: B +Count: 2", out), out
    out = mqadmin("printMsgByQueue", *queue, "-p", "true", "-d", "true", "-s", "B")
    assert bodies(out) == ["3", "4"]


def test_messages_are_consumed_from_an_offset(mqadmin: Console, filled: str) -> None:
    place = ("-t", filled, "-b", "broker-a", "-i", "2", "-o", "3")
    out = mqadmin("consumeMessage", *place, "-g", f"group-{uuid.uuid4().hex[:8]}")
    assert "Consume ok" in out
    assert bodies(out) == ["3", "4"]


def test_a_consumer_s_trace_is_found_by_the_message_s_id(
    mqadmin: Console, java: Driver, cluster: Cluster, topic: str
) -> None:
    where = {"namesrv": cluster.namesrv.address}
    group: Json = {"id": topic, "group": f"group-{topic}"}
    mqadmin("updateTopic", "-t", TRACES, "-r", "1", "-w", "1", broker=True)
    java.call("consumerStart", topic=topic, instances=1, trace=True, **group, **where)
    (sent,) = java.call("send", messages=[message(topic, b"0|")], **where)["results"]
    java.call("consumerWait", id=topic, expected=1, timeoutMs=60_000, quietMs=200)
    eventually(
        lambda: mqadmin("queryMsgTraceById", "-i", sent["msgId"]),
        rf"Sub +{group['group']} .* success",
    )
    java.call("consumerStop", id=topic)


def test_mqadmin_times_sends_and_allocates_queues(mqadmin: Console, topic: str) -> None:
    out = mqadmin("checkMsgSendRT", "-t", topic, "-a", "8", "-s", "16")
    rows = re.findall(r"^broker-a +(\d) +true +\d+", out, re.MULTILINE)
    assert sorted(rows) == sorted("01230123")
    mqadmin("updateTopic", "-t", "broker-a", "-r", "1", "-w", "1", broker=True)
    out = mqadmin.driver.mqadmin(
        *("sendMsgStatus", "-n", mqadmin.cluster.namesrv.address, "-b", "broker-a", "-c", "3")
    )
    assert out.count("SEND_OK") == 3
    out = mqadmin("allocateMQ", "-t", topic, "-i", "one,two")
    assert out.count('"queueId":') == 4


def test_mqadmin_exports_metadata_settings_and_figures(mqadmin: Console, filled: str) -> None:
    for command, what in (
        ("exportMetadata", "metadata.json"),
        ("exportConfigs", "configs.json"),
        ("exportMetrics", "metrics.json"),
    ):
        out = mqadmin(command, "-c", "InteropCluster", "-f", "exports")
        assert f"export exports/{what} success" in out.replace("//", "/"), out


def test_the_answers_of_the_reference_have_every_command(java: Driver) -> None:
    commands = re.findall(r"(?m)^ {3}(\w+) ", java.mqadmin())
    assert len(commands) > 50
    compared = {
        answer[0].split()[0]
        for path in GOLDEN.glob("mqadmin*_answers.json")
        for answer in json.loads(path.read_text())
    }
    assert set(commands) <= compared
