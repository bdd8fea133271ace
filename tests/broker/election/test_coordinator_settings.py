"""Settings of coordinators: TLS and accounts of etcd, the service account of a pod."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from harness.certificates import Authority
from harness.eventually import eventually
from harness.replication.elected import ElectedGroup
from harness.replication.etcd import Etcd

from congreve.broker.config import BrokerConfig
from congreve.broker.election.coordinator import CoordinatorError, Master
from congreve.broker.election.coordinators import coordinator_of, lease_name
from congreve.broker.election.json_http import JsonHttp
from congreve.broker.errors import ConfigError
from congreve.remoting.tls.certificates import client_context, server_context
from congreve.remoting.tls.settings import ClientTls, ServerTls

from .fake_kubernetes import FakeKubernetes

PASSWORD = "a-secret-of-etcd"
MASTER = Master(1, 1, "127.0.0.1:10", "127.0.0.1:11")
LONG_S = 600


async def enable_accounts(api: JsonHttp) -> None:
    """Accounts root and congreve; the second one has the keys below /congreve/."""
    prefix = {
        "key": b64encode(b"/congreve/").decode(),
        "range_end": b64encode(b"/congreve0").decode(),
    }
    for path, body in (
        ("user/add", {"name": "root", "password": "root"}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "brokers"}),
        ("role/grant", {"name": "brokers", "perm": {"permType": "READWRITE", **prefix}}),
        ("user/add", {"name": "congreve", "password": PASSWORD}),
        ("user/grant", {"user": "congreve", "role": "brokers"}),
        ("enable", {}),
    ):
        answer = await api.request("POST", f"/v3/auth/{path}", body, 60)
        assert answer.status == 200, (path, answer)


async def test_etcd_with_client_certificates_and_accounts(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    # etcd takes no common name in the certificate of an account that has a password.
    certificate, key = authority.issue("congreve", field="O")
    server = Etcd(tmp_path / "etcd", authority.issue("etcd"), authority.path)
    server.start()
    texts = {
        "haMode": "etcd",
        "haLeaseSeconds": "90",  # a third of it is the time limit of a request
        "etcdEndpoints": server.url,
        "etcdTrustCertPath": str(authority.path),
        "etcdCertPath": str(certificate),
        "etcdKeyPath": str(key),
        "etcdUser": "congreve",
        "etcdPassword": PASSWORD,
    }
    try:
        settings = ClientTls(
            cert_path=str(certificate), key_path=str(key), trust_cert_path=str(authority.path)
        )
        tls = client_context(settings)
        await enable_accounts(JsonHttp(server.url, tls=tls))
        mine = coordinator_of(BrokerConfig().changed(texts))
        elected = await mine.elect(await mine.read(), MASTER, LONG_S)
        server.stop()  # which invalidates all its tokens
        server.start()
        await mine.keep_alive()
        grown = await mine.change_set(elected, frozenset({1, 2}), 1)
        assert await mine.read() == grown
        await mine.resign()
        for wrong in (
            {"etcdPassword": PASSWORD + "x"},
            {"etcdUser": "", "etcdPassword": ""},
            {"etcdCertPath": "", "etcdKeyPath": ""},
            {"etcdTrustCertPath": ""},
        ):
            stranger = coordinator_of(BrokerConfig().changed({**texts, **wrong}))
            with pytest.raises(CoordinatorError) as refused:
                await stranger.read()
            assert PASSWORD not in str(refused.value)
        named = dict(
            zip(("etcdCertPath", "etcdKeyPath"), map(str, authority.issue("x")), strict=True)
        )
        with pytest.raises(CoordinatorError, match="CommonName"):
            await coordinator_of(BrokerConfig().changed({**texts, **named})).read()
        config = BrokerConfig().changed(texts)
        assert PASSWORD not in str(config.public_settings())
    finally:
        server.stop()


async def test_a_group_in_kubernetes(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    certificate, key = map(str, authority.issue("kubernetes"))
    api = FakeKubernetes(server_context(ServerTls(cert_path=certificate, key_path=key)))
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_bytes(authority.path.read_bytes())
    (account / "namespace").write_text("test")
    (account / "token").write_text("first\n")
    api.token = "first"
    await api.start()
    settings = {
        "haMode": "kubernetes",
        "kubernetesApi": api.url,
        "kubernetesServiceAccount": str(account),
        "haLeaseSeconds": "15",
    }
    async with ElectedGroup(tmp_path, None, **settings) as group:
        await group.start(1)
        assert await group.master() == 1
        await group.start(2)
        await eventually(lambda: group.in_sync() == {1, 2})
        name = lease_name("DefaultCluster", f"g-{tmp_path.name}")
        assert set(api.leases) == {name}
        (account / "token").write_text("second")  # as the kubelet does every hour
        api.token = "second"
        await group.stop(1)
        assert await group.master() == 2
    await api.stop()


def test_each_group_has_a_lease_of_its_own() -> None:
    names = {
        lease_name(*each)
        for each in (
            ("C", "a_b"),
            ("C", "a-b"),
            ("D", "a-b"),
            ("C", "A-B"),
            ("C", "x" * 200),
            ("C", "%"),
        )
    }
    assert len(names) == 6
    assert all(len(name) <= 63 and name.strip("-") == name for name in names)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"haMode": "paxos"}, "haMode='paxos'"),
        ({"haMode": "etcd"}, "etcdEndpoints"),
        ({"etcdUser": "u"}, "etcdPassword"),
        ({"etcdCertPath": "/c"}, "etcdKeyPath"),
        ({"etcdTrustCertPath": "/no/such/file"}, "authorities /no/such/file"),
        ({"haMode": "kubernetes", "kubernetesApi": "http://x"}, "/namespace"),
        ({"haMode": "kubernetes"}, "ca.crt"),
    ],
)
def test_settings_that_cannot_work_are_refused(texts: dict[str, str], why: str) -> None:
    usual = {"haMode": "etcd"}
    if texts.keys() - {"haMode"}:
        usual["etcdEndpoints"] = "https://127.0.0.1:1"
    config = BrokerConfig().changed({**usual, "kubernetesServiceAccount": "/no/pod", **texts})
    with pytest.raises(ConfigError, match=why):
        coordinator_of(config)
