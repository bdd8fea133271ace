"""Official gRPC clients of an elected group: a transfer, and kill -9 of the master."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from broker.grpc.test_door import TYPES, create
from harness.build import missing_tools
from harness.certificates import Authority
from harness.drivers import Driver, grpc_clients
from harness.replication.elected_processes import ElectedProcesses
from harness.servers import free_port

from congreve.broker.election.operator import Operator
from remoting.http2.built import needs_http2

pytestmark = [
    pytest.mark.interop,
    pytest.mark.crash,
    needs_http2,
    pytest.mark.skipif("INTEROP_ALL" not in os.environ, reason="make interop-all runs it"),
]

LEASE_S = 5
WAIT_S = 120
INVISIBLE_S = 30
TOPIC, GROUP = "Normal", "readers"
LOOKS = 120
# The clients for Node.js and Rust take one address only.
PROGRAMS = {
    "java": ("java", "mvn"),
    "go": ("go",),
}


class PythonClients:
    """A producer, and a simple consumer: neither ends because a call failed."""

    def __init__(self, endpoints: str) -> None:
        rocketmq = pytest.importorskip("rocketmq")
        configuration = rocketmq.ClientConfiguration(endpoints, rocketmq.Credentials(), "")
        self._message = rocketmq.Message
        self._producer = rocketmq.Producer(configuration, (TOPIC,))
        self._consumer = rocketmq.SimpleConsumer(
            configuration, GROUP, {TOPIC: rocketmq.FilterExpression("*")}
        )
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        self.sent: set[bytes] = set()
        """Bodies whose sends were answered."""
        self.failures: list[str] = []
        self.settled: dict[bytes, int] = {}
        """How often each body came after the first answer to its acknowledgement."""

    def __enter__(self) -> PythonClients:
        self._producer.startup()
        self._consumer.startup()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self._producer.shutdown()
        self._consumer.shutdown()

    def _send(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            message = self._message()
            message.topic, message.body = TOPIC, b"%d" % number
            try:
                self._producer.send(message)
                self.sent.add(b"%d" % number)
            except Exception as error:  # noqa: BLE001 - the client raises many classes
                self.failures.append(f"send: {error!r}")
            time.sleep(0.02)

    def _receive(self) -> None:
        while not self._ending.is_set():
            try:
                for message in self._consumer.receive(32, INVISIBLE_S) or ():
                    self._settle(message)
            except Exception as error:  # noqa: BLE001 - the same
                self.failures.append(f"receive: {error!r}")
                time.sleep(0.1)

    def _settle(self, message: Any) -> None:
        body = bytes(message.body)
        if body in self.settled:
            self.settled[body] += 1
        try:
            self._consumer.ack(message)
            self.settled.setdefault(body, 0)
        except Exception as error:  # noqa: BLE001 - the same
            self.failures.append(f"ack: {error!r}")


async def reached(condition: Callable[[], bool], what: str, clients: PythonClients) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, (what, clients.failures[-5:])
        await asyncio.sleep(0.1)


async def goes_on(clients: PythonClients) -> None:
    """Wait until messages that are sent from now on are received."""
    sent = set(clients.sent)
    await reached(lambda: len(clients.sent - sent) > 20, "sends", clients)
    await reached(lambda: len(clients.settled.keys() - sent) > 20, "receives", clients)


@asynccontextmanager
async def running_group(
    folder: Path, authority: Authority | None = None
) -> AsyncIterator[tuple[ElectedProcesses, str]]:
    """Two members in sync, the first is the master; and the endpoints of both. Without an
    authority each makes a certificate itself."""
    group = ElectedProcesses(folder, 2, lease_s=LEASE_S)
    ports = {number: free_port() for number in group.members}
    lines = ""
    if authority is not None:
        certificate, key = authority.issue("broker")
        lines = f"tlsServerCertPath={certificate}\ntlsServerKeyPath={key}\n"
    for number, member in group.members.items():
        with member.config.open("a") as config:
            config.write(f"grpcPort={ports[number]}\n{lines}")
    async with group.running():
        group.start(1)
        assert await group.master() == 1
        group.start(2)
        await group.all_in_sync()
        for name, kind in TYPES.items():
            create(group.members[1], name, "" if kind is None else f"+message.type={kind}")
        yield group, ";".join(f"127.0.0.1:{port}" for port in ports.values())


async def transfer(group: ElectedProcesses) -> None:
    operator = Operator(group.coordinator, "test", ttl_s=LEASE_S, timeout_s=60)
    await operator.transfer(2)
    assert await group.master() == 2


def send(clients: Driver, rounds: int) -> None:
    """Send messages of all types, and wait until both consumers have those of all rounds."""
    clients.call("send")
    kinds = ("n0", "n1", "n2", "f0", "f1", "f2", "d", "t")
    wanted = {f"{kind}-{r}" for kind in kinds for r in range(rounds)}
    normal = {each for each in wanted if each.startswith("n")}
    for _ in range(LOOKS):
        found = clients.call("received")
        if wanted <= set(found["pushed"]) and normal <= set(found["received"]):
            return
    raise AssertionError(found)


async def test_python_clients_go_on_through_a_transfer_and_a_kill(tmp_path: Path) -> None:
    async with running_group(tmp_path) as (group, endpoints):
        with await asyncio.to_thread(PythonClients, endpoints) as clients:
            await goes_on(clients)
            await transfer(group)
            await goes_on(clients)
            await group.all_in_sync()
            group.members[2].kill()
            await goes_on(clients)
            assert await group.master() == 1
            acknowledged = set(clients.sent)
            await reached(
                lambda: acknowledged <= clients.settled.keys(), "all that was sent", clients
            )
            assert not {body: count for body, count in clients.settled.items() if count}


@pytest.mark.parametrize("language", PROGRAMS)
async def test_all_types_come_through_a_transfer_and_a_kill(tmp_path: Path, language: str) -> None:
    if missing := missing_tools(*PROGRAMS[language]):
        pytest.skip(f"not installed: {', '.join(missing)}")
    authority = Authority(tmp_path / "authority")
    async with running_group(tmp_path, authority) as (group, endpoints):
        clients = await asyncio.to_thread(
            grpc_clients, tmp_path, language, authority.path, endpoints, "key", "secret"
        )
        try:
            await asyncio.to_thread(send, clients, 1)
            await transfer(group)
            await asyncio.to_thread(send, clients, 2)
            await group.all_in_sync()
            group.members[2].kill()
            await asyncio.to_thread(send, clients, 3)
        finally:
            clients.kill()
