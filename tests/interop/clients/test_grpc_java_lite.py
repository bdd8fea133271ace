"""The official gRPC client for Java: consumers of lite topics."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.grpc.test_lite import lites, make_group
from harness.drivers import Driver, grpc_lite_clients

from remoting.http2.built import needs_http2

pytestmark = [pytest.mark.interop, needs_http2]

LOOKS = 60


def look(clients: Driver, first: set[str], second: set[str]) -> list[str]:
    """Wait for what both have received; returns the subscriptions of the first one."""
    for _ in range(LOOKS):
        found = clients.call("received")
        if (set(found["first"]), set(found["second"]) - {""}) == (first, second):
            subscribed: list[str] = found["subscribed"]
            return subscribed
    raise AssertionError(found)


def test_the_java_client_shares_and_loses_lite_topics(tmp_path: Path) -> None:
    with lites(tmp_path / "store") as (broker, _):
        make_group(broker, "g", lite_sub_model="Exclusive")
        clients = grpc_lite_clients(tmp_path, f"127.0.0.1:{broker.config.grpc_port}")
        try:
            clients.call("send")
            known = {"a:a-0:1", "a:a-0:2", "b:b-0:1"}
            assert set(look(clients, known, set())) == {"a", "b"}
            clients.call("take")
            clients.call("send")
            assert look(clients, known | {"a:a-1:1"}, {"b:b-1:1"}) == ["a"]
        finally:
            clients.kill()
