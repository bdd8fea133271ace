"""The benchmark of the client runs, checks the right bounds, and saves its figures."""

import json
from pathlib import Path

from clientspeed.__main__ import ASYNCIO, JAVA_MANY, JAVA_ONE, SEND_MANY, SYNC, figures
from clientspeed.report import Figure

from .programs import run_benchmark


def test_bounds_are_checked_in_the_right_direction() -> None:
    assert Figure("rate", 2, "x", least=2).met
    assert Figure("rate", 1.9, "x", least=2).met is False
    assert Figure("time", 2, "x", most=2).met
    assert Figure("time", 2.1, "x", most=2).met is False
    assert Figure("compared", 2, "x").met is None


def test_ratios_are_taken_within_a_round_and_rates_bounded_at_our_broker_only() -> None:
    found = {
        JAVA_MANY: [{"rate": 50_000.0}, {"rate": 10_000.0}, {"rate": 20_000.0}],
        ASYNCIO: [{"rate": 45_000.0, "cpu": 9.0}, *[{"rate": 30_000.0, "cpu": 9.0}] * 2],
        SEND_MANY: [{"rate": 2e6, "cpu": 0.2}] * 3,
        JAVA_ONE: [{"rate": 1.0, "p50": 100.0}] * 3,
        SYNC: [{"rate": 1.0, "p50": 140.0}] * 3,
    }
    ours = figures(found, bounded=True)
    assert [(one.value, one.met) for one in ours] == [
        *((20_000, None), (30_000, False), (1.5, True), (2e6, True)),
        *((100, None), (140, None), (1.4, False)),
    ]
    assert [one.met for one in figures(found, bounded=False) if one.unit == "msg/s"] == [None] * 3


def test_a_small_run_of_the_consumers_prints_and_keeps_its_figures(tmp_path: Path) -> None:
    options = ["--messages", "20000", "--rounds", "1", "--pull", "32", "--results", str(tmp_path)]
    printed = run_benchmark("clientspeed.consuming", *options, folder=tmp_path, timeout_s=120)
    assert ">= 300,000 msg/s" in printed
    kept = json.loads((tmp_path / "client-consuming.json").read_text())["brokers"]["congreve"]
    assert [one["work"].split(",")[0] for one in kept] == ["listener", "iteration", "Arrow batches"]
    assert all(one["value"] > 0 for one in kept)
