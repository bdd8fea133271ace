"""The official gRPC clients: all types, push and simple consumers, TLS, accounts, a restart."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.grpc.test_door import TYPES, config_of, create
from broker.guarded import SECRET
from harness.build import missing_tools
from harness.certificates import Authority
from harness.drivers import Driver, grpc_clients

from congreve.broker.broker import Broker
from congreve.broker.config_parts import TlsConfig
from remoting.http2.built import needs_http2

pytestmark = [pytest.mark.interop, needs_http2]

LOOKS = 60
PROGRAMS = {
    "java": ("java", "mvn"),
    "go": ("go",),
    "node": ("node", "npm"),
    "python": (),
    "rust": ("cargo", "protoc"),
}
LONG = ("rust",)
"""Those that take minutes to build."""
ASKED_LATE = ("go", "python", "rust")
"""Clients for Go and Python open their Telemetry again when they send their settings, each five
minutes; the one for Rust never does."""
ACCOUNTS = f"""
globalWhiteRemoteAddresses:
accounts:
- accessKey: grpc-client
  secretKey: {SECRET}
  topicPerms: [Normal=PUB|SUB, Fifo=PUB|SUB, Delay=PUB|SUB, Trans=PUB|SUB]
  groupPerms: [pushed=SUB, simple=SUB]
"""


@contextmanager
def serving(root: Path, **settings: Any) -> Iterator[Broker]:
    with Broker(
        config_of(root, transaction_check_interval=200, transaction_time_out=200, **settings)
    ) as broker:
        yield broker


def make_topics(root: Path) -> None:
    """By an administrator, before there are accounts."""
    with serving(root) as broker:
        for name, kind in TYPES.items():
            create(broker, name, "" if kind is None else f"+message.type={kind}")


def guarded(root: Path, authority: Authority) -> dict[str, Any]:
    """Settings of a broker with accounts and TLS."""
    conf = root / "conf"
    conf.mkdir()
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    (conf / "plain_acl.yml").chmod(0o600)
    certificate, key = authority.issue("broker")
    tls = TlsConfig(
        server_mode="permissive", server_cert_path=str(certificate), server_key_path=str(key)
    )
    return {"acl_enable": True, "acl_folder": str(conf), "tls": tls}


def wanted(rounds: int, asked: int) -> tuple[set[str], set[str]]:
    """What the push consumer and the simple consumer of normal messages get; the client is asked
    for the ends of transactions of `asked` rounds."""
    normal = {f"n{n}-{r}" for n in range(3) for r in range(rounds)}
    ordered = {f"f{n}-{r}" for n in range(3) for r in range(rounds)}
    others = {f"{kind}-{r}" for kind in ("d", "t") for r in range(rounds)}
    ended = {f"asked-{r}" for r in range(asked)}
    return normal | ordered | others | ended, normal


def look(clients: Driver, rounds: int, asked: int) -> None:
    pushed, received = wanted(rounds, asked)
    for _ in range(LOOKS):
        found = clients.call("received")
        if (set(found["pushed"]), set(found["received"])) == (pushed, received):
            return
    raise AssertionError(found)


@pytest.mark.parametrize("language", PROGRAMS)
def test_clients_1137_7986_clients_go_on_after_a_restart(tmp_path: Path, language: str) -> None:
    if language in LONG and "INTEROP_ALL" not in os.environ:
        pytest.skip("make interop-all runs it")
    if missing := missing_tools(*PROGRAMS[language]):
        pytest.skip(f"not installed: {', '.join(missing)}")
    if language == "python" and importlib.util.find_spec("rocketmq") is None:
        pytest.skip("not installed: rocketmq-python-client")
    authority = Authority(tmp_path / "authority")
    make_topics(tmp_path / "store")
    settings = guarded(tmp_path, authority)
    with serving(tmp_path / "store", **settings) as broker:
        ports = {"listen_port": broker.port, "grpc_port": broker.config.grpc_port}
        endpoints = f"127.0.0.1:{broker.config.grpc_port}"
        clients = grpc_clients(tmp_path, language, authority.path, endpoints, "grpc-client", SECRET)
        try:
            clients.call("send")
            look(clients, 1, 1)
        except BaseException:
            clients.kill()
            raise
    try:
        with serving(tmp_path / "store", **settings, **ports):
            clients.call("send")
            look(clients, 2, 1 if language in ASKED_LATE else 2)
    finally:
        clients.kill()
