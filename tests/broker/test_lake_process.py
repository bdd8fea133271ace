"""The process beside a broker: kept running, ended with the broker, refused settings."""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from harness.eventually import eventually

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.lake_process import NICENESS, LakeProcess, follow_command

WAIT = "import sys; sys.stdin.read()"


def process_of(code: str) -> LakeProcess:
    return LakeProcess([sys.executable, "-c", code], first_pause_s=0.01)


async def test_a_killed_process_is_started_again() -> None:
    process = process_of(WAIT)
    process.start()
    await eventually(lambda: process.pid is not None)
    first = process.pid
    assert first is not None
    assert os.getpriority(os.PRIO_PROCESS, first) == NICENESS
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: process.pid not in (None, first))
    process.stop()
    assert process.pid is None and process.starts == 2


async def test_a_process_that_always_fails_is_tried_again() -> None:
    process = process_of("raise SystemExit(1)")
    process.start()
    await eventually(lambda: process.starts >= 3)
    process.stop()
    assert process.pid is None


async def test_a_program_that_is_missing_does_not_end_the_thread() -> None:
    process = LakeProcess(["/no/such/program"], first_pause_s=0.01)
    process.start()
    process.stop()
    assert process.pid is None and process.starts == 0


def test_a_stop_before_the_start_and_a_second_stop_have_no_effect() -> None:
    process = process_of(WAIT)
    process.stop()
    process.start()
    process.stop()
    assert process.starts == 0


def test_the_command_has_the_settings(tmp_path: Path) -> None:
    config = BrokerConfig(
        broker_name="b",
        lake_topics="orders; bills",
        lake_warehouse="/lake",
        lake_properties="s3.endpoint=http://127.0.0.1:1;a=b",
        lake_lag_millis=10_000,
    )
    config.store.root_dir = str(tmp_path)
    command = follow_command(config)
    options = list(pairwise(command))
    assert ("--topic", "orders") in options and ("--topic", "bills") in options
    assert ("--property", "a=b") in options and ("--lag", "5.0") in options
    assert ("--broker-name", "b") in options and "--catalog" not in command


def test_checkpoints_are_written_as_often_as_the_lag_needs() -> None:
    pytest.importorskip("pyiceberg")
    config = BrokerConfig(lake_topics="T", lake_warehouse="/lake", lake_lag_millis=10_000)
    assert LakeProcess.of(config) is not None
    assert config.store.flush_consume_queue_thorough_interval == 2_500
    without = BrokerConfig()
    assert LakeProcess.of(without) is None
    assert without.store.flush_consume_queue_thorough_interval == 60_000


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lake_topics": "T"}, "needs lakeWarehouse"),
        ({"lake_partition": "week"}, "day or hour"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        BrokerConfig(**settings)  # type: ignore[arg-type]
