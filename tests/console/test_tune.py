"""``congreve tune``: what it prints, leaves behind and refuses."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from congreve.console.tune.choice import dissenting, is_busy, recommend
from congreve.console.tune.command import conf_diff, tune
from congreve.console.tune.rounds import ALONE, RAW, TOGETHER, Rounds, Step
from congreve.engine.state.tuned import SYNC, load_tuned, save_tuned
from congreve.io_backends.measure import Sample
from tests.console.conftest import congreve


def test_tune_measures_chooses_and_cleans_up(tmp_path: Path) -> None:
    run = congreve("tune", str(tmp_path), "--seconds", "0.01", "--rounds", "2", "--json", "--save")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    measured = found["recommendation"]["measured"]
    by_backend = {row["backend"] for row in measured}
    assert "mmap" in by_backend
    assert all(row["p50_us"] > 0 and row["bytes_per_s"] > 0 for row in measured)
    assert all(
        low <= row["p50_us"] <= high for row in measured for low, high in [row["p50_us_range"]]
    )
    assert found["recommendation"]["rounds"] == 2
    assert found["why_a_log"] is None or min(found["why_a_log"].values()) > 0
    assert {*by_backend, *found["refused"]} >= {"mmap", "uring"}
    chosen = load_tuned(str(tmp_path))
    assert chosen is not None
    assert chosen.io_backend == found["recommendation"]["io_backend"] in by_backend
    assert chosen.machine is not None and chosen.machine.kernel == os.uname().release
    assert chosen.flush_disk_type == "SYNC_FLUSH"
    for_async = chosen.choice("ASYNC_FLUSH")
    assert for_async is not None and for_async.io_backend == "mmap"
    assert found["recommendation"]["async_flush"]["reason"] == for_async.reason
    assert (tmp_path / "congreve" / "tuned.png").read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["congreve"]


def test_a_dry_run_leaves_no_file(tmp_path: Path) -> None:
    run = congreve("tune", str(tmp_path), "--seconds", "0.01", "--rounds", "1", "--dry-run")
    assert run.returncode == 0, run.stderr
    assert "flushDiskType=SYNC_FLUSH: ioBackend=" in run.stdout
    assert "flushDiskType=ASYNC_FLUSH: ioBackend=mmap, a killed process" in run.stdout
    assert os.listdir(tmp_path) == []


def test_a_doubtful_choice_is_not_saved_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("congreve.console.tune.command.is_busy", lambda _: True)
    options = [str(tmp_path), "--seconds", "0.01", "--rounds", "1"]
    doubtful = CliRunner().invoke(tune, options)
    assert doubtful.exit_code == 0 and "not saved" in doubtful.stderr
    assert load_tuned(str(tmp_path)) is None
    told = CliRunner().invoke(tune, [*options, "--save"])
    assert told.exit_code == 0 and "saved to" in told.stderr
    assert load_tuned(str(tmp_path)) is not None


def test_a_cancelled_measurement_leaves_no_file(tmp_path: Path) -> None:
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
def test_the_error_for_a_path_other_than_a_folder_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    run = congreve("tune", str(tmp_path / name))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert name in run.stderr


def test_a_picture_in_a_missing_folder_is_refused_before_the_measurement(
    tmp_path: Path,
) -> None:
    run = congreve("tune", str(tmp_path), "--png", str(tmp_path / "nowhere" / "a.png"))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert "nowhere" in run.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_a_picture_of_an_unknown_kind_is_refused_in_one_line(tmp_path: Path, command: str) -> None:
    folder = [str(tmp_path)] if command == "tune" else []
    run = congreve(command, *folder, "--png", str(tmp_path / "a.picture"))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert "a.picture" in run.stderr and ".svg" in run.stderr
    assert os.listdir(tmp_path) == []


def test_the_error_for_a_small_disk_is_one_line_and_no_file_is_left(
    small_disk: Callable[[int], Path],
) -> None:
    disk = small_disk(1 << 20)
    run = congreve("tune", str(disk))
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1
    assert "1 MiB free" in run.stderr
    assert os.listdir(disk) == []


def rounds_of(*rows: tuple[str, tuple[int, int], list[float], float]) -> Rounds:
    """Rows of backend, step, p50 of each round in microseconds, bytes per second."""
    rounds = Rounds()
    for backend, step, p50, rate in rows:
        for one in p50:
            rounds.add(Step(backend, SYNC, *step), Sample(*step, 100, one, one, rate))
    return rounds


@pytest.mark.parametrize(("slow_us", "chosen"), [(105.0, "more-bandwidth"), (200.0, "sooner")])
def test_the_faster_backend_wins_unless_the_difference_is_small(
    slow_us: float, chosen: str
) -> None:
    rounds = rounds_of(
        ("sooner", ALONE, [100.0], 1e6),
        ("sooner", TOGETHER, [300.0], 1e8),
        ("more-bandwidth", ALONE, [slow_us], 1e6),
        ("more-bandwidth", TOGETHER, [300.0], 1e9),
        (RAW, ALONE, [1.0], 1e6),
        (RAW, TOGETHER, [1.0], 1e12),
    )
    tuned = recommend(rounds)
    assert tuned.io_backend == chosen
    assert "100 us" in tuned.reason and f"{slow_us:.0f} us" in tuned.reason


def test_rounds_on_a_busy_machine_do_not_count() -> None:
    rounds = rounds_of(
        ("quick", ALONE, [100.0, 4000.0, 4000.0], 1e6),
        ("quick", TOGETHER, [300.0] * 3, 1e8),
        ("slow", ALONE, [300.0] * 3, 1e6),
        ("slow", TOGETHER, [900.0] * 3, 1e8),
        (RAW, ALONE, [50.0, 4000.0, 4000.0], 1e6),
    )
    tuned = recommend(rounds)
    assert tuned.io_backend == "quick"
    assert dissenting(rounds, "quick") == ["slow", "slow"]
    assert is_busy(tuned)


def test_a_quiet_machine_is_not_reported_as_busy() -> None:
    rounds = rounds_of(
        ("quick", ALONE, [100.0, 4000.0, 100.0], 1e6),
        ("quick", TOGETHER, [300.0] * 3, 1e8),
        (RAW, ALONE, [50.0, 60.0, 55.0], 1e6),
    )
    assert not is_busy(recommend(rounds))


def test_the_diff_of_a_broker_conf_keeps_its_flush_policy(tmp_path: Path) -> None:
    rounds = rounds_of(("uring", ALONE, [100.0], 1e6), ("uring", TOGETHER, [300.0], 1e8))
    conf = tmp_path / "broker.conf"
    conf.write_text("# mine\nbrokerName=a\nflushDiskType=ASYNC_FLUSH\nioBackend=pool\n")
    changed = conf_diff(conf, recommend(rounds)).splitlines()
    assert changed[3:] == [
        " # mine",
        " brokerName=a",
        " flushDiskType=ASYNC_FLUSH",
        "-ioBackend=pool",
        "+ioBackend=mmap",
    ]
    conf.write_text("flushDiskType=SYNC_FLUSH\nioBackend=uring\n")
    assert conf_diff(conf, recommend(rounds)) == ""


def test_a_change_of_the_kernel_is_reported(tmp_path: Path) -> None:
    run = congreve("tune", str(tmp_path), "--seconds", "0.01", "--rounds", "1", "--json", "--save")
    assert run.returncode == 0, run.stderr
    tuned = load_tuned(str(tmp_path))
    assert tuned is not None and tuned.machine is not None
    older = msgspec.structs.replace(tuned.machine, kernel="1.0")
    save_tuned(str(tmp_path), msgspec.structs.replace(tuned, machine=older))
    again = congreve("tune", str(tmp_path), "--seconds", "0.01", "--rounds", "1", "--dry-run")
    assert f"the kernel was 1.0 and is {os.uname().release}" in again.stderr
