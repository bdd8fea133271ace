"""The benchmark programs of RocketMQ's own Java client: a generator that we did not write."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sidebyside import process
from sidebyside.brokers import Running
from sidebyside.results import CaseResult

from congreve.console.loadgen.generator import Load

from .brokers import BUILD

SEND = "java-client-send"
CONSUME = "java-client-consume"
THREADS = 64
SIZE = 128
REPORTS = 2
"""The programs report each ten seconds; the JIT is warm in the second report."""
REPORT_LIMIT_S = 60.0
POM = Path(__file__).with_name("pom.xml")
PACKAGE = "org.apache.rocketmq.example.benchmark"
SENT = re.compile(
    r"Send TPS: (\d+) \| Max RT\(ms\): (\d+) \| Average RT\(ms\): +([\d.]+)"
    r" \| Send Failed: (\d+) \| Response Failed: (\d+)"
)
CONSUMED = re.compile(r"Consume TPS: (\d+) .* Consume Fail: (\d+)")


class ProgramError(RuntimeError):
    """A program ended, or printed no report in time."""


def measured(broker: Running, number: int) -> list[CaseResult]:
    """Threads that send one message at a time, then the same with a push consumer beside."""
    load = Load(topic="java-client", size=SIZE)
    broker.create_topics(load)
    log = broker.server.folder
    here = {"round": number, "driver": broker.kind, "message_size": SIZE}
    common = ("-t", load.topic, "-n", broker.server.namesrv)
    before = process.cpu_seconds(broker.pid)
    with _program("Producer", *common, "-w", str(THREADS), log=log / "producer.log") as sends:
        rate, longest, mean, failed, refused = _last(sends, SENT)
        spent = process.cpu_seconds(broker.pid) - before
        stored = broker.stored(load)
        with _program("Consumer", *common, "-g", "readers", log=log / "consumer.log") as consumes:
            consumed, not_consumed = _last(consumes, CONSUMED)
    return [
        CaseResult(
            **{"workload": SEND, **here},
            publish_rate=rate,
            latency={"mean": mean, "Max": longest},
            errors=int(failed + refused),
            broker_cpu_us=spent * 1e6 / max(1, stored),
            messages=stored,
        ),
        CaseResult(
            **{"workload": CONSUME, **here}, consume_rate=consumed, errors=int(not_consumed)
        ),
    ]


@cache
def _jars() -> str:
    """The programs' jars; Maven fetches them once."""
    target = BUILD / "java-client"
    if not target.is_dir():
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={target}"], check=True)
    return f"{target}/*"


@contextmanager
def _program(name: str, *options: str, log: Path) -> Iterator[Path]:
    java = ["java", "-Xms1g", "-Xmx1g", f"-Duser.home={log.parent}", "-cp", _jars()]
    command = [*java, f"{PACKAGE}.{name}", *options]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as run:
        try:
            yield log
        finally:
            run.kill()


def _last(log: Path, form: re.Pattern[str]) -> tuple[float, ...]:
    until = time.monotonic() + REPORT_LIMIT_S
    while len(found := form.findall(log.read_text(errors="replace"))) < REPORTS:
        if time.monotonic() > until:
            raise ProgramError(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    return tuple(map(float, found[-1]))
