"""``python -m grpcdoor``: calls of gRPC, ours beside RocketMQ 5.5's local proxy and beside a server
that only answers, in turns and in one run.

    PYTHONPATH=bench:tests python -m grpcdoor
    PYTHONPATH=bench:tests python -m grpcdoor --no-sends --messages 100000 --rounds 1

Sends come from h2load (Debian: nghttp2-client), receives and acknowledgements from consumers.c.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
from harness import servers as harness_servers
from rich.console import Console
from rich.table import Table
from sidebyside import process

from congreve.broker.grpc.protocol.calls import SERVICE
from congreve.broker.grpc.protos import Protos

from .consumers import Consumers
from .servers import TOPIC, Target, address, congreve, nothing, proxy

SIZE = 128
FIRST = 1_000
"""Sends that show how many a case needs."""
METADATA = (
    ("x-mq-client-id", "host@1@0@bench"),
    ("x-mq-language", "JAVA"),
    ("x-mq-client-version", "5.0.8"),
    ("x-mq-protocol", "v2"),
)
_RATE = re.compile(r"finished in .*?, ([\d.]+) req/s")
_DONE = re.compile(r"(\d+) succeeded")


class Turn(NamedTuple):
    """Messages a second, the server's CPU a message and the median latency, both in us."""

    rate: float
    cpu_us: float
    p50_us: float


def send_request(protos: Protos) -> bytes:
    """A SendMessageRequest as one of the Java client, with the five bytes in front."""
    message = protos.Message(body=b"x" * SIZE)
    message.topic.name = TOPIC
    system = message.system_properties
    system.message_id, system.message_type, system.body_encoding = "01" * 17, 1, 1
    system.born_host, system.tag = "host", "tag"
    system.born_timestamp.FromMilliseconds(1_700_000_000_123)
    data: bytes = protos.SendMessageRequest(messages=[message]).SerializeToString()
    return b"\0" + len(data).to_bytes(4, "big") + data


def h2load(target: Target, body: Path, connections: int, count: int) -> tuple[float, float]:
    """The rate of `count` sends, and the median latency in us."""
    log = body.with_suffix(".log")
    log.unlink(missing_ok=True)
    command = ["h2load", "-n", str(count), "-c", str(connections), "-m", "1", "-d", str(body)]
    command += [
        "--log-file",
        str(log),
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
    ]
    for name, value in METADATA:
        command += ["-H", f"{name}: {value}"]
    command += [f"http://{address(target)}/{SERVICE}/SendMessage"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done, rate = _DONE.search(shown), _RATE.search(shown)
    if done is None or rate is None or int(done[1]) != count:
        raise click.ClickException(f"{target.name}: {shown[-800:]}")
    times = [int(line.split("\t")[2]) for line in log.read_text().splitlines()]
    return float(rate[1]), median(times)


def sends(target: Target, body: Path, connections: int, seconds: float) -> Turn:
    """Unary sends, one at a time on each connection."""
    rate, _ = h2load(target, body, connections, max(FIRST, connections))
    number = max(int(rate * seconds), connections)
    stored, cpu = target.stored(), process.cpu_seconds(target.pid)
    rate, p50_us = h2load(target, body, connections, number)
    cpu = process.cpu_seconds(target.pid) - cpu
    if target.remoting is not None and target.stored() - stored != number:
        raise click.ClickException(f"{target.name} stored {target.stored() - stored} of {number}")
    return Turn(rate, cpu / number * 1e6, p50_us)


def consumed(
    target: Target, consumers: Consumers, group: str, connections: int, seconds: float
) -> Turn:
    """Receives of 32 messages by a new group, and an acknowledgement of each one."""
    cpu = 0.0

    def begins() -> None:
        nonlocal cpu
        cpu = process.cpu_seconds(target.pid)

    target.create_group(group)
    done = consumers.run(target, group, connections, seconds, begins)
    cpu = process.cpu_seconds(target.pid) - cpu
    return Turn(done.messages / done.seconds, cpu / done.messages * 1e6, float("nan"))


def middle(turns: list[Turn]) -> Turn:
    """The median of each figure."""
    return Turn(*map(median, zip(*turns, strict=True)))


def show(turns: dict[tuple[str, str], Turn], names: list[str], cases: list[str]) -> None:
    """The table of all turns, and our ratios."""
    table = Table("case", "server", "messages/s", "CPU us", "p50 us", "rate", "CPU", "p50")
    for case in cases:
        ours = turns[case, names[0]]
        for name in names:
            turn = turns.get((case, name))
            if turn is None:
                continue
            ratios = (ours.rate / turn.rate, ours.cpu_us / turn.cpu_us, ours.p50_us / turn.p50_us)
            table.add_row(
                *(case, name, f"{turn.rate:,.0f}", f"{turn.cpu_us:.1f}", f"{turn.p50_us:,.0f}"),
                *(f"{each:.2f}" for each in ratios),
            )
    Console(width=110).print(table)


@click.command()
@click.option("--seconds", default=3.0, show_default=True, help="Of each case.")
@click.option("--connections", default=(1, 64, 500), multiple=True, show_default=True)
@click.option("--consumers", default=(4, 64), multiple=True, show_default=True)
@click.option("--messages", default=1_000_000, show_default=True, help="For the consumers.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--jit", default=10.0, show_default=True, help="Seconds of consuming before all.")
@click.option("--sends/--no-sends", "sending", default=True, help="Sends, too.")
@click.option("--java/--no-java", default=True, help="RocketMQ's proxy, too.")
def main(
    seconds: float,
    connections: tuple[int, ...],
    consumers: tuple[int, ...],
    messages: int,
    rounds: int,
    jit: float,
    sending: bool,
    java: bool,
) -> None:
    """Medians of the rounds; the last columns are our figures divided by those of the row."""
    turns: dict[tuple[str, str], list[Turn]] = {}
    groups = count()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        namesrv = harness_servers.namesrv("congreve", folder / "namesrv")
        namesrv.start()
        stack.callback(namesrv.kill)
        targets = [stack.enter_context(congreve(folder / "congreve", namesrv.address))]
        if java:
            targets.append(stack.enter_context(proxy(folder / "proxy", namesrv.address)))
        targets.append(stack.enter_context(nothing(folder / "nothing")))
        body = folder / "request"
        body.write_bytes(send_request(Protos()))
        program = Consumers(folder / "consumers", messages)
        for target in targets:
            target.create_topic(TOPIC)
        for target in targets[:-1]:
            program.fill(target)
            consumed(target, program, "warm", max(consumers), jit)
        sends_of = {f"send, {each} connections": each for each in connections if sending}
        consumers_of = {f"receive and ack, {each} consumers": each for each in consumers}
        for number in range(rounds):
            order = targets[:: -1 if number % 2 else 1]
            for case, each in sends_of.items():
                for target in order:
                    turn = sends(target, body, each, seconds)
                    turns.setdefault((case, target.name), []).append(turn)
            for case, each in consumers_of.items():
                for target in order:
                    if target.remoting is not None:
                        turn = consumed(target, program, f"group{next(groups)}", each, seconds)
                        turns.setdefault((case, target.name), []).append(turn)
    found = {key: middle(each) for key, each in turns.items()}
    show(found, [target.name for target in targets], [*sends_of, *consumers_of])


if __name__ == "__main__":
    main()
