"""``python -m replicas.lag``: how far our slave is behind while its master gets messages of 1 KiB.

    PYTHONPATH=bench:tests python -m replicas.lag

It reads `congreve_replication_lag_ms` of an ASYNC_MASTER every 20 ms. The first load has the full
rate, the others less; each line says which part of it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

from harness import servers

from replicas.pair import Pair, running_pair

LOADS = ((4, 32), (4, 4), (4, 2), (4, 1))
"""Connections and requests in flight on each."""
SIZE = 1024
PERIOD_S = 0.02
LAG = re.compile(r"^congreve_replication_lag_ms\{.*\} ([0-9.e+]+)$", re.MULTILINE)


def lags_while(stopped: threading.Event, metrics: int, lags: list[float]) -> None:
    """Read the lag until `stopped`."""
    while not stopped.wait(PERIOD_S):
        with urlopen(f"http://127.0.0.1:{metrics}/metrics") as answer:
            found = LAG.search(answer.read().decode())
        assert found is not None, "the master has no slave"
        lags.append(float(found[1]))


def measure(
    pair: Pair, metrics: int, load: tuple[int, int], seconds: float
) -> tuple[float, list[float]]:
    """Send; returns the messages a second, and the lags of the measured seconds."""
    stopped = threading.Event()
    lags: list[float] = []
    reader = threading.Thread(target=lags_while, args=(stopped, metrics, lags))
    reader.start()
    begun = time.monotonic()
    found = pair.send(*load, SIZE, seconds)
    stopped.set()
    reader.join()
    measured = int(len(lags) * seconds / (time.monotonic() - begun))
    return found["messages_per_second"], lags[-measured:]


def main() -> None:
    """Print a line for each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    metrics = servers.free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_pair("congreve", Path(folder), {}, metricsPort=str(metrics)) as pair,
    ):
        full = 0.0
        for load in LOADS:
            rate, lags = measure(pair, metrics, load, options.seconds)
            full = full or rate
            cuts = statistics.quantiles(lags, n=100)
            print(
                f"{load[0]} x {load[1]}: {rate:,.0f}/s, {rate / full:.2f} of the full rate; "
                f"lag in ms: median {cuts[49]:.0f}, p90 {cuts[89]:.0f}, p99 {cuts[98]:.0f}, "
                f"longest {max(lags):.0f}, {len(lags)} readings",
                flush=True,
            )


if __name__ == "__main__":
    main()
