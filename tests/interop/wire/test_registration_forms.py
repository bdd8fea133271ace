"""Forms of registration that only the Java broker sends, with certain settings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver
from harness.eventually import eventually
from harness.wire import Wire

from congreve.remoting.messages.bodies import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.register_body import PART_BYTES


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


def test_a_java_name_server_takes_topics_in_several_registrations(
    java: Driver, tmp_path: Path
) -> None:
    """Also after its restart; a client of Java finds the first and the last topic."""
    names = [f"{number:0100d}" for number in range(2 * PART_BYTES // 300)]
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={name: TopicConfig(name, 3, 3) for name in names},
        data_version=DataVersion(counter=1, timestamp=1),
    )
    topics = tmp_path / "broker/store/config/topics.json"
    topics.parent.mkdir(parents=True)
    topics.write_bytes(wrapper.encode())
    namesrv = servers.namesrv("java", tmp_path / "namesrv")
    broker = servers.broker("congreve", tmp_path / "broker", namesrv.address)

    def routed() -> bool:
        with Wire(namesrv.address) as wire:
            answers = [wire.call(105, {"topic": topic}) for topic in (names[0], names[-1])]
        return all(answer.code == 0 for answer in answers)

    try:
        namesrv.start()
        broker.start()
        asyncio.run(eventually(routed, 60))
        namesrv.kill()
        namesrv.start()
        asyncio.run(eventually(routed, 60))
        listed = java.mqadmin("topicList", "-n", namesrv.address).split()
        assert set(names) <= set(listed)
        assert '"readQueueNums":3' in java.mqadmin(
            "topicRoute", "-n", namesrv.address, "-t", names[-1]
        )
    finally:
        broker.kill()
        namesrv.kill()
