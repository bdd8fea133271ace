"""``python -m tenants``: the latency of a light tenant beside a heavy one, with and without quota.

    PYTHONPATH=bench:tests python -m tenants

The light tenant sends one message at a time to its topic; the heavy one sends to another topic as
fast as it can. Rounds in turns, and the medians of the light tenant's latencies.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import click
from sidebyside.brokers import running

from congreve.broker.quota_limits import Kind, Limits
from congreve.broker.quotas.quota_file import Quota, QuotaFile
from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load

UNREACHED = 10**12
"""A quota that is charged and never used up."""


def latencies(light: Load, heavy: Load | None, quota: int) -> tuple[list[float], float, float]:
    """The light tenant's p50 and p99 in ms and its rate, and the heavy one's accepted rate."""
    with tempfile.TemporaryDirectory() as folder:
        if quota:
            limits = Limits(send_messages=quota)
            QuotaFile(folder).set(Quota(Kind.TOPIC, f"{heavy.topic if heavy else 'none'}", limits))
        own = {"aclFolder": folder}
        with running("congreve", Path(folder) / "broker", flush="ASYNC_FLUSH", own=own) as broker:
            for load in (light, *([] if heavy is None else [heavy])):
                broker.create_topics(load)
            with ThreadPoolExecutor() as threads:
                beside = threads.submit(generator.run, broker.port, heavy) if heavy else None
                found = generator.run(broker.port, light)
                accepted = beside.result().rate if beside else 0.0
    return found.percentiles_ms(50, 99), found.rate, accepted


@click.command()
@click.option("--quota", default=10_000, show_default=True, help="Messages a second.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=4.0, show_default=True)
def main(quota: int, rounds: int, seconds: float) -> None:
    """The light tenant's latency alone, beside a heavy tenant with a quota, and without."""
    light = Load(topic="light", connections=1, inflight=1, duration=seconds)
    heavy = Load(topic="heavy", connections=4, inflight=32, warmup=1.0, duration=seconds + 2)
    cases = {
        "alone": (None, 0),
        "beside a quota": (heavy, quota),
        "beside no quota": (heavy, 0),
        "beside a quota that is never reached": (heavy, UNREACHED),
    }
    found: dict[str, list[tuple[list[float], float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (beside, limit) in cases.items():
            found[name].append(latencies(light, beside, limit))
    for name, results in found.items():
        p50, p99 = (median(each[0][i] for each in results) for i in range(2))
        rate = median(each[1] for each in results)
        accepted = median(each[2] for each in results)
        click.echo(
            f"{name:37} p50 {p50:7.3f} ms, p99 {p99:7.3f} ms, {rate:7,.0f} sends/s; "
            f"the heavy tenant {accepted:9,.0f} messages/s"
        )


if __name__ == "__main__":
    main()
