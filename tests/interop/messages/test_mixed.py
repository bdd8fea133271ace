"""Mixed clusters: Java broker with Congreve's name server, and Congreve's broker with Java's."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver


@pytest.mark.parametrize(
    ("namesrv_kind", "broker_kind"), [("congreve", "java"), ("java", "congreve")]
)
def test_a_broker_registers_at_the_other_name_server(
    java: Driver, tmp_path: Path, namesrv_kind: str, broker_kind: str
) -> None:
    namesrv = servers.namesrv(namesrv_kind, tmp_path / "namesrv")
    broker = servers.broker(broker_kind, tmp_path / "broker", namesrv.address)
    try:
        namesrv.start()
        broker.start()
        Cluster(namesrv, broker).create_topic(java, "mixed", queues=4)
        sent = java.call(
            "load", namesrv=namesrv.address, topic="mixed", mode="sync", count=40, size=20
        )
        assert sent["ok"] == 40
        # A topic that does not exist: created from the template, and registered at once.
        java.call("load", namesrv=namesrv.address, topic="automatic", mode="sync", count=4, size=9)
        got = java.call("drain", namesrv=namesrv.address, topics=["mixed", "automatic"])
        assert len(got["messages"]) == 44
        listed = java.mqadmin("topicList", "-n", namesrv.address).split()
        assert {"mixed", "automatic"} <= set(listed)
        broker.stop()
        out = java.mqadmin("topicRoute", "-n", namesrv.address, "-t", "mixed")
        assert "No topic route info" in out
        broker.start()
        assert "mixed" in java.mqadmin("topicList", "-n", namesrv.address).split()
    finally:
        broker.kill()
        namesrv.kill()
