"""Messages that a consumer could not handle: retried later and later, then a dead letter."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, Json, message
from harness.wire import Wire

CONSUMER_SEND_MSG_BACK = 36
ATTEMPTS = 3  # of each message: the first one and two retries
# The levels 3, 4, 5 of a message's retries; 1 and 2 are not used by them.
LEVELS_MS = {1: 100_000, 2: 100_000, 3: 1_000, 4: 2_000, 5: 3_000}
LEVELS = "100s 100s 1s 2s 3s"
QUIET_MS = 1_500


@pytest.fixture(scope="module")
def quick(
    kind: str, namesrv: servers.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A broker with short retries."""
    broker = servers.broker(
        *(kind, tmp_path_factory.mktemp("retries"), namesrv.address),
        broker_name="broker-retries",
        settings={"messageDelayLevel": LEVELS},
    )
    broker.start()
    yield Cluster(namesrv, broker)
    assert broker.stop() in (0, 143), broker.tail()


@pytest.fixture
def letters(quick: Cluster, java: Driver) -> tuple[str, list[Json]]:
    """A topic with four messages."""
    topic = f"retry-{uuid.uuid4().hex[:8]}"
    quick.create_topic(java, topic, queues=2)
    texts = [
        message(topic, b"%d|" % n, tags="TagA", keys=f"k{n}", properties={"own": str(n)})
        for n in range(4)
    ]
    results = java.call("send", namesrv=quick.namesrv.address, messages=texts)["results"]
    return topic, results


def dead_letters(java: Driver, quick: Cluster, group: str, count: int) -> list[Json]:
    deadline = time.monotonic() + 60
    while True:
        found: list[Json] = []
        try:
            answer = java.call("drain", namesrv=quick.namesrv.address, topics=[f"%DLQ%{group}"])
            found = answer["messages"]
        except Exception as error:  # noqa: BLE001 - the topic appears with the first letter
            last = str(error)
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, f"{len(found)} of {count}: {last}"
        time.sleep(0.2)


def assert_retried(attempts: list[Json], topic: str, number: int) -> None:
    """Every attempt of one message has its own topic, and arrives after the delay of its level."""
    mine = [one for one in attempts if one["number"] == number]
    assert [one["reconsumeTimes"] for one in mine] == list(range(ATTEMPTS))
    for one in mine:
        assert one["topic"] == topic, "the client restores it from RETRY_TOPIC"
        assert one["properties"]["own"] == str(number)
    for times in range(1, ATTEMPTS):
        waited = mine[times]["storeTimestamp"] - mine[times - 1]["storeTimestamp"]
        assert waited >= LEVELS_MS[2 + times], (times, waited)


def assert_dead(letter: Json, topic: str, number: int, sent: Json) -> None:
    properties = letter["properties"]
    assert properties["RETRY_TOPIC"] == topic
    assert properties["ORIGIN_MESSAGE_ID"] == sent["offsetMsgId"]
    assert properties["UNIQ_KEY"] == sent["msgId"]
    assert (properties["own"], properties["TAGS"]) == (str(number), "TagA")
    assert letter["reconsumeTimes"] == ATTEMPTS


def test_a_java_consumer_that_always_fails_ends_with_dead_letters(
    quick: Cluster, java: Driver, letters: tuple[str, list[Json]]
) -> None:
    topic, sent = letters
    group = f"g-{uuid.uuid4().hex[:8]}"
    attempts = java.call(
        "retries",
        **{"namesrv": quick.namesrv.address, "topic": topic, "group": group, "rejects": [1, 3]},
        **{"maxReconsumeTimes": ATTEMPTS - 1, "expected": 2 + 2 * ATTEMPTS},
        **{"timeoutMs": 120_000, "quietMs": QUIET_MS},
    )["attempts"]
    assert len(attempts) == 2 + 2 * ATTEMPTS
    for number in (1, 3):
        assert_retried(attempts, topic, number)
    dead = {one["properties"]["own"]: one for one in dead_letters(java, quick, group, 2)}
    assert sorted(dead) == ["1", "3"]
    for number in (1, 3):
        assert_dead(dead[str(number)], topic, number, sent[number])


def test_a_go_consumer_that_always_fails_ends_with_dead_letters(
    quick: Cluster, java: Driver, go: Driver, letters: tuple[str, list[Json]]
) -> None:
    topic, sent = letters
    group = f"g-{uuid.uuid4().hex[:8]}"
    # The Go client looks for a new topic only every 20 s.
    quick.create_topic(java, f"%RETRY%{group}", queues=1)
    attempts = go.call(
        "retries",
        **{"namesrv": quick.namesrv.address, "topic": topic, "group": group},
        **{"maxReconsumeTimes": ATTEMPTS - 1, "expected": 4 * ATTEMPTS},
        **{"timeoutMs": 120_000, "quietMs": QUIET_MS},
    )["attempts"]
    for number in range(4):
        assert_retried(attempts, topic, number)
    dead = {one["properties"]["own"]: one for one in dead_letters(java, quick, group, 4)}
    for number in range(4):
        assert_dead(dead[str(number)], topic, number, sent[number])


def back(quick: Cluster, **fields: str) -> tuple[int, str]:
    """The answer to a send-back."""
    with Wire(quick.broker.address) as wire:
        answer = wire.call(CONSUMER_SEND_MSG_BACK, {"delayLevel": "0", **fields})
    return answer.code, answer.remark or ""


def test_an_invalid_send_back_is_refused_as_by_the_reference(
    quick: Cluster, java: Driver, letters: tuple[str, list[Json]]
) -> None:
    # Beyond the end, before the beginning, and within the first message.
    for offset in ("1099511627776", "-1", "7"):
        code, remark = back(quick, offset=offset, group="g-gone")
        assert (code, offset in remark) == (1, True), remark
    namesrv, broker = ("-n", quick.namesrv.address), ("-b", quick.broker.address)
    java.mqadmin("updateSubGroup", *namesrv, *broker, "-g", "g-none", "-q", "0")
    assert back(quick, offset="0", group="g-none")[0] == 0
    with Wire(quick.broker.address) as wire:
        answer = wire.call(CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "g"})
    assert answer.code == 1  # no delayLevel
