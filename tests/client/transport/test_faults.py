"""The latency table, compared with the reference's numbers."""

import pytest
from harness.fake_cluster import FakeCluster, refused, stored

from congreve.client import Message, MessageQueue, Producer
from congreve.client.errors import BrokerError
from congreve.client.transport.faults import LatencyFaults

QUEUES = [
    MessageQueue(topic="T", broker_name=name, queue_id=number)
    for name in "abcd"
    for number in range(2)
]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("latency_s", "unavailable_s"),
    [(0.0, 0), (0.06, 0), (0.54, 0), (0.55, 30), (1, 60), (2, 120), (3, 180), (14, 180), (15, 600)],
)
def test_slow_brokers_are_skipped_for_the_same_time_as_in_the_reference(
    latency_s: float, unavailable_s: float
) -> None:
    clock = Clock()
    faults = LatencyFaults(clock=clock)
    faults.answered("a", latency_s)
    assert faults.is_available("a") == (unavailable_s == 0)
    clock.now += unavailable_s
    assert faults.is_available("a")


def test_a_failure_counts_as_ten_minutes() -> None:
    clock = Clock()
    faults = LatencyFaults(clock=clock)
    faults.failed("a")
    clock.now += 599
    assert not faults.is_available("a")
    clock.now += 1
    assert faults.is_available("a")


def test_available_brokers_are_used_in_turn_and_others_not_at_all() -> None:
    faults = LatencyFaults(clock=Clock())
    faults.failed("b")
    chosen = [faults.choose(QUEUES, turn).broker_name for turn in range(16)]
    assert set(chosen) == {"a", "c", "d"}


def test_the_better_half_is_used_if_no_broker_is_available() -> None:
    faults = LatencyFaults(clock=Clock())
    for name, latency_s in {"a": 15, "b": 0.6, "c": 3, "d": 1}.items():
        faults.answered(name, latency_s)
    chosen = {faults.choose(QUEUES, turn).broker_name for turn in range(16)}
    assert chosen == {"b", "d"}


async def test_a_broker_that_refused_a_message_gets_no_further_ones() -> None:
    async with (
        FakeCluster("a", "b") as cluster,
        Producer(cluster.address, group="pg", latency_faults=True, retries=0) as producer,
    ):
        cluster.brokers["a"].answers[310] = refused(1)
        cluster.brokers["b"].answers[310] = stored
        failures = 0
        for _ in range(12):
            try:
                await producer.send(Message(topic="T", body=b"x"))
            except BrokerError:
                failures += 1
        assert failures <= 1
        assert len(cluster.brokers["a"].asked(310)) == failures
