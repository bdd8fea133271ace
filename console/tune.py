"""``congreve tune``: measures the disk of a store and chooses the log's I/O backend."""

from __future__ import annotations

import importlib.util
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from congreve.console.report import output_option, show
from congreve.engine.state.tuned import ASYNC, SYNC, Choice, Tuned, save_tuned, tuned_path
from congreve.io_backends import measure
from congreve.io_backends.backend import Backend
from congreve.io_backends.disk import Disk, check_usable
from congreve.io_backends.errors import BackendError
from congreve.io_backends.mapped.mapped import MmapBackend
from congreve.io_backends.measure import BackendMeasure, Sample
from congreve.io_backends.pool import PoolBackend
from congreve.io_backends.probe import uring_refusal

#: Plain O_DIRECT writes with RWF_DSYNC: the upper limit of every backend.
RAW = "raw"
KIB = 1024
NO_MATPLOTLIB = "matplotlib is not installed (pip install congreve[bench])"
#: Measured with SYNC_FLUSH: (bytes of a group, groups in flight).
STEPS = [(4 * KIB, 1), (4 * KIB, 4), (16 * KIB, 1), (64 * KIB, 1), (64 * KIB, 4), (256 * KIB, 4)]
ASYNC_STEPS = [4 * KIB, 64 * KIB]
ALONE, TOGETHER = (4 * KIB, 1), (64 * KIB, 4)
SECONDS = 0.7
#: Bandwidth decides between backends whose latency is within this factor of the lowest.
CLOSE = 1.10


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: a line of the table."""

    backend: str
    policy: str
    sample: Sample


@click.command(help="Measure the disk of a store's folder and choose the log's I/O backend.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--png",
    type=click.Path(path_type=Path),
    show_default="DIR/congreve/tuned.png",
    help="File for the plot.",
)
@click.option("--dry-run", is_flag=True, help="Only measure; write neither choice nor plot.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 2.0),
    default=SECONDS,
    show_default=True,
    help="Duration of each measurement.",
)
@output_option
def tune(folder: Path, png: Path | None, dry_run: bool, seconds: float, output: str) -> None:
    """Measure, print a table, and save the choice for a broker with ioBackend=auto (default)."""
    measured = len(STEPS) + len(ASYNC_STEPS)
    if png is not None:
        _check_picture(png)
    disk = check_usable(str(folder), 2 * measured * measure.MEASURE_BYTES)
    rows, refusals = _measure(str(folder), seconds)
    chosen = recommend(rows)
    if not dry_run:
        save_tuned(str(folder), chosen)
        _draw(rows, png or folder / "congreve" / "tuned.png")
    _report(folder, disk, rows, refusals, chosen, output)
    if not dry_run:
        click.echo(f"saved to {tuned_path(str(folder))}", err=True)


def _check_picture(png: Path) -> None:
    """Raises ClickException, before any measurement, if the plot cannot be written."""
    if not png.parent.is_dir():
        raise click.ClickException(f"cannot write {png}: the folder {png.parent} does not exist")
    if png.is_dir():
        raise click.ClickException(f"cannot write {png}: it is a folder")
    if importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException(f"cannot draw {png}: {NO_MATPLOTLIB}")


def candidates(folder: str) -> tuple[dict[str, Callable[[], Backend]], dict[str, str]]:
    """The backends that work in `folder`, and the reason why each of the others does not."""
    found: dict[str, Callable[[], Backend]] = {
        "mmap": partial(MmapBackend, prewrites=True),
        "pool": partial(PoolBackend, prewrites=True, locked=False),
    }
    refusal = uring_refusal(folder)
    if refusal is not None:
        return found, {"uring": refusal}
    from congreve.io_backends.uring.uring import UringBackend

    return {**found, "uring": UringBackend}, {}


def _measure(folder: str, seconds: float) -> tuple[list[Row], dict[str, str]]:
    from rich.console import Console
    from rich.progress import Progress

    rows = []
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
        total = len(STEPS) + len(backends) * (len(STEPS) + len(ASYNC_STEPS))
        task = bar.add_task("measuring", total=total)
        for row in _rows(inside, backends, seconds):
            rows.append(row)
            bar.update(task, advance=1, description=f"{row.backend} {row.policy}")
    return rows, refusals


def _rows(folder: str, backends: dict[str, Callable[[], Backend]], seconds: float) -> Iterator[Row]:
    try:
        for group, depth in STEPS:
            yield Row(RAW, SYNC, measure.raw_writes(folder, group, depth, seconds))
    except BackendError as error:
        click.echo(f"raw writes were not measured: {error}", err=True)
    for name, backend in backends.items():
        with BackendMeasure(backend, folder, len(STEPS) + len(ASYNC_STEPS)) as measuring:
            for policy, step in [
                *((SYNC, partial(measuring.sync_groups, *step)) for step in STEPS),
                *((ASYNC, partial(measuring.async_groups, group)) for group in ASYNC_STEPS),
            ]:
                yield Row(name, policy, step(seconds=seconds))


def recommend(rows: list[Row]) -> Tuned:
    """The backend with the lowest latency of single groups; bandwidth decides between close ones.

    `rows` are measurements of RAW and the backends. The recommended policy is always SYNC_FLUSH;
    with ASYNC_FLUSH, the backend is always mmap, because a killed process loses nothing there.
    """
    sync = {
        (row.backend, row.sample.group_bytes, row.sample.in_flight): row.sample
        for row in rows
        if row.policy == SYNC and row.backend != RAW
    }
    names = {name for name, _, _ in sync}
    alone = {name: sync[name, *ALONE].p50_us for name in names}
    together = {name: sync[name, *TOGETHER].bytes_per_s for name in names}
    close = [name for name in names if alone[name] <= CLOSE * min(alone.values())]
    best = max(close, key=lambda name: together[name])
    others = [
        f"{name} {alone[name]:.0f} us and {together[name] / 1e6:.0f} MB/s"
        for name in sorted(names - {best})
    ]
    reason = (
        f"{best} writes 4 KiB to disk in {alone[best]:.0f} us (p50, one group in flight) and "
        f"{together[best] / 1e6:.0f} MB/s in groups of 64 KiB, four in flight"
    )
    return Tuned(
        io_backend=best,
        flush_disk_type=SYNC,
        reason="; ".join([reason, *others]),
        async_flush=Choice(io_backend="mmap", reason=_async_reason(rows)),
    )


def _async_reason(rows: list[Row]) -> str:
    """The reason for mapped files, with the measured bandwidths."""
    rates = {
        row.backend: row.sample.bytes_per_s
        for row in rows
        if row.policy == ASYNC and row.sample.group_bytes == ASYNC_STEPS[-1]
    }
    measured = ", ".join(f"{name} {rate / 1e6:.0f} MB/s" for name, rate in sorted(rates.items()))
    return (
        "a killed process loses nothing of a mapped file; pool and uring lose acknowledged messages"
        " that are still in their buffers" + (f" ({measured})" if measured else "")
    )


def _report(
    folder: Path,
    disk: Disk,
    rows: list[Row],
    refusals: dict[str, str],
    chosen: Tuned,
    output: str,
) -> None:
    if output == "json":
        import msgspec

        document = {
            "folder": str(folder),
            "disk": asdict(disk),
            "measured": [
                {"backend": r.backend, "policy": r.policy, **asdict(r.sample)} for r in rows
            ],
            "refused": refusals,
            "recommendation": msgspec.to_builtins(chosen),
        }
        click.echo(msgspec.json.encode(document).decode())
        return
    show([_line(row) for row in rows], output, f"{folder} on {disk.file_system} ({disk.mount})")
    for name, refusal in refusals.items():
        click.echo(f"{name} was not measured: {refusal}")
    for policy in (SYNC, ASYNC):
        choice = chosen.choice(policy)
        if choice is not None:
            click.echo(f"flushDiskType={policy}: ioBackend={choice.io_backend}, {choice.reason}")
    click.echo(f"recommended: flushDiskType={chosen.flush_disk_type}")


def _line(row: Row) -> dict[str, object]:
    found = row.sample
    return {
        "backend": row.backend,
        "policy": row.policy.removesuffix("_FLUSH").lower(),
        "group": f"{found.group_bytes // KIB} KiB",
        "in flight": found.in_flight or "-",
        "p50 us": f"{found.p50_us:,.0f}",
        "p99 us": f"{found.p99_us:,.0f}",
        "groups/s": f"{found.bytes_per_s / found.group_bytes:,.0f}",
        "MB/s": f"{found.bytes_per_s / 1e6:,.0f}",
    }


def _draw(rows: list[Row], path: Path) -> None:
    """Latency against throughput, one line for each backend and policy."""
    if importlib.util.find_spec("matplotlib") is None:
        click.echo(f"no plot: {NO_MATPLOTLIB}", err=True)
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for kind in dict.fromkeys((row.backend, row.policy) for row in rows):
        samples = [row.sample for row in rows if (row.backend, row.policy) == kind]
        points = sorted((s.bytes_per_s / 1e6, s.p50_us) for s in samples)
        axes.plot(*zip(*points, strict=True), marker="o", label=" ".join(kind))
    axes.set(xscale="log", yscale="log", xlabel="MB/s", ylabel="p50 of a group, us")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"plot: {path}", err=True)
