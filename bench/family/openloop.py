"""Two brokers in turns in an open loop, at shares of the other one's highest rate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from sidebyside import cases, process
from sidebyside.cases import Size
from sidebyside.results import quantiles

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

from . import brokers

SHARES = (25, 50, 75, 90)
OPEN = Load(connections=64, inflight=64)
"""A slot of `inflight` is free again when its answer is there: enough for a stall of a second."""


class OpenResult(msgspec.Struct, rename="camel", kw_only=True):
    """Sends of one broker at `share` percent of the other one's highest rate.

    Latencies count from when a request was due, in ms; `late` requests had no answer within ten
    seconds after the end.
    """

    rival: str
    broker: str
    share: int
    round: int
    rate: float
    p50: float
    p99: float
    p999: float
    p9999: float
    longest: float
    late: int
    broker_cpu_us: float
    quantiles: dict[str, float]


def pair(
    rival: str,
    highest: float,
    size: Size,
    number: int,
    data: Path,
    histograms: Path,
    tell: Callable[[str], None],
) -> list[OpenResult]:
    """Our broker and the rival, each at every share of `highest` messages a second.

    The histogram of each run is a file in `histograms`.
    """
    histograms.mkdir(parents=True, exist_ok=True)
    found = []
    for kind in ("congreve", rival):
        with brokers.running(kind, data / kind, "ASYNC_FLUSH") as broker:
            heat = msgspec.structs.replace(OPEN, topic="heat", warmup=0, duration=size.jit)
            broker.create_topics(heat)
            generator.run(broker.port, heat)
            for share in SHARES:
                load = cases.timed(OPEN, size, f"open-{share}")
                load = msgspec.structs.replace(load, rate=highest * share / 100)
                broker.create_topics(load)
                before = process.cpu_seconds(broker.pid)
                result = generator.run(broker.port, load)
                spent = process.cpu_seconds(broker.pid) - before
                p50, p99, p999, p9999, longest = result.percentiles_ms(50, 99, 99.9, 99.99, 100)
                found.append(
                    OpenResult(
                        **{"rival": rival, "broker": kind, "share": share, "round": number},
                        **{"rate": load.rate, "p50": p50, "p99": p99, "p999": p999},
                        **{"p9999": p9999, "longest": longest},
                        late=result.failures,
                        broker_cpu_us=spent * 1e6 / max(1, result.all_messages),
                        quantiles=quantiles(result),
                    )
                )
                name = f"{share}-percent-of-{rival}-{kind}-{number}.hgrm"
                result.write_histogram(histograms / name)
                tell(
                    f"round {number} {kind:8} {share} % of {rival}: {load.rate:,.0f}/s"
                    f"  p50 {p50:.3f} p99 {p99:.3f} p99.9 {p999:.3f} p99.99 {p9999:.3f}"
                    f" max {longest:.1f} ms"
                )
    return found


def draw(results: list[OpenResult], path: Path) -> None:
    """Latency by percentile: a row for each share, a column for each rival."""
    from matplotlib.figure import Figure

    rivals = list(dict.fromkeys(result.rival for result in results))
    figure = Figure(figsize=(4.5 * len(rivals), 9), layout="constrained")
    grid = figure.subplots(len(SHARES), len(rivals), sharex=True, sharey=True, squeeze=False)
    for row, share in enumerate(SHARES):
        for column, rival in enumerate(rivals):
            axes = grid[row][column]
            for result in results:
                if (result.rival, result.share) != (rival, share):
                    continue
                own = result.broker == "congreve"
                steps = [
                    (1 / (1 - float(level) / 100), ms)
                    for level, ms in result.quantiles.items()
                    if level != "100.0000"
                ]
                axes.plot(
                    *zip(*steps, strict=True),
                    color="#2f6f9f" if own else "#c46b2d",
                    label=brokers.TITLES[result.broker] if result.round == 1 else None,
                )
            axes.set(xscale="log", yscale="log")
            axes.set_title(f"{share} % of {brokers.TITLES[rival]}", fontsize=9)
            axes.set_xticks([2, 100, 1_000, 10_000], ["50 %", "99 %", "99.9 %", "99.99 %"])
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
    figure.supylabel("latency from when a send was due, ms")
    figure.savefig(path, dpi=110)
