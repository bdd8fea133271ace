"""Replication over TLS: links, refused strangers, replaced certificates."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.certificates import Authority, ha_tls_settings
from harness.eventually import eventually
from harness.replication.pairs import Pair, broker_config, running_pair

from congreve.broker.broker import Broker
from congreve.broker.ha_frames import REPORT
from congreve.client import Message, Producer
from congreve.client.results import SendStatus
from congreve.namesrv.server import NameServer
from congreve.remoting.tls.certificates import client_context
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.settings import ClientTls

SYNC = {"brokerRole": "SYNC_MASTER"}


def follows(pair: Pair) -> Callable[[], bool]:
    return lambda: bool(pair.master.replication.state().slaves)


async def send(producer: Producer, count: int) -> set[SendStatus]:
    results = await asyncio.gather(
        *(producer.send(Message(topic="T", body=bytes(1_000))) for _ in range(count))
    )
    return {result.status for result in results}


def ha_connection(pair: Pair) -> socket.socket:
    host, _, port = pair.master.replication.ha_address.rpartition(":")
    return socket.create_connection((host, int(port)), 60)


def answer_to_plain(pair: Pair) -> bytes:
    """What a slave without TLS gets."""
    with ha_connection(pair) as plain:
        plain.sendall(REPORT.pack(0))
        try:
            return plain.recv(1)
        except ConnectionResetError:
            return b""


def answer_to_stranger(pair: Pair, authority: Authority) -> bytes:
    """What a peer with TLS and without a certificate gets."""
    context = client_context(ClientTls(trust_cert_path=str(authority.path)))
    try:
        with context.wrap_socket(ha_connection(pair)) as stranger:
            stranger.sendall(REPORT.pack(0))
            return stranger.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""


def shown_name(pair: Pair, authority: Authority, certificate: Path, key: Path) -> str:
    """The name in the certificate that a new connection gets."""
    context = client_context(
        ClientTls(
            trust_cert_path=str(authority.path), cert_path=str(certificate), key_path=str(key)
        )
    )
    with context.wrap_socket(ha_connection(pair)) as member:
        shown = member.getpeercert()
        assert shown is not None
        return str(dict(pair for (pair,) in shown["subject"])["commonName"])


async def test_a_slave_follows_over_tls_and_strangers_get_no_byte(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("first")
    new_certificate, new_key = authority.issue("second")
    tls = ha_tls_settings(authority, certificate, key)
    async with running_pair(tmp_path, master={**SYNC, **tls}, slave=tls) as pair:
        await eventually(follows(pair))
        (link,) = pair.master.replication.state().slaves
        async with Producer(pair.name_server.address, group="p") as producer:
            assert await send(producer, 300) == {SendStatus.SEND_OK}
            assert pair.slave.store.log.max_offset == pair.master.store.log.max_offset

            counted = pair.master.replication._settings.certificates
            assert counted is not None
            assert await asyncio.to_thread(answer_to_stranger, pair, authority) == b""
            await eventually(lambda: counted.failed_handshake_count == 1)
            assert await asyncio.to_thread(answer_to_plain, pair) == b""
            await eventually(lambda: "it does not encrypt" in caplog.text)

            own = certificate, key
            name = await asyncio.to_thread(shown_name, pair, authority, *own)
            assert name == "first"
            shutil.copy(new_certificate, certificate)
            shutil.copy(new_key, key)
            await eventually(lambda: counted.replaced_count > 0)
            name = await asyncio.to_thread(shown_name, pair, authority, *own)
            assert name == "second"
            assert await send(producer, 20) == {SendStatus.SEND_OK}
        assert [each.address for each in pair.master.replication.state().slaves] == [link.address]


async def test_a_slave_with_tls_says_why_it_does_not_follow_a_master_without(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path / "tls")
    tls = ha_tls_settings(authority, *authority.issue("broker"))
    async with running_pair(tmp_path, slave=tls) as pair:
        await eventually(lambda: "haTlsEnable" in pair.slave.replication.state().trouble)
        assert not pair.master.replication.state().slaves


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "certPath"),
        ({"haTlsNeedClientAuth": "require"}, "certPath"),
        ({"haTlsNeedClientAuth": "perhaps"}, "perhaps"),
    ],
)
async def test_a_master_without_a_certificate_or_with_another_word_does_not_start(
    settings: dict[str, str], why: str, tmp_path: Path
) -> None:
    config = broker_config(tmp_path, NameServer(port=0), haTlsEnable="true", **settings)
    with pytest.raises(TlsError, match=f"haTlsEnable=true.*{why}"):
        Broker(config)
