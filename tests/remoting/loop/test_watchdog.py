"""The watchdog reports a callback that computes, and not a machine that is busy elsewhere."""

import asyncio
import hashlib
import logging
import time

import pytest

from congreve.remoting.loop.watchdog import Watchdog, logged_holds


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_a_callback_that_computes_is_logged_once_with_its_place() -> None:
    alarms: list[tuple[float, str]] = []
    watchdog = Watchdog(0.02, lambda *alarm: alarms.append(alarm))
    watchdog.start()
    await asyncio.sleep(0.05)
    compute(0.3)
    watchdog.stop()
    assert len(alarms) == 1
    assert alarms[0][0] >= 0.02
    assert "compute (test_watchdog.py" in alarms[0][1]


async def test_a_callback_that_holds_the_gil_is_logged() -> None:
    alarms: list[tuple[float, str]] = []
    watchdog = Watchdog(0.02, lambda *alarm: alarms.append(alarm))
    watchdog.start()
    calls = 0
    while not alarms and calls < 50:  # the thread may get the GIL after the next beat only
        calls += 1
        await asyncio.sleep(0.011)
        sum(range(5_000_000))
    watchdog.stop()
    assert 1 <= len(alarms) <= calls


async def test_many_short_turns_are_not_logged_as_a_long_one() -> None:
    alarms: list[tuple[float, str]] = []
    watchdog = Watchdog(0.05, lambda *alarm: alarms.append(alarm))
    watchdog.start()
    for _ in range(200):
        compute(0.002)
        await asyncio.sleep(0)
    watchdog.stop()
    assert alarms == []


async def test_a_callback_that_only_waits_is_not_logged() -> None:
    alarms: list[tuple[float, str]] = []
    watchdog = Watchdog(0.02, lambda *alarm: alarms.append(alarm))
    watchdog.start()
    time.sleep(0.2)
    await asyncio.sleep(0.05)
    watchdog.stop()
    assert alarms == []


def test_a_blocked_turn_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    alarmed = logged_holds()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            alarmed(0.25, "work (a.py:1)")
    assert [record.getMessage() for record in caplog.records] == [
        "the event loop is held for 250 ms by work (a.py:1)"
    ]


async def test_a_thread_that_holds_the_gil_is_reported() -> None:
    alarms: list[tuple[float, str]] = []
    watchdog = Watchdog(0.02, lambda *alarm: alarms.append(alarm))
    watchdog.start()
    await asyncio.to_thread(sort_at_once)
    await asyncio.sleep(0.05)
    watchdog.stop()
    assert alarms and all(seconds >= 0.02 for seconds, _ in alarms)
    assert any("sort_at_once (test_watchdog.py" in stack for _, stack in alarms)


async def test_a_thread_that_computes_without_the_gil_is_not_reported() -> None:
    alarms: list[tuple[float, str]] = []
    watchdog = Watchdog(0.02, lambda *alarm: alarms.append(alarm))
    watchdog.start()
    await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", b"x", b"y", 300_000)
    watchdog.stop()
    assert not alarms


def sort_at_once() -> None:
    numbers = [number * 7919 % 1_000_003 for number in range(1_000_000)]
    for _ in range(5):
        sorted(numbers)
