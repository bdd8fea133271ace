"""Unmodified Java and Go clients in two networks: each one connects to the address of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from broker.tool import config_of
from harness.drivers import Driver

from congreve.broker.broker import Broker
from congreve.namesrv.server import NameServer

OUTSIDE = "127.0.0.3"
"""Another address of this machine: another network."""
COUNT = 40


class Networks(NamedTuple):
    """The name server's address in each network, and the broker."""

    inside: str
    outside: str
    broker: Broker


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[Networks]:
    with NameServer(port=0, listeners={"outside": (OUTSIDE, 0)}) as server:
        config = config_of(
            tmp_path,
            broker_cluster_name="DefaultCluster",
            namesrv_addr=server.address,
            listeners=f"outside={OUTSIDE}:0",
        )
        with Broker(config) as broker:
            outside = f"{OUTSIDE}:{server.ports['outside']}"
            yield Networks(server.address, outside, broker)


def test_clients_of_two_networks_share_a_topic(
    java: Driver, go: Driver, networks: Networks
) -> None:
    for number, (sender, reader, near, far) in enumerate(
        (
            (java, go, networks.outside, networks.inside),
            (go, java, networks.inside, networks.outside),
        )
    ):
        topic = f"T{number}"
        sent = sender.call(
            "load", namesrv=near, topic=topic, mode="sync", count=COUNT, size=40, tag="t"
        )
        assert sent["ok"] == COUNT, sent
        if reader is java:
            got = reader.call("drain", namesrv=far, topics=[topic])["messages"]
            assert len(got) == COUNT
        else:
            reader.call(
                "consumerStart",
                **{"id": topic, "group": f"g-{topic}", "instances": 1, "tag": "t"},
                **{"namesrv": far, "topic": topic},
            )
            seen = reader.call(
                "consumerWait", id=topic, expected=COUNT, timeoutMs=60_000, quietMs=500
            )
            reader.call("consumerStop", id=topic)
            assert seen["distinct"] == COUNT, seen
    mqadmin = java.mqadmin("clusterList", "-n", networks.outside)
    assert networks.broker.config.advertised["outside"] in mqadmin
    assert networks.broker.address not in mqadmin
