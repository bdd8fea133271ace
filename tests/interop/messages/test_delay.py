"""Delay levels with the Java client, through restarts and kills, and across a change of broker."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from harness import servers
from harness.drivers import Driver, DriverError, Json, body, message
from harness.replication.replaceable_broker import ReplaceableBroker

LEVELS_MS = (1_000, 2_000, 3_000)
PARKING = ("REAL_TOPIC", "REAL_QID", "DELAY", "WAIT", "MIN_OFFSET", "MAX_OFFSET")


@dataclass
class Delays(ReplaceableBroker):
    """A broker with three short levels, and a topic."""

    SETTINGS: ClassVar = {
        "messageDelayLevel": "1s 2s 3s",
        "flushDelayOffsetInterval": "500",
        "mappedFileSizeCommitLog": str(1 << 20),
    }

    topic: str = field(default_factory=lambda: f"delays-{uuid.uuid4().hex[:8]}")

    def send(self, levels: list[int], first: int = 0) -> list[Json]:
        """Send one message for each level; returns the messages and the answers."""
        messages = [
            message(
                self.topic,
                b"%d|" % (first + number),
                tags=f"Tag{number % 3}",
                keys=f"key-{number}",
                flag=number,
                properties={"grösse": "Ü" * (number % 4 + 1)},
                delayLevel=level,
            )
            for number, level in enumerate(levels)
        ]
        results = self.call("send", messages=messages)["results"]
        assert {one["status"] for one in results} == {"SEND_OK"}
        return [{**sent, **result} for sent, result in zip(messages, results, strict=True)]

    def delivered(self, wanted: int, timeout_s: float = 90.0) -> list[Json]:
        """The messages of the topic, once there are so many."""
        deadline = time.monotonic() + timeout_s
        while True:
            found: list[Json] = self.call("drain", topics=[self.topic])["messages"]
            if len(found) >= wanted:
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {wanted} were delivered"
            time.sleep(0.1)


@pytest.fixture
def delays(namesrv: servers.Server, java: Driver, tmp_path: Path) -> Iterator[Delays]:
    made = Delays(namesrv, tmp_path / "delays", java)
    yield made
    made.kill_if_running()


def timed(topic: str, number: int, **properties: str) -> Json:
    """A message with a deliver time of its own, as clients of RocketMQ 5 ask for it."""
    return message(topic, b"%d|" % number, tags="TagA", properties=properties)


def number_of(one: Json) -> int:
    return int(body(one).split(b"|")[0])


def assert_whole(sent: list[Json], delivered: list[Json], *, doubles: bool = False) -> None:
    """Each message arrived with all its fields, and not before its time."""
    by_number = {number_of(one): one for one in sent}
    numbers = [number_of(one) for one in delivered]
    assert set(numbers) == set(by_number)
    assert doubles or len(numbers) == len(by_number), "a message was delivered twice"
    for one in delivered:
        was = by_number[number_of(one)]
        properties = {k: v for k, v in one["properties"].items() if k not in PARKING}
        wanted = {"TAGS": was["tags"], "KEYS": was["keys"], **was["properties"]}
        wanted |= {"UNIQ_KEY": was["msgId"], "CLUSTER": servers.CLUSTER}
        assert properties == wanted
        assert (one["flag"], one["queueId"]) == (was["flag"], was["queueId"])
        waited = one["storeTimestamp"] - one["bornTimestamp"]
        # The clocks of sender and broker are the same, read one after the other.
        assert waited >= LEVELS_MS[min(was["delayLevel"], 3) - 1], waited


def test_each_level_delivers_all_messages_in_order_and_not_early(kind: str, delays: Delays) -> None:
    delays.start(kind)
    delays.create_topics(delays.topic)
    chance = random.Random(5)
    # Level 99 counts as the highest level.
    sent = delays.send([chance.choice((1, 2, 3, 99)) for _ in range(120)])
    delivered = delays.delivered(120)
    assert_whole(sent, delivered)
    level = {number_of(one): min(one["delayLevel"], 3) for one in sent}
    for queue_id in (0, 1):
        for wanted in (1, 2, 3):
            came = [
                number_of(one)
                for one in sorted(delivered, key=lambda one: one["queueOffset"])
                if one["queueId"] == queue_id and level[number_of(one)] == wanted
            ]
            assert came == sorted(came)
    wanted = [str(min(one["delayLevel"], 3)) for one in sorted(sent, key=number_of)]
    assert [one["properties"]["DELAY"] for one in sorted(delivered, key=number_of)] == wanted
    tagged = delays.call("drain", topics=[delays.topic], expression="Tag1")["messages"]
    assert len(tagged) == len([one for one in sent if one["tags"] == "Tag1"])


def test_levels_below_one_deliver_at_once_and_high_ones_count_as_the_highest(
    kind: str, delays: Delays
) -> None:
    delays.start(kind)
    delays.create_topics(delays.topic)
    sent = delays.send([0, -1, -(2**31), 2**31 - 1])
    delivered = delays.delivered(3)
    assert sorted(number_of(one) for one in delivered) == [0, 1, 2]
    delivered = delays.delivered(4)
    (highest,) = [one for one in delivered if number_of(one) == 3]
    assert highest["storeTimestamp"] - highest["bornTimestamp"] >= LEVELS_MS[-1]
    assert highest["properties"]["UNIQ_KEY"] == sent[3]["msgId"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_loses_and_repeats_no_delayed_message(
    kind: str, delays: Delays, how: str
) -> None:
    delays.start(kind)
    delays.create_topics(delays.topic)
    sent = delays.send([1, 2] * 60)
    delays.delivered(60)
    delays.end(how)
    delays.start(kind)
    # The reference saves its progress periodically, and delivers later messages twice after a kill.
    assert_whole(sent, delays.delivered(120), doubles=kind == "java")
    time.sleep(0.5)
    assert_whole(sent, delays.delivered(120), doubles=kind == "java")


def test_changed_delay_levels_apply_to_waiting_messages(kind: str, delays: Delays) -> None:
    """A shorter level delivers at once; messages of a removed level wait until it is back."""
    delays.start(kind, messageDelayLevel="1s 1h 1h 1h")
    delays.create_topics(delays.topic)
    delays.send([2, 2, 4])
    delays.end("stop")
    delays.start(kind, messageDelayLevel="1s 1s")
    # They are in two queues, so they may arrive in any order.
    assert sorted(number_of(one) for one in delays.delivered(2)) == [0, 1]
    time.sleep(2.5)
    assert len(delays.delivered(2)) == 2
    delays.end("stop")
    delays.start(kind, messageDelayLevel="1s 1s 1s 1s")
    assert sorted(number_of(one) for one in delays.delivered(3)) == [0, 1, 2]


def test_delay_queues_move_to_the_other_broker_and_back(kind: str, delays: Delays) -> None:
    """delayOffset.json and the parked records are read and written by both."""
    writer, reader = kind, "java"
    delays.start(writer)
    delays.create_topics(delays.topic)
    sent = delays.send([1, 3] * 40)
    delays.delivered(40)
    delays.end("stop")
    delays.start(reader)
    sent += delays.send([2] * 20, first=80)
    assert_whole(sent, delays.delivered(100))
    delays.end("stop")
    delays.start(writer)
    sent += delays.send([1] * 10, first=100)
    assert_whole(sent, delays.delivered(110))


TIMES = ("TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_deliver_times_survive_a_restart(kind: str, delays: Delays, how: str) -> None:
    """An extension of 4.9: each message is delivered once, not before its time; none is lost."""
    if kind == "java":
        pytest.skip("4.9.4 has no deliver times")
    delays.start(kind)
    delays.create_topics(delays.topic)
    chance = random.Random(3)
    wanted: dict[int, int] = {}
    messages = []
    for number in range(150):
        name, wait = TIMES[number % 3], chance.randrange(200, 3_500)
        now = time.time_ns() // 1_000_000
        if name == "TIMER_DELAY_SEC":
            wait = wait // 1_000 * 1_000
        value = {"TIMER_DELIVER_MS": now + wait, "TIMER_DELAY_SEC": wait // 1_000}.get(name, wait)
        messages.append(timed(delays.topic, number, **{name: str(value)}))
        wanted[number] = now + wait
    results = delays.call("send", messages=messages)
    assert {one["status"] for one in results["results"]} == {"SEND_OK"}
    time.sleep(1.0)
    delays.end(how)
    delays.start(kind)
    delivered = delays.delivered(150)
    time.sleep(0.3)
    delivered = delays.delivered(150)
    assert sorted(number_of(one) for one in delivered) == list(range(150))
    for one in delivered:
        assert one["storeTimestamp"] >= wanted[number_of(one)]
        times = [name for name in one["properties"] if name.startswith("TIMER_")]
        assert times == ["TIMER_OUT_MS"]


def test_a_deliver_time_too_far_ahead_is_refused_and_a_past_one_delivers_at_once(
    kind: str, delays: Delays
) -> None:
    if kind == "java":
        pytest.skip("4.9.4 has no deliver times")
    delays.start(kind)
    delays.create_topics(delays.topic)
    longest = timed(delays.topic, 0, TIMER_DELAY_SEC=str(40 * 86_400))
    sent = delays.call("send", messages=[longest])["results"]
    assert sent[0]["status"] == "SEND_OK"
    far = timed(delays.topic, 1, TIMER_DELAY_SEC=str(40 * 86_400 + 1))
    with pytest.raises(DriverError, match=r"CODE: 13 .*not be bigger than the max delay"):
        delays.call("send", messages=[far])
    passed = timed(delays.topic, 2, TIMER_DELIVER_MS="1")
    delays.call("send", messages=[passed])
    assert [number_of(one) for one in delays.delivered(1)] == [2]
