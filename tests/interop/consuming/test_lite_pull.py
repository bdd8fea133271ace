"""The Java client's DefaultLitePullConsumer: shared and assigned queues, commits, a restart."""

from __future__ import annotations

import uuid

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver, Json, message

POLL: Json = {"timeoutMs": 90_000}


@pytest.fixture
def topic(fragile: Cluster, java: Driver) -> str:
    name = f"lite-{uuid.uuid4().hex[:8]}"
    fragile.create_topic(java, name, queues=4)
    return name


def send(java: Driver, fragile: Cluster, topic: str, numbers: range) -> None:
    texts = [message(topic, b"%d|" % n, properties={"n": str(n)}) for n in numbers]
    java.call("send", namesrv=fragile.namesrv.address, messages=texts)


def test_a_lite_pull_consumer_continues_from_its_commits_after_a_restart(
    fragile: Cluster, java: Driver, topic: str
) -> None:
    where: Json = {"namesrv": fragile.namesrv.address, "topic": topic}
    kinds: list[Json] = [
        {"id": f"shared-{topic}"},
        {"id": f"sql-{topic}", "sql": "n IS NOT NULL"},
        {"id": f"assigned-{topic}", "assign": True},
    ]
    for kind in kinds:
        java.call("litePullStart", group=kind["id"], **kind, **where)

    def all_see(numbers: range) -> None:
        send(java, fragile, topic, numbers)
        for kind in kinds:
            seen = java.call("litePullPoll", id=kind["id"], expected=len(numbers), **POLL)["seen"]
            assert seen == [*numbers], kind

    all_see(range(40))
    assert fragile.broker.stop() in (0, 143)
    fragile.broker.start()
    all_see(range(40, 80))
    for kind in kinds:
        java.call("litePullStop", id=kind["id"])
    send(java, fragile, topic, range(80, 90))
    later = {"id": "later", "group": f"shared-{topic}"}
    java.call("litePullStart", **later, **where)
    assert java.call("litePullPoll", id="later", expected=10, **POLL)["seen"] == [*range(80, 90)]
    java.call("litePullStop", id="later")
