"""Medians, ratios and bounds: a table for people, JSON for programs, a plot for documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import matplotlib
import msgspec
from rich.table import Table

from . import cases
from .results import CaseResult

OURS, THEIRS = "congreve", "java"


class Medians:
    """The figures of every case, each the median of the rounds."""

    def __init__(self, results: Iterable[CaseResult]) -> None:
        self._of: dict[tuple[str, str], list[CaseResult]] = {}
        for result in results:
            self._of.setdefault((result.driver, result.workload), []).append(result)

    @property
    def drivers(self) -> set[str]:
        """The measured brokers."""
        return {driver for driver, _ in self._of}

    def get(
        self, driver: str, workload: str, figure: Callable[[CaseResult], float]
    ) -> float | None:
        """The figure, None when it was not measured."""
        found = self._of.get((driver, workload))
        return median(map(figure, found)) if found else None

    def quantiles(self, driver: str, workload: str) -> dict[str, float]:
        """The latencies of the last round; empty when they were not measured."""
        found = self._of.get((driver, workload))
        return found[-1].quantiles if found else {}


Figure = Callable[[Medians, str], float | None]


class Row(msgspec.Struct, frozen=True):
    """A row of the table: the compared figure, its unit and its bound.

    `least` and `most` bound the ratio of ours to theirs; `limit` bounds ours alone, and `floor`
    from below. With `floor` and `least` one of both suffices.
    """

    title: str
    figure: Figure
    unit: str
    least: float | None = None
    most: float | None = None
    limit: float | None = None
    floor: float | None = None

    def bound(self) -> str:
        """The bound as text."""
        if self.floor is not None:
            return f">= {self.floor:g}" + (f" or {self.least:g} x" if self.least else "")
        if self.least is not None:
            return f">= {self.least:g} x"
        if self.most is not None:
            return f"<= {self.most:.2g} x"
        return f"<= {self.limit:g}" if self.limit is not None else ""

    def met(self, ours: float | None, theirs: float | None) -> bool | None:
        """Whether the bound is met; None when there is no bound or no figure to compare with."""
        if ours is None:
            return None
        if self.limit is not None:
            return ours <= self.limit
        if self.floor is not None and (self.least is None or ours >= self.floor):
            return ours >= self.floor
        if not theirs or (self.least is None and self.most is None):
            return None
        if self.least is not None:
            return ours / theirs >= self.least
        return self.most is not None and ours / theirs <= self.most


def _rate(workload: str) -> Figure:
    return lambda medians, driver: medians.get(driver, workload, lambda r: r.rate)


def _latency(workload: str, level: str) -> Figure:
    return lambda medians, driver: medians.get(driver, workload, lambda r: r.latency[level])


def _cpu(workload: str) -> Figure:
    return lambda medians, driver: medians.get(driver, workload, lambda r: r.broker_cpu_us)


def _memory(workload: str) -> Figure:
    return lambda medians, driver: medians.get(
        driver, workload, lambda r: r.memory.anonymous if r.memory else 0.0
    )


def _resident(workload: str) -> Figure:
    return lambda medians, driver: medians.get(
        driver, workload, lambda r: r.memory.anonymous + r.memory.file if r.memory else 0.0
    )


def _messages(workload: str) -> Figure:
    return lambda medians, driver: medians.get(driver, workload, lambda r: r.messages)


def _seconds(workload: str) -> Figure:
    return lambda medians, driver: medians.get(driver, workload, lambda r: r.seconds)


def _fall(medians: Medians, driver: str) -> float | None:
    """By how many percent sends to many queues are slower than to one."""
    one = medians.get(driver, cases.ONE_QUEUE, lambda r: r.rate)
    many = medians.get(driver, cases.MANY_QUEUES, lambda r: r.rate)
    return None if one is None or many is None else 100.0 * (1.0 - many / one)


def _over_raw(medians: Medians, driver: str) -> float | None:
    """Milliseconds that the broker adds to the disk's time for 4 KiB."""
    raw = medians.get(driver, cases.RAW_ALONE, lambda r: r.latency["50"])
    whole = medians.get(driver, "sync-one-at-a-time", lambda r: r.latency["50"])
    return None if raw is None or whole is None else whole - raw


def _share_of_raw(medians: Medians, driver: str) -> float | None:
    """Percent of the disk's rate for writes of 64 KiB, four in flight; only bodies count."""
    raw = medians.get(driver, cases.RAW_TOGETHER, lambda r: r.rate * r.message_size)
    bodies = medians.get(driver, "sync-batch-32x1KiB", lambda r: r.rate * r.message_size)
    return None if raw is None or bodies is None else 100.0 * bodies / raw


def _beside_cold_read(medians: Medians, driver: str) -> float | None:
    """Ratio of the p99.9 of sends with a cold read to that without."""
    alone = medians.get(driver, cases.SEND_ALONE, lambda r: r.latency["999"])
    beside = medians.get(driver, cases.SEND_BESIDE, lambda r: r.latency["999"])
    return None if alone is None or beside is None else beside / alone


def _sync_beside_async(medians: Medians, driver: str) -> float | None:
    workload = "sync-4x64" if driver == OURS else cases.ASYNC_64
    return medians.get(driver, workload, lambda r: r.rate)


def _of_sink(workload: str) -> Figure:
    """The rate as a share of that of a server that only answers."""

    def share(medians: Medians, driver: str) -> float | None:
        rate = medians.get(driver, workload, lambda r: r.rate)
        most = medians.get(cases.SINK, workload, lambda r: r.rate)
        return None if rate is None or most is None else rate / most

    return share


def _over_alone(workload: str) -> Figure:
    """Ratio of the probe's p99 to that without other work."""

    def ratio(medians: Medians, driver: str) -> float | None:
        alone = medians.get(driver, cases.PROBE_ALONE, lambda r: r.latency["99"])
        beside = medians.get(driver, workload, lambda r: r.latency["99"])
        return None if alone is None or beside is None else beside / alone

    return ratio


def _sink_over_alone(workload: str) -> Figure:
    """The same ratio of a server that only answers, while our broker got the other work."""
    ratio = _over_alone(workload)
    return lambda medians, driver: ratio(medians, cases.SINK) if driver == OURS else None


def _connections(workload: str) -> list[Row]:
    title = workload.replace("send-", "").replace("x", " connections x ")
    aimed = workload in ("send-64x1", "send-500x1", "send-2000x1")
    return [
        Row(
            f"send 128 B, {title} in flight", _rate(workload), "msg/s", least=2.5 if aimed else None
        ),
        Row(
            "  of a server that only answers", _of_sink(workload), "x", floor=0.9 if aimed else None
        ),
        Row("  broker CPU a message", _cpu(workload), "us", most=0.2 if aimed else None),
        Row("  p99 of the same", _latency(workload, "99"), "ms"),
    ]


def _beside(workload: str, storm: str) -> list[Row]:
    return [
        Row(f"one at a time beside {storm}, p99", _latency(workload, "99"), "ms", most=1),
        Row("  over that alone", _over_alone(workload), "x", limit=2),
        Row("  the same of a server that only answers", _sink_over_alone(workload), "x"),
        Row(f"  {storm}, p50", _latency(cases.storm_of(workload), "50"), "ms"),
    ]


ROWS = [
    Row("send 128 B, ASYNC_FLUSH, 4 x 32 in flight", _rate("send-128B"), "msg/s", least=10),
    Row("  p99 of the same", _latency("send-128B", "99"), "ms", most=0.2),
    Row("  p50 of the same", _latency("send-128B", "50"), "ms"),
    Row("  broker CPU a message", _cpu("send-128B"), "us", most=0.1),
    Row("  the same with binary headers", _rate("send-128B-binary"), "msg/s"),
    Row("send 1 KiB, the same", _rate("send-1KiB"), "msg/s", least=8),
    Row("batch of 32 x 1 KiB, 4 x 8 in flight", _rate("batch-32x1KiB"), "msg/s", least=2.5),
    Row("one at a time, p50", _latency("send-one-at-a-time", "50"), "ms", most=0.5),
    Row("transactions, 64 in flight", _rate("transactions"), "msg/s", least=5),
    Row("  broker CPU a transaction", _cpu("transactions"), "us"),
    Row("pull 32 x 1 KiB, 8 connections, hot", _rate("pull-32x1KiB"), "msg/s", least=3),
    Row("  broker CPU a message", _cpu("pull-32x1KiB"), "us"),
    Row("pull 32 x 128 B, 8 connections, hot", _rate("pull-32x128B"), "msg/s"),
    Row("  the same through a SQL92 filter", _rate("pull-32x128B-sql"), "msg/s", least=3),
    Row("memory, idle", _memory("memory-idle"), "MiB", limit=100),
    Row("memory, after the messages", _memory("memory-after-messages"), "MiB", limit=300),
    Row("ready after kill -9", _seconds("ready-after-kill"), "s", most=1 / 3),
    Row("deliver due delayed messages, 128 B", _rate("delay-level-1"), "msg/s", least=10),
    Row("messages with times of their own, pending", _messages(cases.PENDING), ""),
    Row("  memory, mapped files too", _resident(cases.PENDING), "MiB", limit=200),
    Row("  memory without them", _memory(cases.PENDING), "MiB"),
    Row("  late by, light load, p50", _latency(cases.PUNCTUAL, "50"), "ms"),
    Row("  late by, light load, at most", _latency(cases.PUNCTUAL, "Max"), "ms", limit=100),
    Row("10,000 waiting pulls take", _memory(cases.WAITING), "MiB", limit=50),
    Row("  CPU while they wait", _seconds(cases.WAITING), "s/s", limit=0.02),
    Row("  a message wakes its queue's, p50", _latency(cases.WAITING, "50"), "ms"),
    Row("  p99 of the same", _latency(cases.WAITING, "99"), "ms", limit=1),
    Row("send to push listener, Java client, p50", _latency(cases.PUSHED, "50"), "ms"),
    Row("  p99 of the same", _latency(cases.PUSHED, "99"), "ms", most=1),
    Row("one queue", _rate(cases.ONE_QUEUE), "msg/s"),
    Row("many queues over many topics", _rate(cases.MANY_QUEUES), "msg/s"),
    Row("  falls from one to many by", _fall, "%", limit=30),
    Row("SYNC_FLUSH one at a time, p50", _latency("sync-one-at-a-time", "50"), "ms", most=0.65),
    Row("  over a raw O_DIRECT+DSYNC write", _over_raw, "ms", limit=0.06),
    Row("SYNC_FLUSH 4 x 8", _rate("sync-4x8"), "msg/s"),
    Row("SYNC_FLUSH 4 x 64", _rate("sync-4x64"), "msg/s", least=8),
    Row("  beside RocketMQ's ASYNC_FLUSH", _sync_beside_async, "msg/s", least=5),
    Row("SYNC_FLUSH, batch of 32 x 1 KiB, 4 x 8", _rate("sync-batch-32x1KiB"), "msg/s"),
    Row("  of the disk's raw bandwidth", _share_of_raw, "%", least=3, floor=60),
    Row("send 128 B beside a cold read, p99.9", _latency(cases.SEND_BESIDE, "999"), "ms"),
    Row("  over that without the reader", _beside_cold_read, "x", limit=3),
    Row("  the reader, 32 x 1 KiB from disk", _rate(cases.COLD_READ), "msg/s"),
    *(row for workload in cases.CONNECTIONS for row in _connections(workload)),
    Row("one at a time alone, p99", _latency(cases.PROBE_ALONE, "99"), "ms"),
    *(row for workload, storm in cases.STORMS.items() for row in _beside(workload, storm)),
    Row("2,000 topics created one after the other", _seconds(cases.CREATED), "s", most=0.5),
]


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f} {unit}"
    return f"{value:.3g} {unit}"


def table(medians: Medians) -> Table:
    """Both figures, their ratio and whether the bound is met."""
    found = Table(title="Congreve and Apache RocketMQ 4.9.4, medians of the rounds")
    found.add_column("work")
    for name in ("Congreve", "RocketMQ", "ratio", "bound"):
        found.add_column(name, justify="right")
    found.add_column("")
    for row in ROWS:
        ours, theirs = row.figure(medians, OURS), row.figure(medians, THEIRS)
        if ours is None and theirs is None:
            continue
        ratio = f"{ours / theirs:.2f}" if ours is not None and theirs else ""
        met = {True: "[green]met", False: "[red]not met", None: ""}[row.met(ours, theirs)]
        found.add_row(
            row.title, _text(ours, row.unit), _text(theirs, row.unit), ratio, row.bound(), met
        )
    return found


def summary(medians: Medians) -> list[dict[str, object]]:
    """The table for programs."""
    rows: list[dict[str, object]] = []
    for row in ROWS:
        ours, theirs = row.figure(medians, OURS), row.figure(medians, THEIRS)
        rows.append(
            {
                "work": row.title.strip(),
                "unit": row.unit,
                OURS: ours,
                THEIRS: theirs,
                "ratio": ours / theirs if ours is not None and theirs else None,
                "bound": row.bound(),
                "met": row.met(ours, theirs),
            }
        )
    return rows


def write_json(path: Path, document: dict[str, object]) -> None:
    """Write the summary and all results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def write_plot(path: Path, medians: Medians) -> None:
    """Plot rates as bars, and the latencies of the first case by percentile."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drivers = [driver for driver in (OURS, THEIRS) if driver in medians.drivers]
    bars = [row for row in ROWS if row.unit == "msg/s"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5))
    for number, driver in enumerate(drivers):
        places = [index + 0.4 * number for index in range(len(bars))]
        left.barh(places, [row.figure(medians, driver) or 0 for row in bars], 0.4, label=driver)
        steps = medians.quantiles(driver, "send-128B")
        known = [
            (1 / (1 - float(level) / 100), ms) for level, ms in steps.items() if level != "100.0000"
        ]
        right.plot([level for level, _ in known], [ms for _, ms in known], label=driver)
    left.set_yticks(range(len(bars)), [row.title.strip() for row in bars], fontsize=8)
    left.invert_yaxis()
    left.set_xscale("symlog", linthresh=1_000)
    left.set_xlabel("messages a second")
    right.set_xscale("log")
    right.set_yscale("symlog", linthresh=0.01)
    right.set_xticks([1, 10, 100, 1_000, 10_000], ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"])
    right.set_xlabel("percentile")
    right.set_ylabel("send 128 B, latency in ms")
    left.legend()
    right.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
