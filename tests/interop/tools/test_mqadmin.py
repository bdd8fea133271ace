"""The operators' tool: mqadmin 4.9.4 with the broker; the tests parse its output."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest
from harness.cluster import Cluster
from harness.console import Console, eventually
from harness.drivers import Driver, Json, message
from harness.servers import CLUSTER


@pytest.fixture
def mqadmin(java: Driver, cluster: Cluster) -> Console:
    return Console(java, cluster)


@pytest.fixture(scope="module")
def filled(java: Driver, cluster: Cluster) -> Json:
    """A topic with three messages in queue 1 and a group that has consumed them."""
    topic = f"admin-{uuid.uuid4().hex[:8]}"
    group = f"group-{topic}"
    cluster.create_topic(java, topic, queues=4)
    where = {"namesrv": cluster.namesrv.address}
    java.call("consumerStart", id=topic, group=group, topic=topic, instances=1, **where)
    messages = [
        message(topic, f"{i}|x".encode(), keys=f"{topic}-k{i} {topic}-all", tags="T1")
        for i in range(3)
    ]
    sent = java.call("send", messages=messages, queueId=1, **where)["results"]
    java.call("consumerWait", id=topic, expected=3, timeoutMs=60_000, quietMs=200)
    java.call("consumerStop", id=topic)
    return {"topic": topic, "group": group, "sent": sent}


@pytest.fixture
def consumer(java: Driver, cluster: Cluster, topic: str) -> Iterator[str]:
    """A group with one connected consumer."""
    group = f"group-{topic}"
    java.call(
        "consumerStart",
        **{"id": group, "group": group, "topic": topic, "instances": 1},
        namesrv=cluster.namesrv.address,
    )
    yield group
    java.call("consumerStop", id=group)


def queue_data(route: str, name: str) -> int:
    (value,) = re.findall(rf'"{name}":(\d+)', route)
    return int(value)


def test_update_topic_creates_and_changes(mqadmin: Console) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    out = mqadmin("updateTopic", "-t", name, broker=True)
    assert "readQueueNums=8, writeQueueNums=8, perm=RW-" in out
    out = mqadmin("updateTopic", "-c", CLUSTER, "-t", name, "-r", "3", "-w", "2", "-p", "4")
    assert "readQueueNums=3, writeQueueNums=2, perm=R--" in out
    route = mqadmin("topicRoute", "-t", name)
    assert (queue_data(route, "readQueueNums"), queue_data(route, "writeQueueNums")) == (3, 2)
    assert queue_data(route, "perm") == 4
    out = mqadmin("updateTopicPerm", "-t", name, "-p", "6", broker=True)
    assert "update topic perm from 4 to 6" in out
    assert queue_data(mqadmin("topicRoute", "-t", name), "perm") == 6


def test_update_topic_refuses_a_bad_name(mqadmin: Console) -> None:
    out = mqadmin("updateTopic", "-t", "bad topic", broker=True)
    assert re.search(r"CODE: 1  DESC: The specified topic.* characters", out), out


def test_delete_topic_removes_it_from_broker_and_name_server(mqadmin: Console, topic: str) -> None:
    assert topic in mqadmin("topicList").split()
    out = mqadmin("deleteTopic", "-c", CLUSTER, "-t", topic)
    assert f"delete topic [{topic}] from cluster [{CLUSTER}] success" in out
    assert f"delete topic [{topic}] from NameServer success" in out
    assert topic not in mqadmin("topicList").split()
    out = mqadmin("topicRoute", "-t", topic)
    assert f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}" in out


def test_topic_list_names_system_topics_and_groups(mqadmin: Console, filled: Json) -> None:
    listed = mqadmin("topicList").split()
    assert {filled["topic"], f"%RETRY%{filled['group']}", "TBW102", "SELF_TEST_TOPIC"} <= (
        set(listed)
    )
    assert {"OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", CLUSTER} <= set(listed)
    rows = mqadmin.rows("topicList", "-c")
    assert [CLUSTER, filled["topic"], filled["group"]] in rows
    assert mqadmin("topicClusterList", "-t", filled["topic"]).split() == [CLUSTER]


def test_the_route_and_the_status_of_a_topic_are_shown(
    mqadmin: Console, cluster: Cluster, filled: Json
) -> None:
    route = mqadmin("topicRoute", "-t", filled["topic"])
    assert f'"brokerAddrs":{{0:"{cluster.broker.address}"' in route
    assert f'"cluster":"{CLUSTER}"' in route
    assert queue_data(route, "readQueueNums") == 4
    rows = mqadmin.rows("topicStatus", "-t", filled["topic"])
    assert [row[:4] for row in rows] == [
        ["broker-a", "0", "0", "0"],
        ["broker-a", "1", "0", "3"],
        ["broker-a", "2", "0", "0"],
        ["broker-a", "3", "0", "0"],
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", " ".join(rows[1][4:]))


def test_a_subscription_group_is_created_shown_and_deleted(mqadmin: Console) -> None:
    group = f"made-{uuid.uuid4().hex[:8]}"
    out = mqadmin("updateSubGroup", "-g", group, "-q", "2", "-r", "7", broker=True)
    assert "create subscription group to" in out
    shown = mqadmin("getConsumerConfig", "-g", group)
    for name, value in (("retryQueueNums", 2), ("retryMaxTimes", 7), ("consumeEnable", "true")):
        assert re.search(rf"{name} *= +{value}\b", shown), shown
    out = mqadmin("deleteSubGroup", "-g", group, broker=True)
    assert f"delete subscription group [{group}] from broker" in out
    assert "retryMaxTimes" not in mqadmin("getConsumerConfig", "-g", group)


def test_the_cluster_list_shows_the_broker(
    mqadmin: Console, cluster: Cluster, filled: Json
) -> None:
    (row,) = mqadmin.rows("clusterList")
    assert row[:5] == [CLUSTER, "broker-a", "0", cluster.broker.address, "V4_9_4"]
    (row,) = mqadmin.rows("clusterList", "-m")
    assert row[:2] == [CLUSTER, "broker-a"]
    assert int(row[4]) >= 3, "messages put today"
    assert int(row[5]) >= 3, "messages got today"


def test_the_status_of_a_broker_is_shown(mqadmin: Console, filled: Json) -> None:
    lines = mqadmin("brokerStatus", broker=True).splitlines()
    status = {name.strip(): value.strip() for name, _, value in (s.partition(":") for s in lines)}
    assert status["brokerVersionDesc"] == "V4_9_4"
    assert int(status["commitLogMaxOffset"]) > int(status["commitLogMinOffset"]) >= 0
    assert int(status["msgPutTotalTodayNow"]) >= 3
    assert 0 <= float(status["commitLogDiskRatio"]) <= 1
    assert int(status["putMessageTimesTotal"]) >= 3
    assert "putTps" in status
    assert re.match(r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]", status["runtime"])
    for name in ("bootTimestamp", "dispatchBehindBytes", "remainHowManyDataToFlush"):
        assert name in status
    for name in ("sendThreadPoolQueueCapacity", "pullThreadPoolQueueSize", "getFoundTps"):
        assert name in status


def test_broker_config_is_shown_and_changed(mqadmin: Console, cluster: Cluster) -> None:
    def config() -> dict[str, str]:
        lines = mqadmin("getBrokerConfig", broker=True).splitlines()
        pairs = (line.partition("=") for line in lines if not line.startswith("="))
        return {name.strip(): value.strip() for name, _, value in pairs}

    before = config()
    assert before["brokerName"] == "broker-a"
    assert before["brokerClusterName"] == CLUSTER
    assert before["flushDiskType"] == "ASYNC_FLUSH"
    assert before["listenPort"] == str(cluster.broker.port)
    assert "storePathRootDir" not in before  # RocketMQ shows paths; here no request reads them
    out = mqadmin("updateBrokerConfig", "-k", "defaultTopicQueueNums", "-v", "6", broker=True)
    assert "update broker config success" in out
    assert config()["defaultTopicQueueNums"] == "6"
    mqadmin(
        *("updateBrokerConfig", "-k", "defaultTopicQueueNums"),
        *("-v", before["defaultTopicQueueNums"]),
        broker=True,
    )


def test_consumer_progress_shows_offsets_and_lag(mqadmin: Console, filled: Json) -> None:
    out = eventually(lambda: mqadmin("consumerProgress", "-g", filled["group"]), r"Diff Total: 0\b")
    rows = [line.split() for line in out.splitlines() if line.startswith(filled["topic"])]
    assert [row[1:6] for row in rows] == [
        ["broker-a", "0", "0", "0", "0"],
        ["broker-a", "1", "3", "3", "0"],
        ["broker-a", "2", "0", "0", "0"],
        ["broker-a", "3", "0", "0", "0"],
    ]
    assert any(row[0] == filled["group"] for row in mqadmin.rows("consumerProgress"))
    (row,) = mqadmin.rows("statsAll", "-t", filled["topic"])
    assert row[:3] == [filled["topic"], filled["group"], "0"]


def test_consumer_connection_shows_the_fields_of_the_heartbeat(
    mqadmin: Console, topic: str, consumer: str
) -> None:
    out = mqadmin.members(consumer, topic)
    assert re.search(r"127\.0\.0\.1:\d+ +JAVA +V4_9_4", out)
    assert re.search(rf"^{topic} +\*$", out, re.MULTILINE)
    assert "ConsumeType: CONSUME_PASSIVELY" in out
    assert "MessageModel: CLUSTERING" in out
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in out
    # The broker asks the client for these over the client's own connection.
    assert "Rebalance OK" in mqadmin("consumerStatus", "-g", consumer)


def test_offsets_are_reset_by_time(
    mqadmin: Console, java: Driver, cluster: Cluster, topic: str
) -> None:
    where = {"namesrv": cluster.namesrv.address, "topic": topic}
    group: Json = {"id": topic, "group": f"group-{topic}", "instances": 1, **where}
    everything: Json = {"expected": 40, "timeoutMs": 60_000, "quietMs": 200}
    java.call("consumerStart", **group)
    java.call("load", mode="sync", count=40, size=16, **where)
    java.call("consumerWait", id=topic, **everything)
    java.call("consumerStop", id=topic)
    # Each queue has an offset at the broker now; a connected consumer is notified of the reset.
    java.call("consumerStart", **group)
    mqadmin.members(group["group"], topic)
    out = mqadmin("resetOffsetByTime", "-g", group["group"], "-t", topic, "-s", "0")
    reset = re.findall(r"^broker-a +(\d) +0 *$", out, re.MULTILINE)
    assert sorted(reset) == ["0", "1", "2", "3"], out
    seen = java.call("consumerWait", id=topic, **everything)
    java.call("consumerStop", id=topic)
    assert seen["distinct"] == 40, seen


def test_a_message_is_found_by_every_query(mqadmin: Console, filled: Json) -> None:
    first, second, _ = filled["sent"]
    topic = filled["topic"]

    def value(out: str, name: str) -> str:
        found = re.search(rf"^{name}: +(.*)$", out, re.MULTILINE)
        assert found, out
        return found[1]

    by_id = mqadmin("queryMsgById", "-i", first["offsetMsgId"])
    by_offset = mqadmin("queryMsgByOffset", "-t", topic, "-b", "broker-a", "-i", "1", "-o", "1")
    by_unique = mqadmin("queryMsgByUniqueKey", "-t", topic, "-i", second["msgId"])
    for out, sent in ((by_id, first), (by_offset, second), (by_unique, second)):
        assert value(out, "Topic") == topic
        assert value(out, "Tags") == "[T1]"
        assert value(out, "Queue ID") == "1"
        assert value(out, "Queue Offset") == str(sent["queueOffset"])
        assert f"UNIQ_KEY={sent['msgId']}" in value(out, "Properties")
        assert f"consumerGroup={filled['group']}, trackType=" in out
    rows = mqadmin.rows("queryMsgByKey", "-t", topic, "-k", f"{topic}-all")
    assert sorted(row[0] for row in rows) == sorted(one["msgId"] for one in filled["sent"])
    rows = mqadmin.rows("queryMsgByKey", "-t", topic, "-k", f"{topic}-k2")
    assert [(row[1], row[2]) for row in rows] == [("1", "2")]


def test_a_sent_message_is_printed(
    java_binary: Driver, cluster: Cluster, mqadmin: Console, topic: str
) -> None:
    # With binary headers.
    (row,) = Console(java_binary, cluster).rows(
        "sendMessage", "-t", topic, "-p", "hello", "-k", "k9", "-c", "T9"
    )
    assert row[0] == "broker-a"
    assert row[2] == "SEND_OK"
    printed = mqadmin("printMsg", "-t", topic, "-d", "true")
    assert "BODY: hello" in printed
    assert row[3] in printed
    cq = mqadmin("queryCq", "-t", topic, "-q", row[1], "-i", "0", broker=True)
    assert "max: 1, min: 0" in cq
    assert "tagsCode=2661" in cq


def test_write_permission_is_removed_and_restored(mqadmin: Console, topic: str) -> None:
    out = mqadmin("wipeWritePerm", "-b", "broker-a")
    assert re.search(r"wipe write perm of broker\[broker-a\] in name server\[.*\] OK, \d+", out)
    assert queue_data(mqadmin("topicRoute", "-t", topic), "perm") == 4
    out = mqadmin("addWritePerm", "-b", "broker-a")
    assert re.search(r"add write perm of broker\[broker-a\] in name server\[.*\] OK, \d+", out)
    assert queue_data(mqadmin("topicRoute", "-t", topic), "perm") == 6


def test_the_name_server_keeps_the_order_configuration(mqadmin: Console, topic: str) -> None:
    mqadmin("updateOrderConf", "-t", topic, "-v", "broker-a:4", "-m", "put")
    out = mqadmin("updateOrderConf", "-t", topic, "-m", "get")
    assert f"topic=[{topic}], orderConf=[broker-a:4]" in out
    mqadmin("updateOrderConf", "-t", topic, "-m", "delete")
    out = mqadmin("updateOrderConf", "-t", topic, "-m", "get")
    assert "orderConf=[broker-a:4]" not in out


def test_cleaning_commands_succeed_and_keep_topics(mqadmin: Console, filled: Json) -> None:
    assert "success" in mqadmin("cleanUnusedTopic", broker=True)
    assert "success" in mqadmin("cleanExpiredCQ", broker=True)
    rows = mqadmin.rows("topicStatus", "-t", filled["topic"])
    assert rows[1][:4] == ["broker-a", "1", "0", "3"]
