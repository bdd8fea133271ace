"""Brokers that must lose acknowledged messages in power cuts, or the cuts would prove nothing."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from cuts.disks import Disk, Disks, NoDisksError
from cuts.one_broker import Cuts, cut_broker
from cuts.power import cut
from harness import servers
from harness.servers import HOST, Server
from harness.wire import (
    GET_MAX_OFFSET,
    PULL_MESSAGE,
    SEND_MESSAGE_V2,
    Wire,
    pull_fields,
    record_bodies,
    send_fields,
)

SENDERS = 4
TOPIC = "Cuts"
LONGEST_S = 1.5
FOUND_S = 30.0
SAVED_S = 1.0
SUCCESS = 0
NO_SYNC = Path(__file__).with_name("no_sync.c")

Acknowledged = list[int]
Send = Callable[[int, Acknowledged], None]
"""Sends messages until its server ends, and adds the number of each that was acknowledged."""


class Lost(NamedTuple):
    """Messages that were acknowledged, and of these the missing ones, over some cuts."""

    cuts: int
    acknowledged: int
    lost: int


def without_syncs(folder: Path) -> dict[str, str]:
    """The environment of a broker whose syncs do nothing."""
    library = folder / "no_sync.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(NO_SYNC)], check=True)
    return {"LD_PRELOAD": str(library)}


def cut_each_once(
    disks: Disks, backend: str, cuts: int, environment: Mapping[str, str] | None = None
) -> Cuts:
    """Brokers that may lose anything, each on a new disk. One that does not start, or whose
    disk cannot be mounted, is wrong."""
    found = [_cut_once(disks, backend, seed, environment) for seed in range(cuts)]
    return Cuts(
        *(cuts, sum(each.acknowledged for each in found), sum(each.lost for each in found)),
        [fault for each in found for fault in each.wrong],
    )


def _cut_once(disks: Disks, backend: str, seed: int, environment: Mapping[str, str] | None) -> Cuts:
    try:
        return cut_broker(disks, backend, "SYNC_FLUSH", 1, seed, environment)
    except (NoDisksError, OSError, RuntimeError) as error:
        return Cuts(1, 0, 0, [str(error)])


def cut_under(server: Server, disk: Disk, send: Send, chance: random.Random) -> Acknowledged:
    """Send for a while, then cut the server's power; what was acknowledged before."""
    acknowledged: list[Acknowledged] = [[] for _ in range(SENDERS)]
    threads = [
        threading.Thread(target=send, args=(number, acknowledged[number]))
        for number in range(SENDERS)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + servers.START_TIMEOUT_S
    while not all(acknowledged) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(chance.uniform(0, LONGEST_S))
    cut([server], [disk])
    for thread in threads:
        thread.join()
    return [number for each in acknowledged for number in each]


# --- rocketmq


def cut_rocketmq(disk: Disk, namesrv: str, policy: str, cuts: int) -> Lost:
    """A broker of RocketMQ; ASYNC_FLUSH is its default. Its topic is on disk before each cut."""
    chance = random.Random(cuts)
    settings = {"flushDiskType": policy, "mappedFileSizeCommitLog": str(1 << 23)}
    broker = servers.broker("java", disk.path / "broker", namesrv, settings=settings)
    disk.sync()
    numbers = count()
    total = lost = 0
    for _ in range(cuts):
        broker.start()
        with Wire(broker.address) as wire:  # a broker that has its topic for long
            wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, 0, {}), b"0|")
        time.sleep(SAVED_S)
        disk.sync()
        acknowledged = cut_under(broker, disk, _sender(broker.address, numbers), chance)
        total += len(acknowledged)
        broker.start()
        lost += len(set(acknowledged) - _stored(broker.address))
        broker.kill()
    return Lost(cuts, total, lost)


def _sender(address: str, numbers: count[int]) -> Send:
    def send(sender: int, acknowledged: Acknowledged) -> None:
        with suppress(OSError), Wire(address) as wire:
            while True:
                number = next(numbers)
                body = b"%d|" % number + bytes(number % 900)
                answer = wire.call(SEND_MESSAGE_V2, send_fields(TOPIC, sender, {}), body)
                if answer.code == SUCCESS:
                    acknowledged.append(number)

    return send


def _stored(address: str) -> set[int]:
    """The numbers in all queues; none if the topic is unknown. A cut may leave other bytes."""
    found: set[int] = set()
    with Wire(address) as wire:
        for queue_id in range(SENDERS):
            fields = {"topic": TOPIC, "queueId": str(queue_id)}
            end, at = int(wire.call(GET_MAX_OFFSET, fields).fields.get("offset", 0)), 0
            while at < end:
                answer = wire.call(PULL_MESSAGE, pull_fields(TOPIC, queue_id, at, 32))
                if answer.code != SUCCESS:
                    break
                texts = {body.partition(b"|")[0] for _, body in record_bodies(answer.body)}
                found |= {int(text) for text in texts if text.isdigit()}
                at = int(answer.fields["nextBeginOffset"])
    return found


# --- jetstream


def cut_jetstream(disk: Disk, program: str, cuts: int) -> Lost:
    """NATS JetStream with file storage and its defaults: it syncs each two minutes."""
    chance = random.Random(cuts)
    port = servers.free_port()
    folder = disk.path / "nats"
    command = [program, "-a", HOST, "-p", str(port), "-js", "-sd", str(folder / "store")]
    server = Server("nats", command, port, folder)
    total = lost = 0
    for _ in range(cuts):
        server.start()
        with _Nats(port) as nats:
            nats.ask("$JS.API.STREAM.CREATE." + TOPIC, {"name": TOPIC, "subjects": [TOPIC]})
            first = _last(nats)
        disk.sync()  # what the cut before has left
        acknowledged = cut_under(server, disk, _publisher(port), chance)
        total += len(acknowledged)
        server.start()
        with _Nats(port) as nats:
            last = _last(nats)
        assert last >= first
        lost += sum(number > last for number in acknowledged)
        server.kill()
    return Lost(cuts, total, lost)


def _publisher(port: int) -> Send:
    def send(sender: int, acknowledged: Acknowledged) -> None:
        with suppress(OSError), _Nats(port) as nats:
            while True:
                answer = nats.ask(TOPIC, {"body": "x" * 900})
                if "seq" in answer:
                    acknowledged.append(int(answer["seq"]))

    return send


def _last(nats: _Nats) -> int:
    answer = nats.ask("$JS.API.STREAM.INFO." + TOPIC, {})
    return int(answer["state"]["last_seq"]) if "state" in answer else 0


class _Nats:
    """A connection with one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=FOUND_S)
        self._lines = self._socket.makefile("rb")
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\n')

    def __enter__(self) -> _Nats:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()

    def ask(self, subject: str, request: dict[str, object]) -> dict[str, dict[str, int] | int]:
        body = json.dumps(request).encode() if request else b""
        self._socket.sendall(b"PUB %s answers %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        while line := self._lines.readline():
            if line.startswith(b"PING"):
                self._socket.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG"):
                answer = self._lines.read(int(line.split()[-1]) + 2)
                return json.loads(answer)  # type: ignore[no-any-return]
        raise ConnectionError("the server closed the connection")
