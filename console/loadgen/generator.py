"""Runs the compiled load generator in a process of its own, and reads its result."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from congreve.base.errors import CongreveError

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

COMMAND = (sys.executable, "-m", "congreve.console.loadgen")
"""The generator's process; its options follow."""
SECRET_KEY = "CONGREVE_SECRET_KEY"
"""The environment variable with the secret: others may read the command line."""
LONGEST_NS = 60_000_000_000
SIGNIFICANT_DIGITS = 3
DRAIN_S = 60.0
COUNT_LIMIT_S = 600.0
MILLISECOND_NS = 1e6
_SUMS = ("requests", "messages", "bytes", "all_requests", "all_messages", "broken", "seconds")
OPTIONAL = ("sql", "access_key")
DEFAULTS = (
    *((name, 0) for name in ("count", "delay_level", "deliver_within", "rate")),
    *((name, None) for name in OPTIONAL),
)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The generator's options; times in seconds, sizes in bytes.

    `rate` is that of an open loop, in requests a second; 0 is a closed loop.
    """

    mode: str = "send"
    topic: str = "loadgen"
    topics: int = 1
    queues: int = 4
    connections: int = 4
    inflight: int = 32
    size: int = 128
    batch: int = 1
    binary: bool = False
    tls: bool = False
    delay_level: int = 0
    deliver_within: int = 0
    transaction: bool = False
    sql: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    warmup: float = 2.0
    duration: float = 5.0
    count: int = 0
    rate: float = 0

    def options(self) -> Iterator[str]:
        """The command line without the secret; omitted options have the program's defaults."""
        for name, value in msgspec.structs.asdict(self).items():
            if name == "secret_key":
                continue
            option = f"--{name.replace('_', '-')}"
            if value is True:
                yield option
            elif value is not False and (name, value) not in DEFAULTS:
                yield f"{option}={value}"


class LoadResult(msgspec.Struct, rename="camel", kw_only=True):
    """The generator's counts.

    `requests`, `messages` and `bytes` (message bodies; for pulls whole records) were answered with
    success during the measurement; `all_messages` were answered with success at any time. `latency`
    holds (ns, requests): from the send on in a closed loop, from the time when the request was due
    in an open one.
    """

    requests: int
    messages: int
    bytes: int
    all_requests: int
    all_messages: int
    empty: int
    broken: int
    errors: dict[str, int]
    seconds: float
    cpu_seconds: float
    latency: list[tuple[int, int]]

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def failures(self) -> int:
        """Answers with an error code, and requests without an answer."""
        return self.broken + sum(self.errors.values())

    def histogram(self) -> HdrHistogram:
        """Latencies of requests in ns. Raises ImportError without the package hdrhistogram."""
        from hdrh.histogram import HdrHistogram

        found = HdrHistogram(1, LONGEST_NS, SIGNIFICANT_DIGITS)
        for value, count in self.latency:
            found.record_value(max(1, min(value, LONGEST_NS)), count)
        return found

    def write_histogram(self, path: Path) -> None:
        """Write the percentiles in ms as HdrHistogram does. Raises ImportError as histogram()."""
        with path.open("wb") as file:
            self.histogram().output_percentile_distribution(file, MILLISECOND_NS)

    def percentiles_ms(self, *wanted: float) -> list[float]:
        """Latencies of requests at these percentiles, in milliseconds; 0 without requests."""
        return [self._latency_at(percentile) / MILLISECOND_NS for percentile in wanted]

    def _latency_at(self, percentile: float) -> int:
        total = sum(count for _, count in self.latency)
        rank = max(1, math.ceil(total * percentile / 100))
        passed = 0
        for value, count in self.latency:
            passed += count
            if passed >= rank:
                return value
        return 0


class GeneratorError(CongreveError):
    """The generator failed; the text is its output."""


def run(port: int, load: Load, *, host: str = "127.0.0.1") -> LoadResult:
    """Run the load against a server; `host` is an IPv4 address.

    Raises GeneratorError when the connection fails, or the server answers too late.
    """
    command = [*COMMAND, f"--host={host}", f"--port={port}", *load.options()]
    limit = COUNT_LIMIT_S if load.count else load.warmup + load.duration + DRAIN_S
    secret = {} if load.secret_key is None else {SECRET_KEY: load.secret_key}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            env={**os.environ, **secret},
        )
    except subprocess.TimeoutExpired as error:
        raise GeneratorError(f"{host}:{port} did not answer all requests in {limit:g} s") from error
    if done.returncode != 0:
        reason = done.stderr.strip() or f"the load generator ended with code {done.returncode}"
        raise GeneratorError(reason)
    return msgspec.json.decode(done.stdout, type=LoadResult)


def together(results: list[LoadResult]) -> LoadResult:
    """Merge runs of the same load into one."""
    whole = results[0]
    for other in results[1:]:
        latency = Counter(dict(whole.latency)) + Counter(dict(other.latency))
        sums = {name: getattr(whole, name) + getattr(other, name) for name in _SUMS}
        errors = Counter(whole.errors) + Counter(other.errors)
        whole = msgspec.structs.replace(
            whole, latency=sorted(latency.items()), errors=dict(errors), **sums
        )
    return whole


@contextmanager
def sink(size: int = 128) -> Iterator[tuple[int, int]]:
    """A server that only answers; yields its port and process id."""
    command = [*COMMAND, "--mode=sink", "--port=0", f"--size={size}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()
