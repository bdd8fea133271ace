"""Runs mqadmin 4.9.4 as an operator does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from .cluster import Cluster
from .drivers import Driver

EVENTUALLY_S = 120


@dataclass
class Console:
    """mqadmin with the name server's address filled in."""

    driver: Driver
    cluster: Cluster

    def __call__(self, command: str, *args: str, broker: bool = False, lines: int = 0) -> str:
        """The output of a command; one without an end is interrupted after so many `lines`."""
        address = ("-b", self.cluster.broker.address) if broker else ()
        where = ("-n", self.cluster.namesrv.address, *address)
        return self.driver.mqadmin(command, *where, *args, lines=lines)

    def rows(self, command: str, *args: str) -> list[list[str]]:
        """The words of each line below the heading."""
        lines = self(command, *args).splitlines()
        return [line.split() for line in lines if line.strip() and not line.startswith("#")]

    def members(self, group: str, topic: str, *, count: int = 1) -> str:
        """The output of `consumerConnection` once the group has `count` members.

        Until then mqadmin prints an exception, which names the group as well.
        """
        wanted = rf"(?ms)(?:^\S+ +\S+:\d+ .*){{{count}}}^{re.escape(topic)} "
        return eventually(lambda: self("consumerConnection", "-g", group), wanted)


def eventually(read: Callable[[], str], wanted: str) -> str:
    """Repeat `read` until `wanted` matches its output; returns that output."""
    deadline = time.monotonic() + EVENTUALLY_S
    while not re.search(wanted, out := read()):
        assert time.monotonic() < deadline, f"no {wanted!r} in:\n{out}"
        time.sleep(0.1)
    return out
