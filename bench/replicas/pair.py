"""A master and its slave in processes of their own, and the load generator for them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness import servers
from harness.replication.replicas import Replicas
from harness.servers import BrokerServer

FOLLOWS_S = 10.0
"""A RocketMQ slave needs some seconds until it follows."""


class Pair(NamedTuple):
    """The running brokers of one group."""

    name: str
    namesrv: str
    master: BrokerServer
    slave: BrokerServer

    def send(self, connections: int, inflight: int, size: int, seconds: float) -> dict[str, float]:
        """Send to the master; returns the figures of `congreve bench`."""
        command = [sys.executable, "-m", "congreve", "bench", "-n", self.namesrv]
        command += ["--broker", self.name, "--connections", str(connections)]
        command += ["--inflight", str(inflight), "--size", str(size), "--output", "json"]
        command += ["--warmup", "6", "--seconds", str(seconds)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found: dict[str, float] = json.loads(out)[0]
        return found


@contextmanager
def running_pair(
    kind: str, folder: Path, both: dict[str, str], **only_master: str
) -> Iterator[Pair]:
    """A name server and a pair of this kind, `java` or `congreve`, whose slave follows.

    `both` are settings of both brokers, `only_master` those of the master.
    """
    namesrv = servers.namesrv(kind, folder / "namesrv")
    namesrv.start()
    replicas = Replicas(namesrv, folder)
    both = {"mappedFileSizeCommitLog": str(256 << 20), "haHousekeepingInterval": "20000"} | both
    try:
        master = replicas.master(kind, **both, **only_master)
        slave = replicas.slave(kind, **both)
        time.sleep(FOLLOWS_S)
        yield Pair(replicas.name, namesrv.address, master, slave)
    finally:
        replicas.kill()
        namesrv.kill()
