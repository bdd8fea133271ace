"""Members of an elected group on the test's event loop."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path

from congreve.broker.broker import Broker
from congreve.broker.election.elected_broker import ElectedBroker
from congreve.namesrv.server import NameServer

from ..eventually import eventually
from ..servers import free_port
from .etcd import Etcd
from .pairs import broker_config


def has_topic(store: Path, topic: str, queues: int) -> bool:
    """Whether a member's files have a topic with so many queues."""
    for file in ("congreve/topics.journal", "config/topics.json"):
        path = store / file
        text = "".join(path.read_text().split()) if path.exists() else ""
        entries = re.findall(rf'"{topic}":{{[^}}]*}}', text)
        if entries:  # the journal's last line is the newest
            return f'"readQueueNums":{queues},' in entries[-1]
    return False


class ElectedGroup:
    """A name server, and the members that a test starts; they share one coordination service."""

    def __init__(self, folder: Path, etcd: Etcd | None, **settings: str) -> None:
        self._folder = folder
        self._etcd = etcd
        self._settings = settings
        self._stack = AsyncExitStack()
        self.name_server = NameServer(host="127.0.0.1", port=0)
        self.members: dict[int, ElectedBroker] = {}
        self._ports: dict[int, int] = {}

    async def __aenter__(self) -> ElectedGroup:
        await self._stack.enter_async_context(self.name_server)
        return self

    async def __aexit__(self, *error: object) -> None:
        for number in list(self.members):
            await self.stop(number)
        await self._stack.aclose()

    async def start(self, number: int, **settings: str) -> ElectedBroker:
        """Start a member, again or for the first time."""
        port = self._ports.setdefault(number, free_port())
        usual = {
            "brokerName": f"g-{self._folder.name}",
            "haMode": "etcd",
            "etcdEndpoints": "" if self._etcd is None else self._etcd.url,
            "haLeaseSeconds": "2",
            "brokerId": str(number),
            "listenPort": str(port),
            "haSendHeartbeatInterval": "200",
        }
        folder = self._folder / str(number)
        config = broker_config(folder, self.name_server, **{**usual, **self._settings, **settings})
        member = ElectedBroker(config)
        await member.start()
        self.members[number] = member
        return member

    async def stop(self, number: int) -> None:
        """Stop a member: its lease ends at once."""
        await self.members.pop(number).stop()

    async def master(self) -> int:
        """The number of the master, as soon as there is one."""
        await eventually(lambda: any(each.is_master for each in self.members.values()))
        (number,) = (number for number, each in self.members.items() if each.is_master)
        return number

    def broker(self, number: int) -> Broker:
        """The Broker of a member."""
        broker = self.members[number].broker
        assert broker is not None
        return broker

    def in_sync(self) -> frozenset[int]:
        """The in-sync set as its master knows it; empty without a master.

        The set of the term before, which begins each term, does not count.
        """
        for each in self.members.values():
            term = each.term
            if each.is_master and term is not None and term.state.set_epoch == term.state.epoch:
                return term.state.in_sync
        return frozenset()
