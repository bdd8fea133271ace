"""A name server with accounts: every client may read routes, only administrators change
anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.servers import free_port

import congreve
from congreve.broker.accounts.requests import name_server_rules
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.client import Credentials, Message, Producer
from congreve.name_server import name_server
from congreve.namesrv.server import NameServer
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

SECRET = "a-secret-of-its-own"
ACCOUNTS = f"""
accounts:
- accessKey: administrator
  secretKey: {SECRET}
  admin: true
- accessKey: service
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""
WHO = ("nobody", "wrong signature", "service", "administrator")
HARMLESS = {
    RequestCode.PUT_KV_CONFIG: {"namespace": "n", "key": "k", "value": "v"},
    RequestCode.DELETE_KV_CONFIG: {"namespace": "n", "key": "k"},
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "none"},
}


@pytest.fixture
def accounts(tmp_path: Path) -> Path:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    (folder / "plain_acl.yml").chmod(0o600)
    return folder


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[tuple[NameServer, RemotingClient]]:
    client = RemotingClient(timeout_s=30)
    async with name_server("127.0.0.1", 0, None, acl_folder=folder) as server:
        try:
            yield server, client
        finally:
            await client.close()


def request(code: int, who: str) -> RemotingCommand:
    made = RemotingCommand(code=code, ext_fields=dict(HARMLESS.get(RequestCode(code), {})))
    if who == "wrong signature":
        Credentials(access_key="administrator", secret_key="another-secret").sign(made)
    elif who != "nobody":
        Credentials(access_key=who, secret_key=SECRET).sign(made)
    return made


async def test_every_request_code_is_allowed_or_refused_for_every_caller(accounts: Path) -> None:
    async with guarded(accounts) as (server, client):
        assert server.handlers().keys() == name_server_rules().keys()
        for code, rule in name_server_rules().items():
            passing = set()
            for who in WHO:
                answer = await client.invoke(server.address, request(code, who))
                if not (answer.remark or "").startswith("AclException"):
                    passing.add(who)
            expected = {"administrator"} if rule.admin else {"administrator", "service"}
            assert passing == (set(WHO) if rule.open else expected), code


async def test_an_unknown_caller_cannot_register_a_broker_or_remove_write_permission(
    accounts: Path,
) -> None:
    async with guarded(accounts) as (server, client):
        stranger = request(RequestCode.REGISTER_BROKER, "nobody")
        stranger.ext_fields |= {
            "brokerName": "evil",
            "brokerAddr": "127.0.0.1:1",
            "clusterName": "c",
            "haServerAddr": "127.0.0.1:2",
            "brokerId": "0",
        }
        answer = await client.invoke(server.address, stranger)
        assert (answer.code, answer.remark) == (1, "AclException: No accessKey is configured")
        assert not server.routes.cluster_info().broker_addr_table


def broker_of(accounts: Path, folder: Path, key: str, namesrv: str, **settings: str) -> Broker:
    texts = {
        "storePathRootDir": str(folder),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "listenPort": "0",
        "brokerName": folder.name,
        "aclEnable": "true",
        "aclFolder": str(accounts),
        "brokerAccessKey": key,
        "namesrvAddr": namesrv,
    }
    return Broker(BrokerConfig().changed({**texts, **settings}))


async def test_a_broker_signs_its_registration(accounts: Path, tmp_path: Path) -> None:
    async with guarded(accounts) as (server, _):

        def known() -> set[str]:
            return set(server.routes.cluster_info().broker_addr_table)

        # Both are constructed before either runs, because construction blocks the event loop.
        strong = broker_of(accounts, tmp_path / "ours", "administrator", server.address)
        weak = broker_of(accounts, tmp_path / "too-weak", "service", server.address)
        async with strong, weak:
            assert known() == {"ours"}
            service = Credentials(access_key="service", secret_key=SECRET)
            async with Producer(server.address, group="g", credentials=service) as producer:
                await producer.send(Message(topic="orders", body=b"signed"))
        assert not known()


async def test_a_broker_with_accounts_does_not_start_beside_an_open_name_server(
    accounts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_server("127.0.0.1", 0, None) as opened, guarded(accounts) as (server, _):
        both = f"{server.address};{opened.address}"
        with pytest.raises(ConfigError, match=f"name server {opened.address} has no accounts"):
            await broker_of(accounts, tmp_path / "a", "administrator", both).start()
        assert not server.routes.cluster_info().broker_addr_table
        allowed = {"aclOpenNameServers": "true"}
        async with broker_of(accounts, tmp_path / "b", "administrator", both, **allowed):
            assert set(opened.routes.cluster_info().broker_addr_table) == {"b"}
        absent = f"{server.address};127.0.0.1:{free_port()}"
        async with broker_of(accounts, tmp_path / "c", "administrator", absent):
            assert set(server.routes.cluster_info().broker_addr_table) == {"c"}
    assert "it is unknown whether the name server" in caplog.text


async def test_changed_accounts_are_loaded_again(accounts: Path) -> None:
    async with guarded(accounts) as (server, client):
        wanted = request(RequestCode.GET_NAMESRV_CONFIG, "service")
        assert (await client.invoke(server.address, wanted)).code == 1
        text = ACCOUNTS.replace("accessKey: service\n", "accessKey: service\n  admin: true\n")
        await asyncio.to_thread((accounts / "plain_acl.yml").write_text, text)

        async def passes() -> bool:
            again = request(RequestCode.GET_NAMESRV_CONFIG, "service")
            return (await client.invoke(server.address, again)).code == 0

        await eventually(passes)


async def test_a_node_with_accounts_guards_its_name_server_too(
    accounts: Path, tmp_path: Path
) -> None:
    settings = {"aclEnable": True, "aclFolder": str(accounts)}
    with pytest.raises(ConfigError, match="brokerAccessKey"):
        congreve.serve(tmp_path / "node", **settings)
    async with congreve.serve(
        tmp_path / "node", brokerAccessKey="administrator", **settings
    ) as node:
        client = RemotingClient(timeout_s=30)
        answer = await client.invoke(
            node.address, request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, "nobody")
        )
        assert answer.code == 1 and "AclException" in (answer.remark or "")
        await client.close()
        admin = Credentials(access_key="administrator", secret_key=SECRET)
        async with node.producer("g", credentials=admin) as producer:
            await producer.send(Message(topic="orders", body=b"x"))
