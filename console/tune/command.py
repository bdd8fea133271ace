"""The command ``congreve tune``."""

from __future__ import annotations

import difflib
import json
import signal
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import click

from congreve.console.option_types import FiniteRange
from congreve.console.report import output_option, show
from congreve.console.tune.choice import dissenting, is_busy, recommend
from congreve.console.tune.picture import check_picture, draw
from congreve.console.tune.rounds import (
    KIB,
    Places,
    Rounds,
    bytes_needed,
    candidates,
    measured,
    measurements,
    places,
)
from congreve.engine.state.tuned import (
    ASYNC,
    SYNC,
    MeasuredStep,
    Tuned,
    load_tuned,
    machine_of,
    save_tuned,
    tuned_path,
)
from congreve.io_backends.disk import Disk, check_usable
from congreve.io_backends.errors import BackendError

ROUNDS, SECONDS = 3, 0.25


@click.command(help="Measure the disk of a store's folder and choose the log's I/O backend.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--png",
    type=click.Path(path_type=Path),
    show_default="DIR/congreve/tuned.png",
    help="File for the picture.",
)
@click.option("--save", is_flag=True, help="Save the choice also from a busy machine.")
@click.option("--dry-run", is_flag=True, help="Only measure; write neither choice nor picture.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=ROUNDS,
    show_default=True,
    help="How often each step is measured.",
)
@click.option(
    "--seconds",
    type=FiniteRange(0.01, 2.0),
    default=SECONDS,
    show_default=True,
    help="Duration of each measurement.",
)
@click.option(
    "--conf",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A broker.conf; prints what to change in it, as a diff.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@output_option
def tune(
    folder: Path,
    png: Path | None,
    save: bool,
    dry_run: bool,
    rounds: int,
    seconds: float,
    conf: Path | None,
    as_json: bool,
    output: str,
) -> None:
    """Measure, print a table, and save the choice for a broker with ioBackend=auto (default).

    A choice from a busy machine is not saved without --save.
    """
    if png is not None:
        check_picture(png)
    disk = check_usable(str(folder), bytes_needed())
    _compare_with_last(folder)
    found, refusals, order = _measure(str(folder), rounds, seconds)
    chosen = recommend(found, machine_of(str(folder)))
    others, busy = dissenting(found, chosen.io_backend), is_busy(chosen)
    doubtful = busy or 2 * len(others) > rounds
    saved = not dry_run and (save or not doubtful)
    if saved:
        save_tuned(str(folder), chosen)
        draw(chosen, png or folder / "congreve" / "tuned.png")
    if as_json or output == "json":
        _print_json(folder, disk, refusals, chosen, others, busy, order)
    else:
        _print(folder, disk, refusals, chosen, others, busy, order)
    if conf is not None:
        click.echo(conf_diff(conf, chosen), err=as_json or output == "json", nl=False)
    if saved:
        click.echo(f"saved to {tuned_path(str(folder))}", err=True)
    elif not dry_run:
        click.echo("not saved, because another run may choose otherwise: --save saves it", err=True)


def _compare_with_last(folder: Path) -> None:
    last = load_tuned(str(folder))
    if last is not None and last.machine is not None:
        for change in last.machine.differences(machine_of(str(folder))):
            click.echo(f"since the last measurement: {change}", err=True)


def _measure(
    folder: str, rounds: int, seconds: float
) -> tuple[Rounds, dict[str, str], Places | None]:
    from rich.console import Console
    from rich.progress import Progress

    found = Rounds()
    console = Console(stderr=True)
    # SIGTERM raises KeyboardInterrupt, so that the test files are removed. While their folder is
    # being created it is only noted, because nothing would remove the folder.
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    with (
        tempfile.TemporaryDirectory(prefix=".tune-", dir=folder) as inside,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if ended:
            raise KeyboardInterrupt
        backends, refusals = candidates(inside)
        task = bar.add_task("measuring", total=measurements(backends, rounds))
        for step, sample in measured(inside, backends, rounds=rounds, seconds=seconds):
            found.add(step, sample)
            bar.update(task, advance=1, description=f"{step.backend} {step.policy}")
        order = None
        with suppress(BackendError):  # a file system without O_DIRECT
            order = places(inside, seconds)
    return found, refusals, order


def conf_diff(conf: Path, chosen: Tuned) -> str:
    """What to change in a broker.conf, as a unified diff; empty if it says so already.

    The file's flushDiskType stays if it has one.
    """
    from congreve.base.properties import replace_values, values
    from congreve.broker.broker_conf import load_config

    load_config(conf)
    text = conf.read_text(encoding="utf-8")
    given = values(text)
    policy = given.get("flushDiskType", chosen.flush_disk_type)
    choice = chosen.choice(policy)
    wanted = {"flushDiskType": policy}
    if choice is not None:
        wanted["ioBackend"] = choice.io_backend
    changes = {key: value for key, value in wanted.items() if given.get(key) != value}
    after = replace_values(text, changes) if changes else text
    lines = difflib.unified_diff(
        text.splitlines(keepends=True),
        after.splitlines(keepends=True),
        fromfile=str(conf),
        tofile=f"{conf} (recommended)",
    )
    return "".join(lines)


def _print_json(
    folder: Path,
    disk: Disk,
    refusals: dict[str, str],
    chosen: Tuned,
    others: list[str],
    busy: bool,
    order: Places | None,
) -> None:
    from msgspec.structs import asdict as fields  # under their names in Python, not in the file

    document = {
        "folder": str(folder),
        "disk": asdict(disk),
        "refused": refusals,
        "recommendation": fields(chosen),
        "rounds_for_others": others,
        "machine_is_busy": busy,
        "why_a_log": None if order is None else order._asdict(),
    }
    click.echo(json.dumps(document, default=fields, separators=(",", ":")))


def _print(
    folder: Path,
    disk: Disk,
    refusals: dict[str, str],
    chosen: Tuned,
    others: list[str],
    busy: bool,
    order: Places | None,
) -> None:
    title = f"{folder} on {disk.file_system} ({disk.mount}), {chosen.rounds} rounds in turns"
    show([_line(step) for step in chosen.measured], "table", title)
    for name, refusal in refusals.items():
        click.echo(f"{name} was not measured: {refusal}")
    for policy in (SYNC, ASYNC):
        choice = chosen.choice(policy)
        if choice is not None:
            click.echo(f"flushDiskType={policy}: ioBackend={choice.io_backend}, {choice.reason}")
    if order is not None:
        click.echo(
            f"why a log: this disk makes {order.random_pages:.1f} MB/s durable in pages of 4 KiB"
            f" at random places, {order.pages:.1f} in order, and {order.groups:.0f} in order where"
            " the messages of many senders share a write of 256 KiB"
        )
    if busy:
        click.echo(
            "the disk alone took several times as long in one round as in another: the machine is "
            "busy; measure again when it is quieter"
        )
    if others:
        click.echo(
            f"{len(others)} of {chosen.rounds} rounds alone would choose "
            f"{', '.join(sorted(set(others)))}: the backends are close, or the machine is busy"
        )
    click.echo(f"recommended: flushDiskType={chosen.flush_disk_type}")


def _line(step: MeasuredStep) -> dict[str, object]:
    low, high = step.p50_us_range
    slowest, fastest = step.bytes_per_s_range
    groups = f"{step.in_flight} x " if step.in_flight else ""
    return {
        "backend": step.backend,
        "policy": step.policy.removesuffix("_FLUSH").lower(),
        "load, KiB": f"{groups}{step.group_bytes // KIB}",
        "p50 us": f"{step.p50_us:.0f}",
        "rounds": f"{low:.0f}-{high:.0f}",
        "p99 us": f"{step.p99_us:.0f}",
        "MB/s": f"{step.bytes_per_s / 1e6:.0f}",
        "rounds ": f"{slowest / 1e6:.0f}-{fastest / 1e6:.0f}",
    }
