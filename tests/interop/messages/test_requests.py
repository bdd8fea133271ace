"""Request and reply of the official Java client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, Json, body
from harness.wire import GET_MAX_OFFSET, Wire

REPLY_TOPIC = "InteropCluster_REPLY_TOPIC"


class Asking:
    """A topic with a responder."""

    def __init__(self, java: Driver, cluster: Cluster, topic: str) -> None:
        self.java = java
        self.cluster = cluster
        self.topic = topic
        self.id = uuid.uuid4().hex

    def call(self, do: str, **request: object) -> Json:
        return self.java.call(
            do, id=self.id, namesrv=self.cluster.namesrv.address, topic=self.topic, **request
        )

    def responder(self, **options: object) -> None:
        self.call("responderStart", group=f"responders-{self.id}", **options)

    def ask(self, *bodies: str, mode: str = "sync", timeout_ms: int = 60_000) -> list[Json]:
        replies: list[Json] = self.call(
            "request", bodies=list(bodies), mode=mode, timeoutMs=timeout_ms
        )["replies"]
        return replies

    def sent(self, count: int) -> list[Json]:
        """How the first `count` replies were answered."""
        deadline = time.monotonic() + 60
        while True:
            sent: list[Json] = self.call("responderSent")["sent"]
            if len(sent) >= count:
                return sent
            assert time.monotonic() < deadline, sent
            time.sleep(0.1)


@pytest.fixture
def asking(java: Driver, cluster: Cluster, topic: str) -> Iterator[Asking]:
    made = Asking(java, cluster, topic)
    yield made
    made.call("responderStop")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_request_gets_its_reply(asking: Asking, mode: str) -> None:
    asking.responder()
    replies = asking.ask("one", "two", "three", mode=mode)
    assert [body(one) for one in replies] == [b"re: one", b"re: two", b"re: three"]
    for one in replies:
        assert one["properties"]["MSG_TYPE"] == "reply"
        assert int(one["properties"]["ARRIVE_TIME"]) >= int(one["properties"]["PUSH_REPLY_TIME"])
    sent = asking.sent(3)
    assert {one.get("status") for one in sent} == {"SEND_OK"}, sent
    stored = asking.java.call(
        "drain", namesrv=asking.cluster.namesrv.address, topics=[REPLY_TOPIC]
    )["messages"]
    assert {one["offsetMsgId"] for one in sent} <= {one["offsetMsgId"] for one in stored}


def test_a_compressed_reply_arrives_unchanged(asking: Asking) -> None:
    asking.responder(padding=50_000)
    (reply,) = asking.ask("long")
    assert body(reply) == b"re: long" + b"x" * 50_000


def test_the_responder_gets_an_error_if_its_requester_has_disconnected(asking: Asking) -> None:
    asking.responder(holdMs=60_000)
    (given_up,) = asking.ask("late", timeout_ms=2_000)
    assert "timeout" in given_up, given_up
    asking.call("responderRelease")
    (sent,) = asking.sent(1)
    assert "channel of <" in sent["error"], sent
    assert "not found" in sent["error"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_reply_reaches_its_requester_after_a_restart_of_the_broker(
    java: Driver, namesrv: servers.Server, kind: str, how: str, tmp_path: Path
) -> None:
    broker = servers.broker(kind, tmp_path, namesrv.address, broker_name="broker-requests")
    broker.start()
    asking = Asking(java, Cluster(namesrv, broker), f"requests-{uuid.uuid4().hex[:8]}")
    asking.cluster.create_topic(java, asking.topic, queues=1)
    # Long enough for a busy machine to start the broker again.
    asking.responder(holdMs=10_000)
    with ThreadPoolExecutor(1) as pool:
        replies = pool.submit(asking.ask, "survivor", timeout_ms=90_000)
        with Wire(broker.address) as wire:
            asked = {"topic": asking.topic, "queueId": "0"}
            while wire.call(GET_MAX_OFFSET, asked).fields["offset"] == "0":
                assert not replies.done(), replies.result()
                time.sleep(0.05)
        # Until the responder holds it.
        time.sleep(1)
        broker.kill() if how == "kill" else broker.stop()
        broker.start()
        assert [body(one) for one in replies.result(150)] == [b"re: survivor"]
    asking.call("responderStop")
    assert broker.stop() in (0, 143), broker.tail()
