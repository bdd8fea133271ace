"""Unmodified Java and Go clients beyond a quota: producers get code 2, consumers get everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.tool import config_of
from harness.drivers import Driver, DriverError

from congreve.broker.broker import Broker
from congreve.broker.quota_limits import Kind, Limits
from congreve.broker.quotas.quota_file import Quota, QuotaFile
from congreve.namesrv.server import NameServer

COUNT = 60


@pytest.fixture
def namesrv_of_quotas(tmp_path: Path) -> Iterator[str]:
    """The name server of a broker whose topics and groups have quotas."""
    quotas = QuotaFile(str(tmp_path))
    quotas.set(Quota(Kind.TOPIC, "limited", Limits(send_bytes=1000)))
    quotas.set(Quota(Kind.GROUP, "slow-java", Limits(pull_messages=20)))
    quotas.set(Quota(Kind.GROUP, "slow-go", Limits(pull_messages=20)))
    with NameServer(port=0) as server:
        config = config_of(
            tmp_path / "store", namesrv_addr=server.address, acl_folder=str(tmp_path)
        )
        with Broker(config):
            yield server.address


def test_a_producer_beyond_its_quota_gets_system_busy(java: Driver, namesrv_of_quotas: str) -> None:
    with pytest.raises(DriverError, match=r"CODE: 2 .*quota is used up"):
        java.call(
            "load", namesrv=namesrv_of_quotas, topic="limited", mode="sync", count=3, size=4000
        )


@pytest.mark.parametrize("client", ["java", "go"])
def test_a_consumer_beyond_its_quota_gets_all_messages(
    client: str, java: Driver, go: Driver, namesrv_of_quotas: str
) -> None:
    consumer = java if client == "java" else go
    where = {"namesrv": namesrv_of_quotas, "topic": f"of-{client}"}
    assert java.call("load", mode="sync", count=COUNT, size=40, **where)["ok"] == COUNT
    consumer.call("consumerStart", id=client, group=f"slow-{client}", instances=1, **where)
    seen = consumer.call("consumerWait", id=client, expected=COUNT, timeoutMs=60_000, quietMs=500)
    consumer.call("consumerStop", id=client)
    assert seen["distinct"] == COUNT, seen
