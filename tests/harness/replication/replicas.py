"""A master and its slave, each Congreve or the reference, under one name server."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from struct import Struct

from congreve.records.record import decode_record

from .. import servers
from ..servers import BrokerServer, Server

SEGMENT_BYTES = 1 << 19
"""So small that a test's log has several segments."""
EQUAL_S = 120
RECORD_HEAD = Struct(">iI")
RECORD_MAGIC = 0xDAA320A7

SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    # A RocketMQ slave reports where to begin only after one such interval.
    "haSendHeartbeatInterval": "500",
    "haHousekeepingInterval": "5000",
}


def log_bytes(store: Path) -> bytes:
    """The log of a store from its first segment on, without the zeros at its end."""
    files = sorted(file for file in (store / "commitlog").iterdir() if file.name.isdecimal())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def queued_bodies(log: bytes, topic: str, segment: int) -> dict[int, list[bytes]]:
    """The bodies in each queue of the topic, in the order of the log."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while len(log) - at >= RECORD_HEAD.size:
        size, magic = RECORD_HEAD.unpack_from(log, at)
        if magic != RECORD_MAGIC:  # the blank at the end of a segment, or a record in flight
            at += segment - at % segment
            continue
        if at + size > len(log):
            break
        record = decode_record(log[at : at + size])
        if record.topic == topic:
            found.setdefault(record.queue_id, []).append(record.body)
        at += size
    return found


class Replicas:
    """Makes the brokers of one group; `master` and `slave` start them."""

    def __init__(self, namesrv: Server, folder: Path) -> None:
        self.namesrv = namesrv
        self.folder = folder
        self.name = f"group-{uuid.uuid4().hex[:6]}"
        self.made: list[BrokerServer] = []

    def master(self, kind: str, **settings: str) -> BrokerServer:
        """Start a master."""
        return self._start(kind, "master", {"brokerRole": "ASYNC_MASTER", **settings})

    def slave(self, kind: str, **settings: str) -> BrokerServer:
        """Start a slave."""
        return self._start(kind, "slave", {"brokerRole": "SLAVE", "brokerId": "1", **settings})

    def _start(self, kind: str, folder: str, settings: dict[str, str]) -> BrokerServer:
        broker = servers.broker(
            *(kind, self.folder / folder, self.namesrv.address),
            broker_name=self.name,
            settings={**SETTINGS, **settings},
        )
        self.made.append(broker)
        broker.start()
        return broker

    def kill(self) -> None:
        """End all brokers."""
        for broker in self.made:
            broker.kill()


def await_equal_logs(master: BrokerServer, slave: BrokerServer) -> bytes:
    """Wait until both logs have the same bytes; returns them."""
    try:
        return await_equal_stores(master.store, slave.store)
    except AssertionError as error:
        raise AssertionError(f"{error}:\n{master.tail()}\n{slave.tail()}") from None


def await_equal_stores(master: Path, slave: Path) -> bytes:
    """Wait until the logs of two stores have the same bytes; returns them."""
    deadline = time.monotonic() + EQUAL_S
    while (mine := log_bytes(master)) != (theirs := log_bytes(slave)):
        assert time.monotonic() < deadline, f"logs of {len(mine)} and {len(theirs)} bytes"
        time.sleep(0.05)
    return mine
