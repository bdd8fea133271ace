"""Clusters of processes: a name server with a broker, and a crossed pair of machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .drivers import Driver
from .servers import BrokerServer, Server, free_port
from .wire import GET_BROKER_CLUSTER_INFO, GET_ROUTEINFO_BY_TOPIC, Wire

HOSTS = ("127.0.0.2", "127.0.0.3")
SLAVE_DISTANCE = 10
ROUTE_S = 60


@dataclass
class Cluster:
    """A running name server and a running broker."""

    namesrv: Server
    broker: BrokerServer

    def create_topic(self, java: Driver, name: str, *, queues: int) -> None:
        """Create a topic by mqadmin."""
        out = java.mqadmin(
            *("updateTopic", "-n", self.namesrv.address, "-b", self.broker.address),
            *("-t", name, "-r", str(queues), "-w", str(queues)),
        )
        assert f"create topic to {self.broker.address} success" in out, out


@dataclass
class Machine(Server):
    """A process with a name server, a master and a slave."""

    host: str = ""
    namesrv_port: int = 0

    @property
    def master(self) -> str:
        """The master's address."""
        return f"{self.host}:{self.port}"

    @property
    def addresses(self) -> list[str]:
        """The addresses of the master and the slave."""
        return [self.master, f"{self.host}:{self.port + SLAVE_DISTANCE}"]

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return f"{self.host}:{self.namesrv_port}"

    def ready(self) -> bool:
        """Whether its master and its slave are registered at its own name server."""
        try:
            with Wire(self.namesrv) as wire:
                body = wire.call(GET_BROKER_CLUSTER_INFO, {}).body
        except OSError:
            return False
        return all(f'"{address}"'.encode() in body for address in self.addresses)


def crossed_pair(folder: Path, settings: Sequence[str]) -> list[Machine]:
    """Both machines, not started, with settings as KEY=VALUE."""
    port, namesrv_port = free_port(), free_port()
    made = []
    for host, other in (HOSTS, HOSTS[::-1]):
        command = [sys.executable, "-m", "congreve", "run", "--data", str(folder / host)]
        command += ["--host", host, "--pair", other]
        command += ["--port", str(port), "--namesrv-port", str(namesrv_port)]
        for setting in settings:
            command += ["-o", setting]
        made.append(
            Machine(host, command, port, folder / host, host=host, namesrv_port=namesrv_port)
        )
    return made


def await_route(machine: Machine, machines: list[Machine], topic: str) -> None:
    """Wait until a machine's name server knows both masters and both slaves of the topic.

    A broker registers again 5 s after a name server did not answer.
    """
    deadline = time.monotonic() + ROUTE_S
    addresses = [f'"{address}"' for one in machines for address in one.addresses]
    while True:
        with Wire(machine.namesrv) as wire:
            route = wire.call(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body.decode()
        if all(address in route for address in addresses) and route.count("readQueueNums") == len(
            machines
        ):
            return
        assert time.monotonic() < deadline, route
        time.sleep(0.05)


def stores(machine: Machine, other: Machine) -> tuple[Path, Path]:
    """The store of a machine's master, and that of its slave on the other machine."""
    return machine.folder / "store", other.folder / "store-slave"
