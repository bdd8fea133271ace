"""A broker of a Python that hides the functions of its OpenSSL: TLS, signatures, the HA port."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.certificates import Authority, ha_tls_settings
from harness.eventually import eventually
from harness.replication.pairs import running_pair

from congreve.base.errors import CongreveError
from congreve.broker.config_parts import TlsConfig
from congreve.client import AdminClient, ConsumeFrom, Message, Producer, PushConsumer
from congreve.client.results import SendStatus
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.signature import Credentials
from congreve.remoting.signatures.hmac_sha1 import load_sha1
from congreve.remoting.tls.certificates import ServerCertificates, client_context
from congreve.remoting.tls.openssl import load_openssl
from congreve.remoting.tls.settings import ClientTls, ServerTls

from ..guarded import SECRET, guarded


@pytest.fixture(autouse=True)
def hidden_openssl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No symbol of a library that Python has loaded is in reach."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    load_openssl.cache_clear()
    assert load_openssl() is None and load_sha1() is None
    yield
    load_openssl.cache_clear()


async def test_signed_messages_go_in_and_out_over_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path / "tls")
    certificate, key = map(str, authority.issue("server"))
    certificates = ServerCertificates(ServerTls(cert_path=certificate, key_path=key))
    context = client_context(ClientTls(trust_cert_path=str(authority.path)))
    names = NameServer(port=0, certificates=certificates)
    tls = TlsConfig(server_mode="enforcing", server_cert_path=certificate, server_key_path=key)
    async with (
        names,
        guarded(tmp_path, namesrv_addr=names.address, tls=tls, acl_open_name_servers=True) as (
            broker,
            _,
        ),
    ):
        assert "OpenSSL's SHA-1 is out of reach" in caplog.text
        admin, member, stranger = (
            Credentials(access_key=name, secret_key=secret)
            for name, secret in (
                ("administrator", SECRET),
                ("both-of-T", SECRET),
                ("both-of-T", "another secret"),
            )
        )
        async with AdminClient(names.address, ssl=context, credentials=admin) as tool:
            await tool.create_topic("T", cluster="C")
        async with (
            Producer(names.address, group="P", ssl=context, credentials=member) as producer,
            PushConsumer(
                names.address,
                group="G",
                topics={"T": "*"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
                ssl=context,
                credentials=member,
            ) as consumer,
        ):
            bodies = {str(number).encode() for number in range(50)}
            results = [await producer.send(Message(topic="T", body=body)) for body in bodies]
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            async for message in consumer:
                bodies.discard(message.body)
                if not bodies:
                    break
        async with Producer(
            names.address, group="P", ssl=context, credentials=stranger
        ) as producer:
            with pytest.raises(CongreveError, match="signature"):
                await producer.send(Message(topic="T", body=b"x"))
        assert broker.store.queues.get("T", 0) is not None


async def test_a_slave_follows_at_the_ha_port(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    tls = ha_tls_settings(authority, *authority.issue("broker"))
    master = {"brokerRole": "SYNC_MASTER", **tls}
    async with running_pair(tmp_path, master=master, slave=tls) as pair:
        await eventually(lambda: bool(pair.master.replication.state().slaves))
        async with Producer(pair.name_server.address, group="p") as producer:
            for _ in range(10):
                result = await producer.send(Message(topic="T", body=bytes(1_000)))
                assert result.status is SendStatus.SEND_OK
        assert pair.slave.store.log.max_offset == pair.master.store.log.max_offset
