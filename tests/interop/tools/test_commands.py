"""Commands of `congreve` beside mqadmin's, with brokers of both kinds."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.console import Console
from harness.drivers import Driver, message

from tests.console.conftest import congreve

KINDS = ("congreve", "java")


@pytest.fixture
def mqadmin(java: Driver, cluster: Cluster) -> Console:
    return Console(java, cluster)


def rows(cluster: Cluster, *arguments: str) -> list[dict[str, Any]]:
    done = congreve(*arguments, "--output", "json", "-n", cluster.namesrv.address)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_settings_are_shown_and_changed_as_by_mqadmin(mqadmin: Console, cluster: Cluster) -> None:
    (before,) = rows(cluster, "config", "show", "fileReservedTime")
    pattern = r"fileReservedTime\s*=\s*(\d+)"
    assert re.findall(pattern, mqadmin("getBrokerConfig", broker=True)) == [before["value"]]
    (row,) = rows(cluster, "config", "set", "fileReservedTime=47")
    assert (row["before"], row["after"]) == (before["value"], "47")
    assert re.findall(pattern, mqadmin("getBrokerConfig", broker=True)) == ["47"]
    rows(cluster, "config", "set", f"fileReservedTime={before['value']}")


def test_permissions_and_groups_are_those_that_mqadmin_shows(
    mqadmin: Console, java: Driver, cluster: Cluster
) -> None:
    topic = f"locked-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(java, topic, queues=3)
    (row,) = rows(cluster, "topic", "permission", topic, "read-only")
    assert (row["before"], row["after"]) == (6, 4)
    assert re.findall(r'"perm":(\d)', mqadmin("topicRoute", "-t", topic)) == ["4"]
    (known,) = rows(cluster, "group", "create", f"group-{topic}", "--retries", "3")
    assert known["retries"] == 3
    assert f"group-{topic}" in {each["group"] for each in rows(cluster, "group", "list")}
    (broker,) = rows(cluster, "cluster")
    assert broker["version"].startswith("V4_9_4") and broker["disk_used"] >= 0


def test_messages_are_found_as_by_mqadmin(mqadmin: Console, java: Driver, cluster: Cluster) -> None:
    topic = f"found-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(java, topic, queues=2)
    sent = java.call(
        "send",
        messages=[message(topic, b"a body", keys=f"{topic}-key", tags="T1")],
        queueId=1,
        namesrv=cluster.namesrv.address,
    )["results"]
    (one,) = rows(cluster, "find", "-t", topic, "-k", f"{topic}-key")
    assert (one["body"], one["queue"], one["tags"]) == ("a body", 1, "T1")
    assert one["message_id"] == sent[0]["msgId"]
    assert one["message_id"] in mqadmin("queryMsgByKey", "-t", topic, "-k", f"{topic}-key")
    assert rows(cluster, "find", "-i", one["offset_id"]) == [one]
    assert rows(cluster, "find", "-t", topic, "-i", one["message_id"]) == [one]
    assert rows(cluster, "find", "-t", topic, "--from", "-15m") == [one]
