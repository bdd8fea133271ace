"""Forms of registration that only the Java broker sends, with certain settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver


@pytest.mark.parametrize(
    "settings", [{"compressedRegister": "true"}, {"forceRegister": "false"}], ids=str
)
def test_java_broker_registers_in_each_form(
    java: Driver, tmp_path: Path, settings: dict[str, str]
) -> None:
    namesrv = servers.namesrv("congreve", tmp_path / "namesrv")
    broker = servers.broker("java", tmp_path / "broker", namesrv.address, settings=settings)
    try:
        namesrv.start()
        broker.start()
        Cluster(namesrv, broker).create_topic(java, "formed", queues=3)
        sent = java.call(
            "load", namesrv=namesrv.address, topic="formed", mode="sync", count=9, size=9
        )
        assert sent["ok"] == 9
        out = java.mqadmin("topicRoute", "-n", namesrv.address, "-t", "formed")
        assert '"readQueueNums":3' in out
        assert "BenchmarkTest" in java.mqadmin("topicList", "-n", namesrv.address)
    finally:
        broker.kill()
        namesrv.kill()
