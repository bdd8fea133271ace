"""``python -m grpcdoor``: calls of gRPC, ours beside RocketMQ 5.5's local proxy and beside a server
that only answers, in turns and in one run.

    PYTHONPATH=bench:tests python -m grpcdoor

Sends come from h2load (Debian: nghttp2-client); consumers are Python's grpc, so their rate is that
of the client, and only the server's CPU counts.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any, NamedTuple

import click
import grpc
from harness import servers as harness_servers
from rich.console import Console
from rich.table import Table
from sidebyside import process

from congreve.broker.grpc.calls import SERVICE
from congreve.broker.grpc.protos import Protos

from .servers import GROUP, TOPIC, Target, address, congreve, nothing, proxy

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
    count = max(int(rate * seconds), connections)
    stored, cpu = target.stored(), process.cpu_seconds(target.pid)
    rate, p50_us = h2load(target, body, connections, count)
    cpu = process.cpu_seconds(target.pid) - cpu
    if target.remoting is not None and target.stored() - stored != count:
        raise click.ClickException(f"{target.name} stored {target.stored() - stored} of {count}")
    return Turn(rate, cpu / count * 1e6, p50_us)


class Consumer:
    """A consumer that acknowledges each message by itself."""

    def __init__(self, channel: grpc.Channel, protos: Protos) -> None:
        self._protos = protos
        self._receive = channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=protos.ReceiveMessageRequest.SerializeToString,
            response_deserializer=protos.ReceiveMessageResponse.FromString,
        )
        self._ack = channel.unary_unary(
            f"/{SERVICE}/AckMessage",
            request_serializer=protos.AckMessageRequest.SerializeToString,
            response_deserializer=protos.AckMessageResponse.FromString,
        )

        self._commands: SimpleQueue[Any] = SimpleQueue()
        self._telemetry = channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=protos.TelemetryCommand.SerializeToString,
            response_deserializer=protos.TelemetryCommand.FromString,
        )(iter(self._commands.get, None), metadata=METADATA)

    def subscribe(self) -> None:
        """Send the settings, without which RocketMQ's proxy gives nothing."""
        command = self._protos.TelemetryCommand()
        settings = command.settings
        settings.client_type, settings.request_timeout.seconds = 3, 3
        settings.subscription.group.name = GROUP
        entry = settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.type, entry.expression.expression = TOPIC, 1, "*"
        self._commands.put(command)
        next(self._telemetry)

    def consume(self, until: float) -> Iterator[int]:
        """The number of messages that each receive brought, all of them acknowledged."""
        request = self._protos.ReceiveMessageRequest(batch_size=32)
        request.group.name, request.message_queue.topic.name = GROUP, TOPIC
        request.invisible_duration.seconds = 60
        request.long_polling_timeout.seconds = 5
        while time.monotonic() < until:
            answers = list(self._receive(request, metadata=METADATA, timeout=20))
            found = [each.message for each in answers if each.HasField("message")]
            waiting = [self._ack.future(self._acked(each), metadata=METADATA) for each in found]
            for each in waiting:
                if each.result().status.code != 20000:
                    raise click.ClickException(f"an acknowledgement failed: {each.result()}")
            yield len(found)

    def _acked(self, message: Any) -> Any:
        request = self._protos.AckMessageRequest()
        request.group.name, request.topic.name = GROUP, TOPIC
        system = message.system_properties
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return request


def consumed(target: Target, consumers: int, seconds: float) -> Turn:
    """Receives of 32 messages and an acknowledgement of each one, by this process."""
    protos = Protos()
    with ExitStack() as stack:
        channels = [
            stack.enter_context(grpc.insecure_channel(address(target))) for _ in range(consumers)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(consumers))
        members = [Consumer(channel, protos) for channel in channels]
        for each in members:
            each.subscribe()
        cpu, begun = process.cpu_seconds(target.pid), time.monotonic()
        until = begun + seconds
        count = sum(pool.map(lambda member: sum(member.consume(until)), members))
        cpu, taken = process.cpu_seconds(target.pid) - cpu, time.monotonic() - begun
        if not count:
            raise click.ClickException(f"{target.name}: the consumers received nothing")
    return Turn(count / taken, cpu / count * 1e6, float("nan"))


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
@click.option("--consumers", default=4, show_default=True)
@click.option("--java/--no-java", default=True, help="RocketMQ's proxy, too.")
def main(seconds: float, connections: tuple[int, ...], consumers: int, java: bool) -> None:
    """Rates, CPU and latencies; the last columns are ours divided by those of the row."""
    turns: dict[tuple[str, str], Turn] = {}
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
        for target in targets:
            target.create()
        cases = [f"send, {count} connections" for count in connections]
        for case, count in zip(cases, connections, strict=True):
            for target in targets:
                turns[case, target.name] = sends(target, body, count, seconds)
        cases.append(f"receive and ack, {consumers} consumers")
        for target in targets[:-1]:
            turns[cases[-1], target.name] = consumed(target, consumers, seconds)
    show(turns, [target.name for target in targets], cases)


if __name__ == "__main__":
    main()
