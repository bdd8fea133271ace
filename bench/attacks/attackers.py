"""What one client without an account can do; each attack runs until its process is killed."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import NamedTuple
from weakref import WeakKeyDictionary

from harness.servers import HOST
from harness.wire import HEART_BEAT, PULL_MESSAGE, heartbeat, pull_fields

TOPIC = "neighbour"
GET_ALL_TOPIC_CONFIG = 21
GET_BROKER_RUNTIME_INFO = 28
LOCK_BATCH_MQ = 41
AWAIT_TABLE_CHANGE = 9018
MEBIBYTE = 1 << 20
PAUSE_S = 0.2
SUSPEND = 2


class Ports(NamedTuple):
    """Where the attacked server listens; a server that only answers has one port for all."""

    broker: int
    replication: int
    metrics: int


Attack = Callable[[Ports], None]
Pending = WeakKeyDictionary[socket.socket, bytes]
"""By connection: what it has not taken yet."""


def frame(code: int, fields: dict[str, str], opaque: int = 1, body: bytes = b"") -> bytes:
    """A request with a JSON header."""
    header = json.dumps(
        {"code": code, "language": "JAVA", "version": 401, "opaque": opaque, "flag": 0}
        | {"extFields": fields}
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _connections(port: int, wanted: int) -> Iterator[list[socket.socket]]:
    """Yields so many open connections again and again, without those that the peer has closed."""
    held: list[socket.socket] = []
    while True:
        held = [each for each in held if not _closed(each)]
        while len(held) < wanted:
            try:
                held.append(socket.create_connection((HOST, port), timeout=1))
            except OSError:
                break
            held[-1].setblocking(False)
        yield held
        time.sleep(PAUSE_S)


def _closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _push(connection: socket.socket, data: bytes, pending: Pending) -> None:
    """Write what the connection takes; the rest waits in `pending`."""
    rest = pending.get(connection, data)
    with suppress(OSError):
        pending[connection] = rest[connection.send(rest) :]


def silent(ports: Ports) -> None:
    """1,000 connections that send nothing."""
    for _ in _connections(ports.broker, 1000):
        pass


def unfinished(ports: Ports) -> None:
    """200 connections, each with a frame of 4 MiB whose last byte never comes."""
    data = frame(PULL_MESSAGE, {}, body=bytes(4 * MEBIBYTE))[:-1]
    pending = Pending()
    for held in _connections(ports.broker, 200):
        for connection in held:
            _push(connection, data, pending)


def unread(ports: Ports) -> None:
    """Four connections that ask for all topics 12,000 times and never read."""
    data = b"".join(frame(GET_ALL_TOPIC_CONFIG, {}, opaque) for opaque in range(12_000))
    pending = Pending()
    for held in _connections(ports.broker, 4):
        for connection in held:
            _push(connection, data, pending)


def waiting_pulls(ports: Ports) -> None:
    """Pulls that wait for a message, each with a body of 1 MiB."""
    fields = pull_fields(TOPIC, 3, 0, 32) | {"suspendTimeoutMillis": "60000", "sysFlag": "2"}
    data = frame(PULL_MESSAGE, fields, body=bytes(MEBIBYTE)) * 100
    pending = Pending()
    for held in _connections(ports.broker, 4):
        for connection in held:
            _push(connection, data, pending)


def locks(ports: Ports) -> None:
    """Locks of queues and groups that do not exist."""
    _ask(ports.broker, _lock_requests())


def _lock_requests() -> Iterator[bytes]:
    for number in count():
        queues = [
            {"topic": f"t{number}-{queue // 40}", "brokerName": "b", "queueId": queue % 40}
            for queue in range(2000)
        ]
        body = {"consumerGroup": f"g{number}", "clientId": "c", "mqSet": queues}
        yield frame(LOCK_BATCH_MQ, {}, number, json.dumps(body).encode())


def heartbeats(ports: Ports) -> None:
    """Heartbeats of clients and groups with invented names."""
    _ask(
        ports.broker,
        (
            frame(HEART_BEAT, {}, number, heartbeat(TOPIC, *(f"g{number}-{i}" for i in range(50))))
            for number in count()
        ),
    )


def runtime_info(ports: Ports) -> None:
    """One request for the broker's figures after the other."""
    _ask(ports.broker, (frame(GET_BROKER_RUNTIME_INFO, {}, number) for number in count()))


def table_copies(ports: Ports) -> None:
    """Members with invented numbers say what they have."""
    _ask(
        ports.broker,
        (frame(AWAIT_TABLE_CHANGE, {"member": str(number % 1000)}, number) for number in count()),
    )


def damaged_frames(ports: Ports) -> None:
    """Frames whose headers are noise, each on a connection that the peer then closes."""
    noise = random.Random(1)
    while True:
        with (
            suppress(OSError),
            socket.create_connection((HOST, ports.broker), timeout=1) as connection,
        ):
            connection.sendall(struct.pack(">II", 204, 200) + noise.randbytes(200))
            connection.recv(1)


def reconnects(ports: Ports) -> None:
    """Connections that end at once."""
    while True:
        with suppress(OSError):
            socket.create_connection((HOST, ports.broker), timeout=1).close()


def replication_strangers(ports: Ports) -> None:
    """200 connections to the port of slaves that send a byte now and then."""
    for held in _connections(ports.replication, 200):
        for connection in held:
            with suppress(OSError):
                connection.send(b"\0")


def slow_scrapes(ports: Ports) -> None:
    """100 clients of the metrics that send their requests byte by byte."""
    for held in _connections(ports.metrics, 100):
        for connection in held:
            with suppress(OSError):
                connection.send(b"G")


def _ask(port: int, requests: Iterator[bytes]) -> None:
    """Requests as fast as the peer answers, eight in flight; what it answers is not looked at."""
    while True:
        try:
            with socket.create_connection((HOST, port), timeout=5) as connection:
                answers = connection.makefile("rb")
                for number, request in enumerate(requests):
                    connection.sendall(request)
                    if number >= 8:
                        (size,) = struct.unpack(">I", answers.read(4))
                        answers.read(size)
        except (OSError, struct.error):
            time.sleep(0.01)


ATTACKS: dict[str, Attack] = {
    "silent connections": silent,
    "unfinished frames": unfinished,
    "unread answers": unread,
    "waiting pulls with bodies": waiting_pulls,
    "locks of invented queues": locks,
    "heartbeats of invented clients": heartbeats,
    "runtime info": runtime_info,
    "table copies of invented members": table_copies,
    "damaged frames": damaged_frames,
    "connections that end at once": reconnects,
    "strangers at the replication port": replication_strangers,
    "slow scrapes": slow_scrapes,
}
