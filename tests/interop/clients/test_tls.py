"""TLS of our servers, with the clients and tools that RocketMQ has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness import servers
from harness.certificates import Authority
from harness.cluster import Cluster
from harness.drivers import Driver, java_driver
from starlette.testclient import TestClient

from congreve.client import Message, Producer, PullConsumer, SyncProducer, tls_context
from congreve.client.errors import NoNameServerError
from congreve.console.main import cli
from congreve.console.web.options import Options
from congreve.console.web.serving.site import Site

from .groups import group


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tls.properties of servers, and one of clients with their certificate."""
    found = tmp_path_factory.mktemp("tls")
    authority = Authority(found)
    certificate, key = authority.issue("server", password="of the key")
    mine, my_key = authority.issue("client")
    client = (
        f"tls.client.trustCertPath={authority.path}\n"
        f"tls.client.certPath={mine}\ntls.client.keyPath={my_key}\n"
    )
    (found / "client.properties").write_text("tls.test.mode.enable=false\n" + client)
    (found / "server.properties").write_text(
        f"tls.server.mode=enforcing\ntls.server.certPath={certificate}\n"
        f"tls.server.keyPath={key}\ntls.server.keyPassword=of the key\n"
        f"tls.server.need.client.auth=require\ntls.server.trustCertPath={authority.path}\n{client}"
    )
    return found


@pytest.fixture(scope="module")
def encrypted(folder: Path) -> Iterator[Cluster]:
    """A name server and a broker that accept only clients with a certificate."""
    properties = str(folder / "server.properties")
    namesrv = servers.namesrv("congreve", folder / "namesrv")
    namesrv.command += ["--tls-config", properties]
    namesrv.start()
    broker = servers.broker(
        "congreve",
        folder / "broker",
        namesrv.address,
        settings={"tlsConfigFile": properties, "tlsEnable": "true"},
    )
    broker.ready = lambda: "ready" in broker.tail()  # type: ignore[method-assign]
    broker.start()
    yield Cluster(namesrv, broker)
    assert broker.stop() == 0, broker.tail()
    assert namesrv.stop() == 0


@pytest.fixture(scope="module")
def java_tls(folder: Path) -> Iterator[Driver]:
    """The Java client and mqadmin with their usual switches of TLS."""
    switches = ("-Dtls.enable=true", f"-Dtls.config.file={folder / 'client.properties'}")
    driver = java_driver(folder / "java", "JSON", *switches)
    yield driver
    driver.close()


def test_the_java_client_and_mqadmin_work_over_tls(encrypted: Cluster, java_tls: Driver) -> None:
    encrypted.create_topic(java_tls, "orders", queues=2)
    where = {"namesrv": encrypted.namesrv.address, "topic": "orders"}
    java_tls.call("consumerStart", id="c", group="billing", instances=2, **where)
    for mode in ("sync", "async", "oneway"):
        sent = java_tls.call("load", mode=mode, count=30, size=4_000, **where)
        assert sent["ok"] == 30, sent
    java_tls.call("consumerWait", id="c", expected=30, timeoutMs=60_000, quietMs=200)
    assert java_tls.call("consumerStop", id="c")["distinct"] == 30  # each load numbers its own
    listed = java_tls.mqadmin("clusterList", "-n", encrypted.namesrv.address)
    assert encrypted.broker.address in listed


async def test_our_clients_and_commands_work_over_tls(
    encrypted: Cluster, java_tls: Driver, folder: Path
) -> None:
    encrypted.create_topic(java_tls, "ours", queues=1)
    address = encrypted.namesrv.address
    context = tls_context(str(folder / "client.properties"))
    async with Producer(address, group=group(), ssl=context) as producer:
        sent = await producer.send(Message(topic="ours", body=b"async"))

    def from_a_thread() -> None:
        with SyncProducer(address, group=group(), ssl=context) as producer:
            producer.send(Message(topic="ours", body=b"sync"))
        file = str(folder / "client.properties")
        arguments = ["send", "-n", address, "--tls", file, "-t", "ours", "-m", "command"]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output

    await asyncio.to_thread(from_a_thread)
    async with PullConsumer(address, group=group(), ssl=context) as consumer:
        pulled = await consumer.pull(sent.queue, 0)
    assert [each.body for each in pulled.messages] == [b"async", b"sync", b"command"]


async def test_clients_without_a_certificate_and_without_tls_are_refused(
    encrypted: Cluster, folder: Path, tmp_path: Path
) -> None:
    text = (folder / "client.properties").read_text().splitlines()
    trusting = tmp_path / "trusting.properties"
    trusting.write_text("\n".join(line for line in text if "trust" in line))
    for context in (tls_context(str(trusting)), None):
        async with Producer(encrypted.namesrv.address, group=group(), ssl=context) as producer:
            with pytest.raises(NoNameServerError):
                await producer.send(Message(topic="ours", body=b"not here"))


def test_the_web_console_reads_encrypted_brokers(encrypted: Cluster, folder: Path) -> None:
    context = tls_context(str(folder / "client.properties"))
    site = Site(Options(namesrv=encrypted.namesrv.address, ssl=context))
    with TestClient(site.app, base_url="http://127.0.0.1") as http:
        assert encrypted.broker.address in http.get("/brokers").text
