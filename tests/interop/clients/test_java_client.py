"""The official Java client 4.9.4, unmodified, sends, pulls and consumes."""

from __future__ import annotations

import time
import uuid
import zlib
from statistics import median

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver, Json, balanced, body, message
from harness.wire import GET_CONSUMER_LIST_BY_GROUP, Wire

QUIET_MS = 300
TIMEOUT_MS = 60_000


@pytest.fixture(params=["JSON", "ROCKETMQ"])
def client(request: pytest.FixtureRequest) -> Driver:
    """The client with JSON headers and with binary ones."""
    fixture = {"JSON": "java", "ROCKETMQ": "java_binary"}[request.param]
    driver: Driver = request.getfixturevalue(fixture)
    return driver


def drain(client: Driver, cluster: Cluster, topic: str, **options: object) -> list[Json]:
    """Every message of the topic."""
    answer = client.call("drain", namesrv=cluster.namesrv.address, topics=[topic], **options)
    messages: list[Json] = answer["messages"]
    return messages


def numbers(messages: list[Json]) -> list[int]:
    """The numbers that the driver's load put into bodies."""
    return [int(body(one).split(b"|")[0]) for one in messages]


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def start_consumers(
    client: Driver, cluster: Cluster, topic: str, group: str, **options: object
) -> str:
    """Start push consumers; returns the id for queries about them."""
    request: Json = {"id": group, "group": group, "topic": topic, "instances": 2, **options}
    client.call("consumerStart", namesrv=cluster.namesrv.address, **request)
    return group


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "ordered", "batch"])
def test_messages_of_every_send_mode_arrive_once(
    client: Driver, cluster: Cluster, topic: str, mode: str
) -> None:
    sent = client.call(
        "load",
        **{"namesrv": cluster.namesrv.address, "topic": topic, "mode": mode},
        **{"count": 200, "size": 64, "lanes": 4},
    )
    assert sent["ok"] == 200, sent
    deadline = time.monotonic() + 60
    got = drain(client, cluster, topic)
    while len(got) < 200 and time.monotonic() < deadline:
        time.sleep(0.1)
        got = drain(client, cluster, topic)
    assert sorted(numbers(got)) == list(range(200))
    if mode == "ordered":
        for one in got:
            assert numbers([one])[0] % 4 == one["queueId"]
        for queue in range(4):
            lane = numbers([one for one in got if one["queueId"] == queue])
            assert lane == sorted(lane)


def test_a_message_is_read_with_all_its_fields(
    client: Driver, cluster: Cluster, topic: str
) -> None:
    text = "ünïcode ✓ \x00 binary".encode() + bytes(range(256))
    fields: Json = {
        "tags": "TagÄ",
        "keys": "key-1 key-2",
        "flag": 77,
        "properties": {"colour": "grün", "a b": "c=d;e"},
    }
    sent = client.call(
        "send",
        namesrv=cluster.namesrv.address,
        messages=[message(topic, text, **fields)],
        queueId=3,
    )["results"][0]
    assert sent["status"] == "SEND_OK"
    assert (sent["queueId"], sent["queueOffset"]) == (3, 0)
    (got,) = drain(client, cluster, topic)
    assert body(got) == text
    assert got["bodyCrc"] == zlib.crc32(text) & 0x7FFFFFFF
    assert got["flag"] == 77
    assert got["msgId"] == sent["msgId"]
    assert got["offsetMsgId"] == sent["offsetMsgId"]
    assert got["storeHost"] == f"/{cluster.broker.address}"
    assert (
        got["properties"].items()
        >= {
            "TAGS": "TagÄ",
            "KEYS": "key-1 key-2",
            "UNIQ_KEY": sent["msgId"],
            "CLUSTER": "InteropCluster",
            **fields["properties"],
        }.items()
    )
    (viewed,) = client.call("view", namesrv=cluster.namesrv.address, ids=[sent["offsetMsgId"]])[
        "messages"
    ]
    for name in ("body", "flag", "bodyCrc", "queueOffset", "physicalOffset", "storeTimestamp"):
        assert viewed[name] == got[name]


def test_a_large_compressed_body_is_read_unchanged(
    client: Driver, cluster: Cluster, topic: str
) -> None:
    text = b"compress me " * 50_000
    client.call(
        "send",
        namesrv=cluster.namesrv.address,
        messages=[message(topic, text)],
        compressOver=4096,
    )
    (got,) = drain(client, cluster, topic)
    assert body(got) == text
    assert got["sysFlag"] & 1
    assert got["size"] < len(text) // 10


def test_a_batch_gets_an_id_for_each_message(client: Driver, cluster: Cluster, topic: str) -> None:
    messages = [
        message(topic, f"{i}|b".encode(), keys=f"batch-{i}", tags=f"T{i % 2}") for i in range(5)
    ]
    sent = client.call("batch", namesrv=cluster.namesrv.address, messages=messages)["result"]
    ids = sent["offsetMsgId"].split(",")
    got = drain(client, cluster, topic)
    assert [one["offsetMsgId"] for one in got] == ids
    assert [one["msgId"] for one in got] == sent["msgId"].split(",")
    assert {one["queueId"] for one in got} == {sent["queueId"]}
    assert [one["queueOffset"] - sent["queueOffset"] for one in got] == list(range(5))
    assert numbers(got) == list(range(5))
    assert [one["properties"]["KEYS"] for one in got] == [f"batch-{i}" for i in range(5)]
    viewed = client.call("view", namesrv=cluster.namesrv.address, ids=ids)["messages"]
    assert numbers(viewed) == list(range(5))
    tagged = drain(client, cluster, topic, expression="T1")
    assert numbers(tagged) == [1, 3]


def test_pull_statuses_are_those_of_the_reference(
    client: Driver, cluster: Cluster, topic: str
) -> None:
    def pull(offset: int, expression: str = "*") -> tuple[str, int, int]:
        got = client.call(
            "pull",
            **{"namesrv": cluster.namesrv.address, "topic": topic, "queueId": 1},
            **{"offset": offset, "max": 2, "expression": expression},
        )
        return got["status"], got["next"], len(got["messages"])

    messages = [message(topic, f"{i}|p".encode(), tags=f"T{i}") for i in range(5)]
    client.call("send", namesrv=cluster.namesrv.address, messages=messages, queueId=1)
    assert pull(0) == ("FOUND", 2, 2)
    assert pull(4) == ("FOUND", 5, 1)
    assert pull(0, "T1 || T3") == ("FOUND", 4, 2)
    assert pull(0, "None") == ("NO_MATCHED_MSG", 5, 0)
    assert pull(5) == ("NO_NEW_MSG", 5, 0)
    assert pull(17) == ("OFFSET_ILLEGAL", 5, 0)


def test_a_waiting_pull_is_answered_when_a_message_arrives_and_not_before(
    client: Driver, cluster: Cluster, topic: str
) -> None:
    got = client.call(
        "longPoll",
        **{"namesrv": cluster.namesrv.address, "topic": topic, "queueId": 2},
        **{"rounds": 10, "pauseMs": 60},
    )
    assert got["early"] == 0
    # The reference checks held pulls every 5 s; without wake-ups most pulls would wait that long.
    assert median(got["latenciesMs"]) < 4_000


def test_offsets_of_a_queue_are_found_by_time(client: Driver, cluster: Cluster, topic: str) -> None:
    def offsets(at: int | None = None) -> Json:
        options = {} if at is None else {"time": at}
        queues = client.call("offsets", namesrv=cluster.namesrv.address, topic=topic, **options)[
            "queues"
        ]
        assert [one["queueId"] for one in queues] == [0, 1, 2, 3]
        one: Json = queues[2]
        return one

    empty = offsets()
    assert (empty["min"], empty["max"], empty["earliest"]) == (0, 0, -1)
    for _ in range(3):
        client.call(
            "send",
            namesrv=cluster.namesrv.address,
            messages=[message(topic, b"0|t")] * 2,
            queueId=2,
        )
        time.sleep(0.02)
    times = [one["storeTimestamp"] for one in drain(client, cluster, topic)]
    assert (offsets()["min"], offsets()["max"], offsets()["earliest"]) == (0, 6, times[0])
    assert offsets(times[0] - 1000)["at"] == 0
    assert times[offsets(times[2])["at"]] == times[2]
    # Between two messages the answer is the nearer one; after the last one, the last.
    assert times[offsets(times[3] + 1)["at"]] == times[3]
    assert times[offsets(times[4] - 1)["at"]] == times[4]
    assert offsets(times[5] + 1000)["at"] == 5


def test_queries_find_messages_by_key_and_unique_id(
    client: Driver, cluster: Cluster, topic: str
) -> None:
    messages = [
        message(topic, f"{i}|k".encode(), keys=f"all only-{i}", tags="K") for i in range(20)
    ]
    sent = client.call("send", namesrv=cluster.namesrv.address, messages=messages)["results"]
    keys = ["all", "only-0", "only-19", "nobody"]

    def query(**options: object) -> Json:
        found: Json = client.call(
            "query", namesrv=cluster.namesrv.address, topic=topic, keys=keys, **options
        )["found"]
        return found

    deadline = time.monotonic() + 60
    found = query()
    while len(found["all"]) < 20 and time.monotonic() < deadline:
        time.sleep(0.1)
        found = query()
    assert sorted(numbers(found["all"])) == list(range(20))
    assert numbers(found["only-0"]) == [0]
    assert numbers(found["only-19"]) == [19]
    assert found["nobody"] == []
    assert len(query(max=3)["all"]) == 3
    now = int(time.time() * 1000)
    assert query(begin=now + 60_000, end=now + 120_000)["all"] == []
    viewed = client.call(
        "viewUnique",
        namesrv=cluster.namesrv.address,
        topic=topic,
        ids=[one["msgId"] for one in sent[:3]],
    )["messages"]
    assert numbers(viewed) == [0, 1, 2]


def test_two_push_consumers_share_a_topic_and_one_takes_over(
    client: Driver, cluster: Cluster, topic: str
) -> None:
    group = new_group()
    both = start_consumers(client, cluster, topic, group)
    held = balanced(client, topic, both)
    assert sorted(held) == [[0, 1], [2, 3]]
    with Wire(cluster.broker.address) as wire:
        answer = wire.call(GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        assert answer.code == 0
        assert answer.body.count(b"@") == 2
    load = {"namesrv": cluster.namesrv.address, "topic": topic, "mode": "async", "size": 64}
    client.call("load", count=400, **load)
    seen = client.call(
        "consumerWait", id=both, expected=400, timeoutMs=TIMEOUT_MS, quietMs=QUIET_MS
    )
    assert (seen["distinct"], seen["total"]) == (400, 400), seen
    assert all(taken > 0 for taken in seen["perInstance"])
    client.call("consumerStop", id=both)
    # The group's offsets are with the broker now: a successor sees only what is new.
    successor = start_consumers(client, cluster, topic, group, instances=1)
    balanced(client, topic, successor)
    client.call("load", count=50, **load)
    seen = client.call(
        "consumerWait", id=successor, expected=50, timeoutMs=TIMEOUT_MS, quietMs=QUIET_MS
    )
    client.call("consumerStop", id=successor)
    assert (seen["distinct"], seen["total"]) == (50, 50), seen


def test_orderly_consumption_keeps_each_queue_in_order(
    java: Driver, cluster: Cluster, topic: str
) -> None:
    group = start_consumers(java, cluster, topic, new_group(), orderly=True)
    balanced(java, topic, group)
    java.call(
        "load",
        **{"namesrv": cluster.namesrv.address, "topic": topic, "mode": "ordered"},
        **{"count": 400, "size": 32, "lanes": 4},
    )
    seen = java.call("consumerWait", id=group, expected=400, timeoutMs=TIMEOUT_MS, quietMs=QUIET_MS)
    java.call("consumerStop", id=group)
    assert (seen["distinct"], seen["total"], seen["outOfOrder"]) == (400, 400, 0), seen


def test_a_tag_subscription_gets_only_its_tags(java: Driver, cluster: Cluster, topic: str) -> None:
    group = start_consumers(java, cluster, topic, new_group(), expression="A || C", instances=1)
    messages = [message(topic, f"{i}|t".encode(), tags="ABCD"[i % 4]) for i in range(40)]
    java.call("send", namesrv=cluster.namesrv.address, messages=messages)
    seen = java.call("consumerWait", id=group, expected=20, timeoutMs=TIMEOUT_MS, quietMs=QUIET_MS)
    java.call("consumerStop", id=group)
    assert (seen["distinct"], seen["total"]) == (20, 20), seen


def test_none_of_a_hundred_thousand_messages_is_lost_or_duplicated(
    java: Driver, cluster: Cluster, topic: str
) -> None:
    group = start_consumers(java, cluster, topic, new_group())
    balanced(java, topic, group)
    sent = java.call(
        "load",
        **{"namesrv": cluster.namesrv.address, "topic": topic, "mode": "async"},
        **{"count": 100_000, "size": 128},
    )
    assert sent["ok"] == 100_000, sent
    seen = java.call("consumerWait", id=group, expected=100_000, timeoutMs=120_000, quietMs=1000)
    java.call("consumerStop", id=group)
    assert (seen["distinct"], seen["total"], seen["doubled"]) == (100_000, 100_000, []), seen
