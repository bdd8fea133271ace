"""The rates that statsAll, clusterList and brokerStatus show."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from congreve.base.clock import ManualClock
from congreve.base.steps import at_once
from congreve.broker.figures.stats import (
    GROUP_GET_NUMS,
    SAMPLE_INTERVAL_S,
    TOPIC_PUT_NUMS,
    BrokerStats,
)

DAY_MS = 86_400_000


@dataclass
class Queue:
    """The fields of a consume queue that the statistics count."""

    topic: str
    max: int
    put_bytes: int = 0


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def uptime():
    return ManualClock(5_000)


@pytest.fixture
def queues():
    return [Queue("old", 100)]


@pytest.fixture
def stats(clock, uptime, queues):
    started = BrokerStats(clock, lambda: queues, lambda: uptime.now() / 1000)
    started.sample()
    return started


def test_the_first_messages_of_a_new_topic_are_counted(stats, uptime, queues):
    queues.append(Queue("new", 5))
    stats.pull_counter("g", "new").add(3, 300)
    uptime.advance(SAMPLE_INTERVAL_S * 1000)
    stats.sample()
    put, got = stats.view(TOPIC_PUT_NUMS, "new"), stats.view(GROUP_GET_NUMS, "new@g")
    assert (put.stats_minute.sum, put.stats_minute.tps, put.stats_day.sum) == (5, 0.5, 5)
    assert (got.stats_minute.sum, got.stats_hour.sum) == (3, 3)
    assert stats.group_get_tps("g", "new") == 0.3


def test_messages_from_before_the_start_are_not_counted(stats, uptime, queues):
    queues[0].max = 107
    uptime.advance(SAMPLE_INTERVAL_S * 1000)
    stats.sample()
    assert stats.view(TOPIC_PUT_NUMS, "old").stats_minute.sum == 7
    now = at_once(stats.total_steps()).put
    assert (now - stats.put_today_morning, stats.put_yesterday_morning) == (7, 100)


def test_the_counts_of_a_new_day_begin_where_the_last_day_ended(stats, clock, queues):
    queues[0].max = 107
    clock.advance(DAY_MS)
    stats.sample()
    queues[0].max = 108
    now = at_once(stats.total_steps()).put
    assert now - stats.put_today_morning == 1
    assert stats.put_today_morning - stats.put_yesterday_morning == 7


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_setting_the_clock_changes_no_rate(stats, clock, uptime, queues, jump_ms):
    queues[0].max = 107
    clock.advance(jump_ms)
    uptime.advance(SAMPLE_INTERVAL_S * 1000)
    stats.sample()
    assert stats.view(TOPIC_PUT_NUMS, "old").stats_minute.tps == 0.7
    queues[0].max = 117
    uptime.advance(SAMPLE_INTERVAL_S * 1000)
    now = at_once(stats.total_steps())
    assert stats.averages(lambda totals: totals.put, now).split()[0] == "1.0"


NAMES = {
    "TOPIC_PUT_NUMS": "new",
    "TOPIC_PUT_SIZE": "new",
    "GROUP_GET_NUMS": "new@g",
    "GROUP_GET_SIZE": "new@g",
    "GROUP_GET_LATENCY": "0@new@g",
    "SNDBCK_PUT_NUMS": "new@g",
    "BROKER_PUT_NUMS": "C",
    "BROKER_GET_NUMS": "C",
}
"""The counters of 4.9.4's BrokerStatsManager that its broker counts, and the form of their keys."""
NEVER_COUNTED = (
    *("GROUP_GET_FROM_DISK_NUMS", "GROUP_GET_FROM_DISK_SIZE", "BROKER_GET_FROM_DISK_NUMS"),
    *("BROKER_GET_FROM_DISK_SIZE", "COMMERCIAL_SEND_TIMES", "COMMERCIAL_SNDBCK_TIMES"),
    *("COMMERCIAL_RCV_TIMES", "COMMERCIAL_RCV_EPOLLS", "COMMERCIAL_SEND_SIZE"),
    *("COMMERCIAL_RCV_SIZE", "COMMERCIAL_PERM_FAILURES"),
)
"""Its other names, for which it answers that they do not exist."""


def test_every_name_of_the_reference_is_answered(clock, uptime, queues) -> None:
    stats = BrokerStats(clock, lambda: queues, lambda: uptime.now() / 1000, "C")
    stats.sample()
    for name, key in NAMES.items():
        assert (stats.view(name, key) is None) == (not name.startswith("BROKER")), name
    queues.append(Queue("new", 5))
    stats.pull_counter("g", "new").add(3, 300)
    stats.sent_back("g", "new", is_dead=False)
    uptime.advance(SAMPLE_INTERVAL_S * 1000)
    stats.sample()
    found = {name: stats.view(name, key).stats_minute.sum for name, key in NAMES.items()}
    assert (found["BROKER_PUT_NUMS"], found["BROKER_GET_NUMS"]) == (5, 3)
    assert found["GROUP_GET_LATENCY"] == 0
    assert not any(stats.view(name, key) for name in NEVER_COUNTED for key in NAMES.values())


def test_a_deleted_topic_makes_no_negative_rate(clock, uptime, queues) -> None:
    stats = BrokerStats(clock, lambda: queues, lambda: uptime.now() / 1000, "C")
    stats.sample()
    del queues[0]
    uptime.advance(SAMPLE_INTERVAL_S * 1000)
    stats.sample()
    assert stats.view("BROKER_PUT_NUMS", "C").stats_minute.sum == 0
