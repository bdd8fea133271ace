"""Coordination services of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness.replication.etcd import Etcd

from congreve.broker.election.coordinator import Coordinator
from congreve.broker.election.etcd import EtcdCoordinator
from congreve.broker.election.json_http import JsonHttp
from congreve.broker.election.kubernetes import KubernetesCoordinator

from .fake_kubernetes import FakeKubernetes

TIMEOUT_S = 30.0
Make = Callable[[str], Coordinator]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["etcd", "kubernetes"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., object]:
    """An async context manager; yields a function that makes the coordinator of a group."""
    if request.param == "etcd":
        server: Etcd = request.getfixturevalue("etcd")

        @asynccontextmanager
        async def in_etcd() -> AsyncIterator[Make]:
            yield lambda group: EtcdCoordinator(
                [server.url], "test", f"{tmp_path.name}-{group}", timeout_s=TIMEOUT_S
            )

        return in_etcd

    @asynccontextmanager
    async def in_kubernetes() -> AsyncIterator[Make]:
        api = FakeKubernetes()
        await api.start()
        yield lambda group: KubernetesCoordinator(
            JsonHttp(api.url), "test", group, timeout_s=TIMEOUT_S
        )
        await api.stop()

    return in_kubernetes
