"""``congreve tune``: what it prints, leaves behind and refuses."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from congreve.console.tune import ALONE, SYNC, TOGETHER, Row, recommend
from congreve.engine.state.tuned import load_tuned
from congreve.io_backends.measure import Sample
from tests.console.conftest import congreve


def test_it_measures_chooses_and_cleans_up(tmp_path: Path) -> None:
    run = congreve("tune", str(tmp_path), "--seconds", "0.01", "--output", "json")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    by_backend = {row["backend"] for row in found["measured"]}
    assert "mmap" in by_backend
    assert all(row["p50_us"] > 0 and row["bytes_per_s"] > 0 for row in found["measured"])
    assert {*by_backend, *found["refused"]} >= {"mmap", "uring"}
    chosen = load_tuned(str(tmp_path))
    assert chosen is not None
    assert chosen.io_backend == found["recommendation"]["ioBackend"] in by_backend
    assert chosen.flush_disk_type == "SYNC_FLUSH"
    for_async = chosen.choice("ASYNC_FLUSH")
    assert for_async is not None and for_async.io_backend == "mmap"
    assert found["recommendation"]["asyncFlush"]["reason"] == for_async.reason
    assert (tmp_path / "congreve" / "tuned.png").read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["congreve"]


def test_a_dry_run_leaves_nothing(tmp_path: Path) -> None:
    run = congreve("tune", str(tmp_path), "--seconds", "0.01", "--dry-run")
    assert run.returncode == 0, run.stderr
    assert "flushDiskType=SYNC_FLUSH: ioBackend=" in run.stdout
    assert "flushDiskType=ASYNC_FLUSH: ioBackend=mmap, a killed process" in run.stdout
    assert os.listdir(tmp_path) == []


def test_nothing_is_left_of_a_measurement_that_was_ended(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "congreve", "tune", str(tmp_path)]
    with subprocess.Popen(run, stderr=subprocess.PIPE) as measuring:
        deadline = time.monotonic() + 60
        while not os.listdir(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.listdir(tmp_path), "it never began"
        measuring.terminate()
        measuring.communicate(timeout=60)
    assert measuring.returncode == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["nowhere", "a-file"])
def test_a_folder_that_is_none_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    run = congreve("tune", str(tmp_path / name))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert name in run.stderr


def test_a_picture_without_a_folder_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    run = congreve("tune", str(tmp_path), "--png", str(tmp_path / "nowhere" / "a.png"))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert "nowhere" in run.stderr
    assert os.listdir(tmp_path) == []


def test_a_small_disk_is_one_line_and_stays_empty(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(1 << 20)
    run = congreve("tune", str(disk))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert "1 MiB free" in run.stderr
    assert os.listdir(disk) == []


def row(backend: str, step: tuple[int, int], p50_us: float, rate: float) -> Row:
    return Row(backend, SYNC, Sample(*step, 100, p50_us, p50_us, rate))


@pytest.mark.parametrize(("slow_us", "chosen"), [(105.0, "more-bandwidth"), (200.0, "sooner")])
def test_the_sooner_backend_wins_unless_it_is_close(slow_us: float, chosen: str) -> None:
    rows = [
        row("sooner", ALONE, 100.0, 1e6),
        row("sooner", TOGETHER, 300.0, 1e8),
        row("more-bandwidth", ALONE, slow_us, 1e6),
        row("more-bandwidth", TOGETHER, 300.0, 1e9),
        row("raw", ALONE, 1.0, 1e6),
        row("raw", TOGETHER, 1.0, 1e12),
    ]
    tuned = recommend(rows)
    assert tuned.io_backend == chosen
    assert "100 us" in tuned.reason and f"{slow_us:.0f} us" in tuned.reason
