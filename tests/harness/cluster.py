"""One name server with one broker, as an operator sees them."""

from __future__ import annotations

from dataclasses import dataclass

from .drivers import Driver
from .servers import BrokerServer, Server


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
