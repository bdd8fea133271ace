"""mqadmin and consumers of RocketMQ 5 with attributes, settings of groups, and queues that the
broker assigns; INTEROP_SERVER=java5 runs the same with RocketMQ 5."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.console import Console, eventually
from harness.drivers import Driver, java5_driver

from congreve.client import ConsumeFrom, ReceivedMessage, ShareConsumer, SyncShareConsumer

KINDS = ("congreve",)
EVERYWHERE = ("-c", servers.CLUSTER)


@pytest.fixture(scope="module")
def java5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Its clients leave out subscriptions that stay the same (heartbeat v2)."""
    driver = java5_driver(
        tmp_path_factory.mktemp("java5-driver"), "-Dcom.rocketmq.heartbeat.v2=true"
    )
    yield driver
    driver.close()


@pytest.fixture
def mqadmin(java5: Driver, cluster: Cluster) -> Console:
    return Console(java5, cluster)


@pytest.fixture
def named() -> tuple[str, str]:
    """A topic and a group of this test."""
    number = uuid.uuid4().hex[:8]
    return f"T{number}", f"G{number}"


def metadata(mqadmin: Console, folder: Path) -> tuple[dict[str, dict], dict[str, dict]]:
    """The topics and the groups that exportMetadata writes."""
    assert "success" in mqadmin("exportMetadata", *EVERYWHERE, "-f", str(folder))
    found = json.loads((folder / "metadata.json").read_text())
    return found["topicConfigTable"], found["subscriptionGroupTable"]


def test_attributes_of_a_topic(mqadmin: Console, named: tuple[str, str], tmp_path: Path) -> None:
    topic, _ = named
    update = ("updateTopic", "-t", topic, *EVERYWHERE)
    assert "success" in mqadmin(*update, "-a", "+message.type=FIFO,+reserve.time=60000")
    assert "success" in mqadmin(*update, "-r", "4", "-w", "4")
    assert "success" in mqadmin(*update, "-a", "+message.type=DELAY,-reserve.time")
    for attributes, refusal in (
        ("+message.type=NOPE", "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, "),
        ("+foo=1", "unsupported key: foo"),
        ("+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ("+message.type=FIFO,-reserve.time", "attempt to delete a nonexistent key: reserve.time"),
    ):
        assert refusal in mqadmin(*update, "-a", attributes)
    topics, _ = metadata(mqadmin, tmp_path)
    assert topics[topic]["attributes"] == {"message.type": "DELAY"}
    assert topics[topic]["readQueueNums"] == 8, "as updateTopic says without -r"
    assert mqadmin("topicStatus", "-t", topic).count("broker-a") == 8


def test_settings_of_a_group(mqadmin: Console, named: tuple[str, str], tmp_path: Path) -> None:
    topic, group = named
    policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,2000]}}'
    update = (
        "updateSubGroup",
        "-g",
        group,
        *EVERYWHERE,
        "-o",
        "true",
        "--groupRetryPolicy",
        policy,
    )
    assert "success" in mqadmin(*update, "--attributes", "+priority.factor=50")
    assert "success" in mqadmin(*update)
    shown = mqadmin("getConsumerConfig", "-g", group)
    for line in (
        "consumeMessageOrderly = true",
        "CustomizedRetryPolicy{next=[1000, 2000]}",
        "attributes = {priority.factor=50}",
    ):
        assert line in " ".join(shown.split())
    lists = tmp_path / "topics.json", tmp_path / "groups.json"
    lists[0].write_text(json.dumps([{"topicName": topic + str(i)} for i in range(2)]))
    lists[1].write_text(json.dumps([{"groupName": group + str(i)} for i in range(2)]))
    assert "success" in mqadmin("updateTopicList", "-f", str(lists[0]), broker=True)
    assert "success" in mqadmin("updateSubGroupList", "-f", str(lists[1]), broker=True)
    topics, groups = metadata(mqadmin, tmp_path)
    assert {topic + "0", topic + "1"} <= topics.keys()
    assert {group + "0", group + "1"} <= groups.keys()
    assert groups[group]["groupRetryPolicy"]["type"] == "CUSTOMIZED"


def test_members_read_queues_that_the_broker_assigns(
    mqadmin: Console, java5: Driver, cluster: Cluster, named: tuple[str, str]
) -> None:
    topic, group = named
    assert "success" in mqadmin("updateTopic", "-t", topic, "-r", "4", "-w", "4", *EVERYWHERE)
    assert "success" in mqadmin("updateSubGroup", "-g", group, *EVERYWHERE, "-s", "true")
    members = [f"{group}-{i}" for i in range(2)]
    for member in members:
        java5.call(
            "memberStart",
            **{"id": member, "group": group, "topic": topic, "tags": "*", "pop": True},
            namesrv=cluster.namesrv.address,
        )
    mqadmin.members(group, topic, count=2)
    sent = {f"m{i}" for i in range(20)}
    for body in sent:
        assert "SEND_OK" in mqadmin("sendMessage", "-t", topic, "-p", body)

    def seen() -> list[dict]:
        return [each for member in members for each in java5.call("memberSeen", id=member)["seen"]]

    until(lambda: {each["body"] for each in seen()} >= sent)
    assert not any(each["popped"] for each in seen())
    progress = eventually(
        lambda: mqadmin("consumerProgress", "-g", group), r"(?m)^Consume Diff Total: 0$"
    )
    assert progress.count(topic) >= 4
    assert "Consume Inflight Total: 0" in progress
    for member in members:
        java5.call("memberStop", id=member)
    assert "success" in mqadmin("updateSubGroup", "-g", group + "-copy", *EVERYWHERE)
    clone = ("cloneGroupOffset", "-s", group, "-d", group + "-copy", "-t", topic, "-o", "true")
    assert "clone group offset success" in mqadmin(*clone)
    refused = mqadmin(
        *("setConsumeMode", "-t", f"%RETRY%{group}", "-g", group, "-m", "POP", *EVERYWHERE)
    )
    assert "retry topic is not allowed to set mode" in refused
    assert "success" in mqadmin(
        *("setConsumeMode", "-t", topic, "-g", group, "-m", "POP", "-q", "0", *EVERYWHERE)
    )


def test_a_deleted_group_leaves_no_retry_topic_of_pops(
    mqadmin: Console, cluster: Cluster, named: tuple[str, str], tmp_path: Path
) -> None:
    topic, group = named
    assert "success" in mqadmin("updateTopic", "-t", topic, *EVERYWHERE)

    async def pop() -> None:
        async with ShareConsumer(
            cluster.namesrv.address, group=group, topics={topic: "*"}
        ) as consumer:
            await consumer.receive(wait_s=0.1)

    def retries() -> set[str]:
        broker = ("-b", cluster.broker.address)
        assert "success" in mqadmin("exportMetadata", *broker, "-t", "-s", "-f", str(tmp_path))
        topics = json.loads((tmp_path / "topic.json").read_text())["topicConfigTable"]
        return {name for name in topics if group in name}

    asyncio.run(pop())
    assert f"%RETRY%{group}_{topic}" in retries()
    mqadmin("deleteSubGroup", *EVERYWHERE, "-g", group, "-r", "true")
    assert not retries()


def test_commands_about_a_group_that_pops(
    mqadmin: Console, cluster: Cluster, named: tuple[str, str]
) -> None:
    topic, group = named
    assert "success" in mqadmin("updateTopic", "-t", topic, "-r", "1", "-w", "1", *EVERYWHERE)
    for number in range(8):
        assert "SEND_OK" in mqadmin("sendMessage", "-t", topic, "-p", f"m{number}")
    with SyncShareConsumer(
        cluster.namesrv.address,
        group=group,
        topics={topic: "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ) as consumer:

        def receive(*expected: str) -> list[ReceivedMessage]:
            found: list[ReceivedMessage] = []
            until(lambda: bool(found.extend(consumer.receive(wait_s=1)) or found))
            assert [message.body.decode() for message in found] == list(expected)
            return found

        def progress(behind: int, out: int) -> None:
            text = mqadmin("consumerProgress", "-g", group)
            assert f"Consume Diff Total: {behind}" in text
            assert f"Consume Inflight Total: {out}" in text

        received = receive(*(f"m{number}" for number in range(8)))
        progress(behind=8, out=8)
        consumer.ack(received[:3])
        progress(behind=5, out=5)
        shown = mqadmin.members(group, topic)
        assert "CONSUME_PASSIVELY" in shown
        (client_id,) = re.findall(r"(?m)^(\S+) +\S+:\d+ ", shown)
        status = mqadmin("consumerStatus", "-g", group, "-i", client_id)
        assert "waitAckCount:5" in status
        assert mqadmin("skipAccumulatedMessage", "-g", group, "-t", topic)
        progress(behind=0, out=0)
        assert "SEND_OK" in mqadmin("sendMessage", "-t", topic, "-p", "later")
        consumer.ack(receive("later"))
        progress(behind=0, out=0)
        assert mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        consumer.ack(receive(*(f"m{number}" for number in range(8)), "later"))
        progress(behind=0, out=0)


def test_figures_of_all_brokers_are_exported(mqadmin: Console, tmp_path: Path) -> None:
    assert "success" in mqadmin("exportMetrics", *EVERYWHERE, "-f", str(tmp_path))
    assert "success" in mqadmin("exportConfigs", *EVERYWHERE, "-f", str(tmp_path))


def until(condition: Callable[[], bool]) -> None:
    assert eventually(lambda: "yes" if condition() else "no", "yes")
