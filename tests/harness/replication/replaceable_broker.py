"""A store that brokers of both kinds open in turn."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from .. import servers
from ..cluster import Cluster
from ..drivers import Driver, Json


@dataclass
class ReplaceableBroker:
    """One store and its current broker, always at the same address.

    A subclass gives `SETTINGS`, which every broker on the store gets.
    """

    SETTINGS: ClassVar[dict[str, str]] = {}

    namesrv: servers.Server
    folder: Path
    java: Driver
    name: str = field(default_factory=lambda: f"broker-{uuid.uuid4().hex[:8]}")
    port: int = field(default_factory=servers.free_port)
    broker: servers.BrokerServer | None = None

    def start(self, kind: str, **settings: str) -> None:
        """Start a broker of that kind on the store."""
        self.broker = servers.broker(
            *(kind, self.folder, self.namesrv.address),
            broker_name=self.name,
            store=self.folder / "store",
            port=self.port,
            settings=self.SETTINGS | settings,
        )
        self.broker.start()

    def end(self, how: str) -> None:
        """End the broker: "kill", or a stop that must succeed."""
        assert self.broker is not None
        broker, self.broker = self.broker, None
        if how == "kill":
            broker.kill()
        else:
            assert broker.stop() in (0, 143), broker.tail()

    def kill_if_running(self) -> None:
        """Leave no process behind."""
        if self.broker is not None:
            self.end("kill")

    def create_topics(self, *names: str, queues: int = 2) -> None:
        """Create topics by mqadmin; the next broker finds them in topics.json.

        Ours writes that file within a second, from a journal that a Java broker does not read.
        """
        assert self.broker is not None
        for name in names:
            Cluster(self.namesrv, self.broker).create_topic(self.java, name, queues=queues)
        file = self.folder / "store/config/topics.json"
        deadline = time.monotonic() + 60
        while not all(f'"{name}"' in file.read_text() for name in names):
            assert time.monotonic() < deadline, f"{file} does not name all of {names}"
            time.sleep(0.05)

    def call(self, do: str, **request: object) -> Json:
        """Ask the Java driver, with this name server."""
        return self.java.call(do, namesrv=self.namesrv.address, **request)
