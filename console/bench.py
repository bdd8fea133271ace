"""``congreve bench``: measures sends or pulls of any broker of RocketMQ's protocol."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from pathlib import Path
from typing import Any

import click

from congreve.base.errors import CongreveError
from congreve.console.connection import cluster_options, connection
from congreve.console.loadgen.generator import (
    MILLISECOND_NS,
    Load,
    LoadResult,
    run,
)
from congreve.console.option_types import FiniteRange
from congreve.console.report import output_option, show
from congreve.console.tune.picture import FORMATS

SECONDS_MAX = 86_400
RATE_MAX = 1e8
SIZE_MAX = 4 << 20
"""RocketMQ's default limit of a message and of a batch."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)


class BenchError(CongreveError):
    """The requested measurement cannot be made."""


@click.command(help="Measure a broker with many sends or pulls: rate and latencies.")
@cluster_options
@click.option("--broker", help="The broker's name, where the cluster has several masters.")
@click.option("-t", "--topic", default="bench", show_default=True, help="It is created if missing.")
@click.option("--mode", type=click.Choice(["send", "pull"]), default="send", show_default=True)
@click.option("--connections", type=click.IntRange(1, 10_000), default=4, show_default=True)
@click.option(
    "--inflight",
    type=click.IntRange(1, 65_536),
    default=32,
    show_default=True,
    help="Requests in flight on each connection; with --rate, the most.",
)
@click.option(
    "--rate",
    type=FiniteRange(0.01, RATE_MAX),
    help="Open loop: requests a second, due at fixed times, from which latency counts.",
)
@click.option("--size", type=click.IntRange(1, SIZE_MAX), default=128, show_default=True)
@click.option(
    "--batch", type=click.IntRange(1, 10_000), help="Messages of a send (1), or of a pull (32)."
)
@click.option("--queues", type=click.IntRange(1, 1024), default=4, show_default=True)
@click.option("--binary", is_flag=True, help="Binary headers instead of JSON.")
@click.option(
    "--warmup",
    type=FiniteRange(0, SECONDS_MAX),
    default=2.0,
    show_default=True,
    help="Seconds that are not measured.",
)
@click.option(
    "--seconds",
    type=FiniteRange(0.001, SECONDS_MAX),
    default=5.0,
    show_default=True,
    help="Seconds that are measured.",
)
@click.option("--hdr", type=click.Path(path_type=Path), help="File for HdrHistogram's percentiles.")
@click.option("--png", type=click.Path(path_type=Path), help="File for the picture of latencies.")
@output_option
def bench(
    namesrv: str,
    broker: str | None,
    topic: str,
    mode: str,
    connections: int,
    inflight: int,
    rate: float | None,
    size: int,
    batch: int | None,
    queues: int,
    binary: bool,
    warmup: float,
    seconds: float,
    hdr: Path | None,
    png: Path | None,
    output: str,
) -> None:
    """Run a closed or an open loop of requests against one broker, and print what it measured.

    The messages stay in the topic. Pulls read what earlier sends have left there.
    """
    _check_libraries(hdr, png)
    batch = batch or (1 if mode == "send" else 32)
    if mode == "send" and size * batch > SIZE_MAX:
        raise click.UsageError(
            f"--size {size} times --batch {batch} is {size * batch} bytes: use {SIZE_MAX} at most"
        )
    client = connection()
    account = client["credentials"]
    host, port = asyncio.run(_find(namesrv, broker, topic, queues, client))
    load = Load(
        mode=mode,
        topic=topic,
        queues=queues,
        connections=connections,
        inflight=inflight,
        size=size,
        batch=batch,
        binary=binary,
        tls=client["ssl"] is not None,
        warmup=warmup,
        duration=seconds,
        rate=rate or 0,
        access_key=None if account is None else account.access_key,
        secret_key=None if account is None else account.secret_key,
    )
    result = run(port, load, host=host)
    loop = "closed loop" if rate is None else f"open loop, {rate:,g} requests/s"
    if output == "json":
        show([_figures(result)], output)
    else:
        show([_line(result)], output, f"{mode} {topic} at {host}:{port}, {loop}")
    if hdr is not None:
        result.write_histogram(hdr)
    if png is not None:
        _draw(result, f"{mode}, {loop}, {connections} x {inflight}, {size} B", png)
    if result.failures:
        raise BenchError(f"{result.failures} requests failed; by response code: {result.errors}")


def _check_libraries(hdr: Path | None, png: Path | None) -> None:
    for path, module in ((hdr, "hdrh"), (png, "matplotlib")):
        if path is not None and importlib.util.find_spec(module) is None:
            raise BenchError(f"{path} cannot be written: install the extra congreve[bench]")
        if module == "matplotlib" and path is not None and path.suffix.lower() not in FORMATS:
            raise BenchError(f"{path} cannot be drawn: its name must end with .png, .svg or .pdf")
        if path is not None and not path.absolute().parent.is_dir():
            raise BenchError(f"{path} cannot be written: the folder {path.parent} does not exist")


async def _find(
    namesrv: str, broker: str | None, topic: str, queues: int, client: dict[str, Any]
) -> tuple[str, int]:
    """The address of the broker, on which the topic exists afterwards."""
    from congreve.client.admin import AdminClient

    async with AdminClient(namesrv, **client) as admin:
        masters = await admin.brokers.masters()
        if broker is None and len(masters) != 1:
            raise BenchError(f"name one of the brokers with --broker: {', '.join(sorted(masters))}")
        address = masters[broker or next(iter(masters))] if broker in (None, *masters) else None
        if address is None:
            raise BenchError(f"there is no broker {broker}: the masters are {', '.join(masters)}")
        if topic not in await admin.topics():
            for cluster in (await admin.cluster_info()).cluster_addr_table:
                await admin.create_topic(topic, queues=queues, cluster=cluster)
    host, _, port = address.rpartition(":")
    return socket.gethostbyname(host.strip("[]")), int(port)


def _figures(result: LoadResult) -> dict[str, float]:
    levels = zip(PERCENTILES, result.percentiles_ms(*PERCENTILES), strict=True)
    return {
        "messages_per_second": result.rate,
        "bytes_per_second": result.bytes / result.seconds,
        "failed": result.failures,
        **{f"p{percentile:g}_ms".replace(".", "_"): at_most for percentile, at_most in levels},
    }


def _line(result: LoadResult) -> dict[str, object]:
    p50, p99, p999, longest = result.percentiles_ms(50, 99, 99.9, 100)
    return {
        "messages/s": f"{result.rate:,.0f}",
        "MB/s": f"{result.bytes / result.seconds / 1e6:,.1f}",
        "p50 ms": f"{p50:.3f}",
        "p99 ms": f"{p99:.3f}",
        "p99.9 ms": f"{p999:.3f}",
        "max ms": f"{longest:.3f}",
        "failed": result.failures,
    }


def _draw(result: LoadResult, title: str, path: Path) -> None:
    """Latency against percentile, on the scale of HdrHistogram's plots."""
    from matplotlib.figure import Figure

    total = sum(count for _, count in result.latency)
    passed, shares, latencies = 0, [], []
    for value, count in result.latency:
        passed += count
        if passed < total:
            shares.append(1 / (1 - passed / total))
            latencies.append(value / MILLISECOND_NS)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(shares, latencies)
    ticks = [level for level in (1, 2, 10, 100, 1_000, 10_000, 100_000) if level <= max(total, 1)]
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="percentile",
        ylabel="latency, ms",
        title=f"{title}: {result.rate:,.0f} messages/s",
    )
    axes.set_xticks(ticks, [f"{100 * (1 - 1 / tick):g}%" for tick in ticks])
    axes.grid(which="both", alpha=0.3)
    figure.savefig(path, dpi=120)
    click.echo(f"picture: {path}", err=True)
