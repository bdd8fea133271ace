"""The official gRPC client for Java: all types, push and simple consumers, a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.grpc.test_door import TYPES, config_of, create
from harness.drivers import Driver, grpc_clients

from congreve.broker.broker import Broker
from remoting.http2.built import needs_http2

pytestmark = [pytest.mark.interop, needs_http2]

LOOKS = 60


@contextmanager
def serving(root: Path, **settings: Any) -> Iterator[Broker]:
    with Broker(
        config_of(root, transaction_check_interval=200, transaction_time_out=200, **settings)
    ) as broker:
        for name, kind in TYPES.items():
            create(broker, name, "" if kind is None else f"+message.type={kind}")
        yield broker


def wanted(rounds: int) -> tuple[set[str], set[str]]:
    """What the push consumer and the simple consumer of normal messages get."""
    normal = {f"n{n}-{r}" for n in range(3) for r in range(rounds)}
    ordered = {f"f{n}-{r}" for n in range(3) for r in range(rounds)}
    others = {f"{kind}-{r}" for kind in ("d", "t", "asked") for r in range(rounds)}
    return normal | ordered | others, normal


def look(clients: Driver, rounds: int) -> None:
    pushed, received = wanted(rounds)
    for _ in range(LOOKS):
        found = clients.call("received")
        if (set(found["pushed"]), set(found["received"])) == (pushed, received):
            return
    raise AssertionError(found)


def test_clients_1137_7986_the_java_client_goes_on_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as broker:
        ports = {"listen_port": broker.port, "grpc_port": broker.config.grpc_port}
        clients = grpc_clients(tmp_path, f"127.0.0.1:{broker.config.grpc_port}")
        try:
            clients.call("send")
            look(clients, 1)
        except BaseException:
            clients.kill()
            raise
    try:
        with serving(tmp_path / "store", **ports):
            clients.call("send")
            look(clients, 2)
    finally:
        clients.kill()
