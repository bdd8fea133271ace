"""Pulls that wait in lanes: no entry is missed, and they end as those of the event loop do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from broker.serving.test_fastpath import config_of
from broker.serving.test_lanes import create, running, send
from harness.wire import Answer, Wire, record_bodies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from congreve.broker.broker import Broker
from congreve.broker.pull.lanes.polling import WAITING_BYTES_MAX

from .test_lane_pulls import (
    COMMIT,
    DELETE_TOPIC,
    FIELDS,
    NO_PERMISSION,
    PULL,
    QUERY_OFFSET,
    SUBSCRIPTION,
    UPDATE_CONFIG,
    VERSIONS,
    topic,
)

SUSPEND = 2
PULL_NOT_FOUND, RETRY_IMMEDIATELY, SERVICE_NOT_AVAILABLE, TOPIC_NOT_EXIST = 19, 20, 14, 17
PLAIN = "WAIT\x01true"
BY_LOOP = "A\x011\x02A\x012\x02WAIT\x01true"  # a property occurs twice: Python handles the send


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(config_of(tmp_path_factory.mktemp("store"), lanes=2)) as (broker, _):
        yield broker


def in_lanes(broker: Broker) -> int:
    assert broker._paths is not None
    return broker._paths.waiting()[1]


def wait_until_held(broker: Broker, count: int) -> None:
    deadline = time.monotonic() + 30
    while in_lanes(broker) != count:
        assert time.monotonic() < deadline, f"{in_lanes(broker)} pulls wait"
        time.sleep(0.001)


def fields(name: str, offset: int = 0, wait_ms: int = 60_000, **more: object) -> dict[str, str]:
    flags = SUBSCRIPTION | SUSPEND
    mine = {"topic": name, "queueOffset": offset, "sysFlag": flags, "suspendTimeoutMillis": wait_ms}
    return FIELDS | {key: str(value) for key, value in (mine | more).items()}


def bodies(answer: Answer) -> list[bytes]:
    return [body for _, body in record_bodies(answer.body)]


def first_pull(wire: Wire, name: str, **more: object) -> Answer:
    """The loop checks the first pull of each kind after the one that made the group."""
    for _ in range(2):
        answer = wire.call(PULL, fields(name, **{"sysFlag": SUBSCRIPTION, **more}))
    return answer


def test_messages_of_lanes_and_of_the_loop_wake_pulls_in_each_lane(broker: Broker) -> None:
    create(broker, "W")
    wires = [Wire(broker.address) for _ in range(8)]
    with Wire(broker.address) as sender:
        first_pull(sender, "W")
        for number, properties in enumerate((PLAIN, BY_LOOP, "DELAY\x011\x02WAIT\x01true")):
            for wire in wires:
                wire.send(PULL, fields("W", number))
            wait_until_held(broker, len(wires))
            send(sender, "W", 0, b"%d" % number, properties)
            for wire in wires:
                answer = wire.receive()
                assert answer.code == 0
                assert bodies(answer) == [b"%d" % number]
        assert in_lanes(broker) == 0
    for wire in wires:
        wire.close()


def test_an_expired_pull_of_a_lane_is_answered_as_by_the_loop(broker: Broker) -> None:
    create(broker, "E")
    with Wire(broker.address) as wire:
        by_loop = first_pull(wire, "E")
        assert by_loop.code == PULL_NOT_FOUND
        flags = SUBSCRIPTION | SUSPEND | COMMIT
        request = fields("E", 0, 50, sysFlag=flags, commitOffset=3)
        opaque = wire.send(PULL, request)
        wait_until_held(broker, 1)
        # When the pull's time is over, its offset must not replace a later one.
        update = {"consumerGroup": "G", "topic": "E", "queueId": "0", "commitOffset": "5"}
        with Wire(broker.address) as other:
            assert other.call(QUERY_OFFSET, fields("E")).fields["offset"] == "3"
            assert other.call(15, update).code == 0
        answer = wire.receive()
        assert (answer.opaque, answer.code, answer.remark, answer.fields) == (
            opaque,
            by_loop.code,
            by_loop.remark,
            by_loop.fields,
        )
        assert wire.call(QUERY_OFFSET, fields("E")).fields["offset"] == "5"
        assert in_lanes(broker) == 0


def bytes_in_lanes(broker: Broker) -> int:
    assert broker._paths is not None
    return sum(lane.pulls.polling.size for lane in broker._paths.lanes)


def test_a_waiting_pull_keeps_no_body(broker: Broker) -> None:
    create(broker, "K")
    with Wire(broker.address) as wire, Wire(broker.address) as sender:
        first_pull(wire, "K")
        opaque = wire.send(PULL, fields("K"), b"x" * (1 << 20))
        wait_until_held(broker, 1)
        assert bytes_in_lanes(broker) < 2_000
        send(sender, "K", 0, b"one", PLAIN)
        answer = wire.receive()
        assert (answer.opaque, bodies(answer)) == (opaque, [b"one"])
        wire.send(PULL, fields("K", 1, 50), b"x" * (1 << 20))  # its time ends
        assert wire.receive().code == PULL_NOT_FOUND
        assert bytes_in_lanes(broker) == 0


def test_pulls_with_large_headers_wait_up_to_a_limit_of_bytes(broker: Broker) -> None:
    create(broker, "H")
    with Wire(broker.address) as wire:
        first_pull(wire, "H")
        large = fields("H", note="x" * (50 << 10))
        most = WAITING_BYTES_MAX // (50 << 10)
        for _ in range(most // 2 + 20):  # one lane may hold half
            wire.send(PULL, large)
        for _ in range(10):  # those that found no room are answered after shortPollingTimeMills
            assert wire.receive().code == PULL_NOT_FOUND
        assert WAITING_BYTES_MAX / 4 < bytes_in_lanes(broker) <= WAITING_BYTES_MAX / 2


def test_messages_with_other_tags_wake_no_pull(broker: Broker) -> None:
    create(broker, "F")
    with Wire(broker.address) as wire, Wire(broker.address) as sender:
        first_pull(wire, "F", subscription="A")
        wire.send(PULL, fields("F", subscription="A"))
        wait_until_held(broker, 1)
        for number in range(20):
            send(sender, "F", 0, b"%d" % number, "TAGS\x01B\x02WAIT\x01true")
        assert in_lanes(broker) == 1
        send(sender, "F", 0, b"for us", "TAGS\x01A\x02WAIT\x01true")
        answer = wire.receive()
        assert bodies(answer) == [b"for us"]
        assert answer.fields["nextBeginOffset"] == "21"


def test_only_a_message_that_passes_the_filter_wakes_its_pull(broker: Broker) -> None:
    filtered = {"expressionType": "SQL92", "subscription": "n > 1", "subVersion": next(VERSIONS)}
    with Wire(broker.address) as wire, Wire(broker.address) as puller:
        assert wire.call(UPDATE_CONFIG, {}, b"enablePropertyFilter=true").code == 0
        create(broker, "filtered")
        send(wire, "filtered", 0, b"there", "n\x012")
        # The loop compiles the filter, answers the next pull, and lanes the others.
        for _ in range(2):
            assert puller.call(PULL, fields("filtered", **filtered)).code == 0
        puller.send(PULL, fields("filtered", offset=1, **filtered))
        wait_until_held(broker, 1)
        send(wire, "filtered", 0, b"too small", "n\x011")
        send(wire, "filtered", 0, b"large", "n\x013")
        answer = puller.receive()
        assert [body for _, body in record_bodies(answer.body)] == [b"large"]
        assert answer.fields["nextBeginOffset"] == "3"


def test_pulls_of_a_closed_connection_are_dropped(broker: Broker) -> None:
    create(broker, "C")
    with Wire(broker.address) as sender:
        first_pull(sender, "C")
        wire = Wire(broker.address)
        for _ in range(100):
            wire.send(PULL, fields("C"))
        wait_until_held(broker, 100)
        wire.close()
        wait_until_held(broker, 0)
        send(sender, "C", 0, b"x")


def test_a_waiting_pull_is_refused_when_its_topic_loses_read_permission(broker: Broker) -> None:
    create(broker, "P")
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        first_pull(wire, "P")
        wire.send(PULL, fields("P"))
        wait_until_held(broker, 1)
        topic(other, "P", 2)
        send(other, "P", 0, b"x")
        assert wire.receive().code == NO_PERMISSION


def test_a_waiting_pull_of_a_deleted_topic_times_out(broker: Broker) -> None:
    create(broker, "D")
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        first_pull(wire, "D")
        wire.send(PULL, fields("D", wait_ms=300))
        wait_until_held(broker, 1)
        assert other.call(DELETE_TOPIC, {"topic": "D"}).code == 0
        assert wire.receive().code == TOPIC_NOT_EXIST


def test_a_peer_that_pauses_reading_gets_its_answers_later(broker: Broker) -> None:
    create(broker, "S")
    pulls, size = 5000, 4000
    with Wire(broker.address) as wire, Wire(broker.address) as sender:
        first_pull(wire, "S")
        opaques = [wire.send(PULL, fields("S")) for _ in range(pulls)]
        wait_until_held(broker, pulls)
        send(sender, "S", 0, b"x" * size)
        time.sleep(0.3)
        assert in_lanes(broker) > 0, "those answers would be 20 MB"
        got = [wire.receive() for _ in opaques]
        assert sorted(answer.opaque for answer in got) == sorted(opaques)
        assert all(bodies(answer) == [b"x" * size] for answer in got)


def test_a_broker_that_stops_answers_waiting_pulls(tmp_path) -> None:
    with running(config_of(tmp_path, lanes=2)) as (broker, loop):
        create(broker, "T")
        wires = [Wire(broker.address) for _ in range(6)]
        first_pull(wires[0], "T")
        for wire in wires:
            wire.send(PULL, fields("T"))
        wait_until_held(broker, len(wires))
        stopping = asyncio.run_coroutine_threadsafe(broker.stop(), loop)
        for wire in wires:
            answer = wire.receive()
            assert answer.code == SERVICE_NOT_AVAILABLE
            assert answer.remark is not None and "is stopping" in answer.remark
            with pytest.raises(ConnectionError):
                wire.receive()
        stopping.result(60)


def test_no_message_is_missed_by_a_pull_that_begins_to_wait(broker: Broker) -> None:
    """Two consumers of one queue, a producer in a lane and one on the event loop, without a pause.

    A missed wake-up ends as a time-out: pulls wait for a minute.
    """
    create(broker, "R")
    messages = 1500
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            with Wire(broker.address, timeout_s=30) as wire:
                offset = 0
                while offset < 2 * messages:
                    answer = wire.call(PULL, fields("R", offset, maxMsgNums=1))
                    assert answer.code == 0, answer
                    offset = int(answer.fields["nextBeginOffset"])
        except (AssertionError, OSError) as error:
            errors.append(error)

    def produce(properties: str) -> None:
        try:
            with Wire(broker.address) as wire:
                for _ in range(messages):
                    send(wire, "R", 0, b"x", properties)
        except (AssertionError, OSError) as error:
            errors.append(error)

    with Wire(broker.address) as wire:
        first_pull(wire, "R")
    threads = [threading.Thread(target=consume) for _ in range(2)]
    threads += [threading.Thread(target=produce, args=(p,)) for p in (PLAIN, BY_LOOP)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "pull", "pull", "pull shortly"]),
        st.sampled_from(["A", "B"]),
        st.integers(0, 3),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def by_loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = config_of(tmp_path_factory.mktemp("store"))
    config.slave_read_enable = True  # the loop answers, to suggest a broker
    with running(config) as (broker, _):
        yield broker


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS)
def test_pulls_of_lanes_end_like_those_of_the_event_loop(
    broker: Broker, by_loop: Broker, steps: list[tuple[str, str, int]]
) -> None:
    """The same requests to both brokers have the same answers, in any order."""
    version = next(VERSIONS)
    name = f"H{version}"
    assert outcome(broker, name, version, steps) == outcome(by_loop, name, version, steps)


def outcome(
    broker: Broker, name: str, version: int, steps: list[tuple[str, str, int]]
) -> dict[int, tuple[object, ...]]:
    create(broker, name)
    found: dict[int, tuple[object, ...]] = {}
    with Wire(broker.address) as wire, Wire(broker.address) as sender:
        for tag in "AB":
            first_pull(sender, name, subscription=tag, subVersion=version)

        def receive_until(opaque: int) -> None:
            while opaque not in found:
                answer = wire.receive()
                # How many messages there are depends on the time.
                found[answer.opaque] = answer.code, bodies(answer)[:1]

        pulls = []
        for number, (what, tag, offset) in enumerate(steps):
            if what == "send":
                send(sender, name, 0, b"%d" % number, f"TAGS\x01{tag}\x02WAIT\x01true")
                continue
            wait_ms = 1 if what == "pull shortly" else 60_000
            request = fields(name, offset, wait_ms, subscription=tag, subVersion=version)
            pulls.append(wire.send(PULL, request))
            # The next step begins when this pull waits, or is answered.
            receive_until(pulls[-1] if wait_ms == 1 else wire.send(QUERY_OFFSET, fields(name)))
        for tag in "AB" * 4:  # ends the pulls that still wait for a queue of up to four entries
            send(sender, name, 0, b"last", f"TAGS\x01{tag}\x02WAIT\x01true")
        for opaque in pulls:
            receive_until(opaque)
    return {opaque: found[opaque] for opaque in pulls}
