"""The official Go client v2, unmodified, sends and consumes."""

from __future__ import annotations

import time

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver, Json, body


def received(java: Driver, cluster: Cluster, topic: str, count: int) -> list[Json]:
    """The topic's messages as the Java client reads them, once there are so many."""
    deadline = time.monotonic() + 60
    while True:
        got = java.call("drain", namesrv=cluster.namesrv.address, topics=[topic])["messages"]
        if len(got) >= count or time.monotonic() > deadline:
            return got
        time.sleep(0.1)


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_a_java_consumer_reads_the_messages_of_a_go_producer(
    go: Driver, java: Driver, cluster: Cluster, topic: str, mode: str
) -> None:
    sent = go.call(
        "load",
        **{"namesrv": cluster.namesrv.address, "topic": topic, "mode": mode, "count": 100},
        **{"size": 40, "tag": "GoTag", "keys": f"{topic}-"},
    )
    assert sent["ok"] == 100, sent
    got = received(java, cluster, topic, 100)
    assert sorted(int(body(one).split(b"|")[0]) for one in got) == list(range(100))
    for one in got:
        number = int(body(one).split(b"|")[0])
        assert one["properties"]["TAGS"] == "GoTag"
        assert one["properties"]["KEYS"] == f"{topic}-{number}"
    if mode in ("sync", "batch"):
        ids = {one["offsetMsgId"] for one in got}
        assert set(sent["offsetMsgIds"]) == ids
        stored = {(one["queueId"], one["queueOffset"]): one["offsetMsgId"] for one in got}
        step = 32 if mode == "batch" else 1
        firsts = [stored[at] for at in zip(sent["queueIds"], sent["offsets"], strict=True)]
        assert firsts == sent["offsetMsgIds"][::step]


def test_two_go_consumers_share_a_topic(
    go: Driver, java: Driver, cluster: Cluster, topic: str
) -> None:
    where = {"namesrv": cluster.namesrv.address, "topic": topic}
    go.call("consumerStart", id=topic, group=f"group-{topic}", instances=2, **where)
    # The Go client does not report its queues, so the test asks the broker for the members.
    deadline = time.monotonic() + 60
    while (
        java.mqadmin(
            "consumerConnection", "-n", cluster.namesrv.address, "-g", f"group-{topic}"
        ).count("GO ")
        < 2
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    for mode in ("sync", "async"):
        go.call("load", mode=mode, count=200, size=40, **where)
    seen = go.call("consumerWait", id=topic, expected=200, timeoutMs=60_000, quietMs=1500)
    go.call("consumerStop", id=topic)
    assert seen["distinct"] == 200, seen
    # At least once: a message may come twice while the two divide the queues.
    assert seen["total"] >= 400, seen


def test_a_go_consumer_reads_the_messages_of_a_java_producer_by_tag(
    go: Driver, java: Driver, cluster: Cluster, topic: str
) -> None:
    where = {"namesrv": cluster.namesrv.address, "topic": topic}
    for tag in ("A", "B"):
        java.call("load", mode="sync", count=60, size=40, tag=tag, **where)
    go.call("consumerStart", id=topic, group=f"group-{topic}", instances=1, tag="B", **where)
    seen = go.call("consumerWait", id=topic, expected=60, timeoutMs=60_000, quietMs=500)
    go.call("consumerStop", id=topic)
    assert (seen["distinct"], seen["total"]) == (60, 60), seen
