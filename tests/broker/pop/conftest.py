"""A coordination service for elected groups."""

from collections.abc import Iterator

import pytest
from harness.replication.etcd import Etcd


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()
