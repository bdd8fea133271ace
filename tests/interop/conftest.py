"""A name server, a broker and the official clients for every test here.

The tests run with Congreve, and also with the reference if a module has KINDS, as those of the
Python client do. INTEROP_SERVER=java in the environment runs all tests with the reference, which
proves the tests themselves; INTEROP_SERVER=both runs them with one after the other.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build, servers
from harness.cluster import Cluster
from harness.drivers import Driver, java5_driver, java_driver

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        usual = getattr(metafunc.module, "KINDS", ("congreve",))
        choice = os.environ.get("INTEROP_SERVER")
        chosen = {None: usual, "both": ("congreve", "java")}.get(choice, (choice,))
        metafunc.parametrize("kind", chosen, scope="session")


@pytest.fixture(scope="session", autouse=True)
def jvm() -> None:
    """Skip where there is no Java; build the driver once."""
    if missing := build.missing_tools("java", "mvn"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    build.classpath()


@pytest.fixture(scope="session")
def namesrv(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """A started name server, for brokers of any kind."""
    server = servers.namesrv(kind, tmp_path_factory.mktemp(f"{kind}-namesrv"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster(
    kind: str, namesrv: servers.Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A name server and a broker that live as long as the run: each test takes its own topics."""
    broker = servers.broker(kind, tmp_path_factory.mktemp(f"{kind}-broker"), namesrv.address)
    broker.start()
    yield Cluster(namesrv, broker)
    assert broker.stop() in (0, 143), broker.tail()


@pytest.fixture
def fragile(
    request: pytest.FixtureRequest, kind: str, namesrv: servers.Server, tmp_path: Path
) -> Iterator[Cluster]:
    """A broker for one test, which may stop or kill it.

    A module may set WATCHDOG_MILLIS if long turns of the event loop are expected.
    """
    broker = servers.broker(
        *(kind, tmp_path, namesrv.address),
        broker_name=f"broker-{uuid.uuid4().hex[:6]}",
        settings={
            "enablePropertyFilter": "true",
            "flushDiskType": "SYNC_FLUSH",
            "messageDelayLevel": "1s 1s 2s",
        },
        watchdog_millis=getattr(request.module, "WATCHDOG_MILLIS", None),
    )
    broker.start()
    yield Cluster(namesrv, broker)
    broker.kill()


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The Java client and mqadmin with JSON headers."""
    driver = java_driver(tmp_path_factory.mktemp("java-driver"), "JSON")
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def java_binary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The Java client and mqadmin with binary headers."""
    driver = java_driver(tmp_path_factory.mktemp("java-driver-binary"), "ROCKETMQ")
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def java5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The Java client and mqadmin of RocketMQ 5."""
    driver = java5_driver(tmp_path_factory.mktemp("java5-driver"))
    yield driver
    driver.close()


@pytest.fixture
def topic(cluster: Cluster, java: Driver) -> str:
    """A new topic of four queues."""
    name = f"interop-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(java, name, queues=4)
    return name


@pytest.fixture(scope="session")
def go(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The Go client v2."""
    if build.missing_tools("go"):
        pytest.skip("not installed: go")
    driver = Driver([str(build.go_driver())], tmp_path_factory.mktemp("go-driver"), "go-driver")
    yield driver
    driver.close()
