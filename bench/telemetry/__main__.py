"""``python -m telemetry``: what idle gRPC clients with an open Telemetry cost in memory.

    PYTHONPATH=bench:tests python -m telemetry --clients 18000

Each client has a connection, on which it has sent its settings and got them back. Those beyond
28,000 need further addresses: client n connects to 127.0.0.(1 + n / 28,000).
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import linear_regression

import click
from harness.servers import free_port
from sidebyside.brokers import running
from sidebyside.process import memory

from congreve.broker.grpc.protocol.calls import SERVICE
from congreve.broker.grpc.protos import Protos

STEPS = 8
OF_ADDRESS = 28_000
SPARE = 200
"""Descriptors for what is no client."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_HEADERS = ACK = 4
END = b"grpc-status"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + stream.to_bytes(4) + payload


def literal(name: str, value: str) -> bytes:
    """A header that is not compressed."""
    return b"".join((b"\0", *(bytes((len(text),)) + text.encode() for text in (name, value))))


def hello(number: int, protos: Protos) -> bytes:
    """What a client sends: its settings on a Telemetry that stays open."""
    settings = protos.Settings(client_type=1)
    settings.publishing.topics.add(name="telemetry")
    message = protos.TelemetryCommand(settings=settings).SerializeToString()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{SERVICE}/Telemetry",
        ":authority": "127.0.0.1",
        "content-type": "application/grpc",
        "te": "trailers",
        "x-mq-client-id": f"bench@{number}@0@abc",
        "x-mq-language": "JAVA",
    }
    block = b"".join(literal(*each) for each in headers.items())
    data = b"\0" + len(message).to_bytes(4) + message
    return (
        PREFACE
        + frame(SETTINGS, 0, 0, b"")
        + frame(SETTINGS, ACK, 0, b"")
        + frame(HEADERS, END_HEADERS, 1, block)
        + frame(DATA, 0, 1, data)
    )


def read_answer(client: socket.socket) -> None:
    """Read up to the settings that come back. Raises RuntimeError if the call ends."""
    read = b""
    while True:
        at = 0
        while len(read) - at >= 9:
            size = int.from_bytes(read[at : at + 3])
            if read[at + 3] == DATA and len(read) - at >= 9 + size:
                return
            at += 9 + size
        more = client.recv(4096)
        if not more or END in read:
            raise RuntimeError("the Telemetry ended")
        read += more


def clients(port: int, count: int, protos: Protos) -> Iterator[socket.socket]:
    """Clients, each with its settings."""
    for number in range(count):
        host = f"127.0.0.{1 + number // OF_ADDRESS}"
        made = socket.create_connection((host, port), timeout=60)
        made.sendall(hello(number, protos))
        read_answer(made)
        yield made


@click.command()
@click.option("--clients", "count", default=18_000, show_default=True, help="Clients at the end.")
def main(count: int) -> None:
    """Print the broker's memory beside the number of clients, and the slope."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if count + SPARE > hard:
        raise click.ClickException(f"{count} clients need more than {hard} open files (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, protos = free_port(), Protos()
    own = {
        "grpcPort": str(port),
        "maxConnections": str(count + SPARE),
        "maxConnectionsPerAddress": str(count + SPARE),
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(
            running("congreve", folder / "store", flush="ASYNC_FLUSH", own=own, pretouch=False)
        )
        counts, sizes = [0], [memory(broker.pid).anonymous]
        click.echo(f"{'clients':>8} {'MiB':>8}\n{0:>8} {sizes[0]:>8.1f}")
        for number, made in enumerate(clients(port, count, protos), 1):
            stack.callback(made.close)
            if number % (count // STEPS) == 0:
                counts.append(number)
                sizes.append(memory(broker.pid).anonymous)
                click.echo(f"{number:>8} {sizes[-1]:>8.1f}")
        slope = linear_regression(counts, sizes).slope * 1024
        click.echo(f"a client takes {slope:.1f} KiB (20 at most)")


if __name__ == "__main__":
    main()
