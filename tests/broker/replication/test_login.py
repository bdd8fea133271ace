"""The login of a slave at the HA port of a master with accounts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness.eventually import eventually
from harness.servers import free_port

from congreve.broker.accounts.accounts import Account, Accounts
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.replication.frames import LOGIN, LOGIN_HEAD, LOGIN_MAX, REPORT
from congreve.broker.replication.login import HaLogin, Login
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.client import Credentials, Message, Producer
from congreve.engine.clock import Clock
from congreve.namesrv.server import NameServer

ADMIN = Account(access_key="administrator", secret_key="a-long-secret", admin=True)
SERVICE = Account(access_key="service", secret_key="a-long-secret")
ACCOUNTS = Accounts(by_key={each.access_key: each for each in (ADMIN, SERVICE)})
PLAIN_ACL = """
accounts:
- accessKey: administrator
  secretKey: a-long-secret
  admin: true
"""


def login_of(account: Account | None, nonce: Callable[[], str] = lambda: "once") -> HaLogin:
    return HaLogin(lambda: account, lambda: ACCOUNTS, Clock(), nonce)


def content(frame: bytes) -> bytes:
    assert LOGIN_HEAD.unpack_from(frame) == (LOGIN, len(frame) - LOGIN_HEAD.size)
    assert len(frame) - LOGIN_HEAD.size <= LOGIN_MAX
    return frame[LOGIN_HEAD.size :]


def test_an_administrator_logs_in_once_with_each_number() -> None:
    master = login_of(ADMIN)
    sent = content(login_of(ADMIN).frame())
    master.check(sent)
    with pytest.raises(ReplicationError, match="used before"):
        master.check(sent)
    master.check(content(login_of(ADMIN, lambda: "twice").frame()))
    assert login_of(None).frame() == b""


@pytest.mark.parametrize("change", [{"time": 1}, {"nonce": "other"}, {"signature": "AAAA"}])
def test_a_changed_login_is_refused(change: dict[str, object]) -> None:
    sent = msgspec.json.decode(content(login_of(ADMIN).frame())) | change
    with pytest.raises(ReplicationError, match="wrong signature"):
        login_of(ADMIN).check(msgspec.json.encode(sent))


def test_repeated_foreign_and_invalid_logins_are_refused() -> None:
    master = login_of(ADMIN)
    with pytest.raises(ReplicationError, match="not an administrator"):
        master.check(content(login_of(SERVICE).frame()))
    stranger = Account(access_key="stranger", secret_key="", admin=True)
    with pytest.raises(ReplicationError, match="wrong signature"):
        master.check(content(login_of(stranger).frame()))
    old = Login(ADMIN.access_key, Clock().now() - 3_600_000, "n")
    old.signature = old.signed_by(ADMIN.secret_key)
    with pytest.raises(ReplicationError, match="clocks"):
        master.check(msgspec.json.encode(old))
    for nonsense in (b"", b"{}", b"[1]", b"\xff" * 20, b'{"accessKey":1}'):
        with pytest.raises(ReplicationError, match="cannot be read"):
            master.check(nonsense)


def broker(folder: Path, name: str, namesrv: str, **settings: str) -> Broker:
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    (conf / "plain_acl.yml").chmod(0o600)
    texts = {
        "storePathRootDir": str(folder / name),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "brokerName": "pair",
        "listenPort": str(free_port()),
        "namesrvAddr": namesrv,
        "aclEnable": "true",
        "aclOpenNameServers": "true",
        "aclFolder": str(conf),
        "brokerAccessKey": "administrator",
        **settings,
    }
    return Broker(BrokerConfig().changed(texts))


async def test_a_slave_with_accounts_follows_and_an_unknown_peer_gets_no_message(
    tmp_path: Path,
) -> None:
    async with NameServer(port=0) as names:
        # Both are constructed before either runs, because construction blocks the event loop.
        port = free_port()
        ha = f"127.0.0.1:{port + 1}"
        master = broker(tmp_path, "master", names.address, listenPort=str(port))
        slave = broker(
            tmp_path, "slave", names.address, brokerId="1", brokerRole="SLAVE", haMasterAddress=ha
        )
        admin = Credentials(access_key="administrator", secret_key="a-long-secret")
        async with master, slave, Producer(names.address, group="g", credentials=admin) as producer:
            await producer.send(Message(topic="orders", body=b"secret"))
            await eventually(lambda: slave.store.log.max_offset == master.store.log.max_offset > 0)
            for first in (REPORT.pack(0), LOGIN_HEAD.pack(LOGIN, 2) + b"{}", REPORT.pack(1)):
                assert await asyncio.to_thread(answer_to, ha, first) == b""
            assert len(master.replication.state().slaves) == 1


def answer_to(address: str, sent: bytes) -> bytes:
    """What the HA port sends to an unauthenticated peer before it closes the connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as stranger:
        stranger.settimeout(30)
        stranger.sendall(sent)
        try:
            return stranger.recv(100)
        except ConnectionResetError:
            return b""
