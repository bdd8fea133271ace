"""The login of a slave at the HA port of a master with accounts."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from harness.eventually import eventually
from harness.servers import free_port

from congreve.base.clock import Clock
from congreve.broker.accounts.accounts import Account, Accounts
from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.ha_frames import ASK, LOGIN, LOGIN_HEAD, REPAIR, REPORT
from congreve.broker.replication.login import Challenge, HaLogin, Login, OldLogin
from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.client import Credentials, Message, Producer
from congreve.engine.config import StoreConfig
from congreve.engine.log.commit_log import CommitLog
from congreve.engine.store import MessageStore
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


def login_of(account: Account | None, store: str = "store", *, old_form: bool = False) -> HaLogin:
    return HaLogin(lambda: account, lambda: ACCOUNTS, Clock(), lambda: store, old_form=old_form)


def answer(account: Account, challenge: Challenge) -> bytes:
    signature = challenge.signed_by(account.access_key, account.secret_key)
    return msgspec.json.encode(Login(account.access_key, signature))


def old_login(account: Account = ADMIN, age_ms: int = 0, nonce: str = "once") -> bytes:
    login = OldLogin(account.access_key, Clock().now() - age_ms, nonce)
    login.signature = login.signed_by(account.secret_key)
    return msgspec.json.encode(login)


def test_a_login_is_of_one_connection_of_one_master() -> None:
    master = login_of(ADMIN)
    challenge = master.challenge()
    sent = answer(ADMIN, challenge)
    master.check(sent, challenge)
    restarted, other = login_of(ADMIN), login_of(ADMIN, "other")
    same_number = Challenge("other", challenge.number)
    for peer, asked in (
        (master, master.challenge()),
        (restarted, restarted.challenge()),
        (other, other.challenge()),
        (other, same_number),
    ):
        with pytest.raises(ReplicationError, match="wrong signature"):
            peer.check(sent, asked)


def test_foreign_and_invalid_logins_are_refused() -> None:
    master = login_of(ADMIN)
    challenge = master.challenge()
    with pytest.raises(ReplicationError, match="not an administrator"):
        master.check(answer(SERVICE, challenge), challenge)
    stranger = Account(access_key="stranger", secret_key="", admin=True)
    with pytest.raises(ReplicationError, match="wrong signature"):
        master.check(answer(stranger, challenge), challenge)
    for nonsense in (b"", b"{}", b"[1]", b"\xff" * 20, b'{"accessKey":1}', old_login()):
        with pytest.raises(ReplicationError, match="cannot be read"):
            master.check(nonsense, challenge)


def test_a_login_of_the_old_form_needs_the_setting() -> None:
    with pytest.raises(ReplicationError, match="haOldLogin"):
        login_of(ADMIN).check(old_login(), None)
    master = login_of(ADMIN, old_form=True)
    master.check(old_login(), None)
    master.check(old_login(nonce="twice"), None)
    for wrong, why in (
        (old_login(), "used before"),
        (old_login(age_ms=3_600_000), "clocks"),
        (old_login(SERVICE), "not an administrator"),
        (msgspec.json.encode(msgspec.json.decode(old_login()) | {"nonce": "n"}), "signature"),
    ):
        with pytest.raises(ReplicationError, match=why):
            master.check(wrong, None)


async def logs_in(slave: HaLogin, master: HaLogin | None, log: CommitLog) -> bool:
    """Whether a slave gets as far as its first report."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        own, _ = listener.accept()
        with peer, own:
            peer.setblocking(False)
            own.setblocking(False)
            connection = SlaveConnection(own, log, 1 << 20, 0.0, master)

            async def serve() -> None:
                while not connection.started:
                    await asyncio.sleep(0.001)
                    try:
                        connection.read(0.0)
                    except ReplicationError:
                        own.close()
                        return

            async def follow() -> None:
                with suppress(ReplicationError):
                    await slave.log_in(peer)
                    await asyncio.get_running_loop().sock_sendall(peer, REPORT.pack(0))

            await asyncio.gather(serve(), follow())
            return connection.started


@pytest.mark.parametrize(
    ("slave_is_old", "master_takes_old", "expected"),
    [(False, False, True), (False, True, True), (True, True, True), (True, False, False)],
)
async def test_a_pair_is_upgraded_in_either_order(
    tmp_path: Path, slave_is_old: bool, master_takes_old: bool, expected: bool
) -> None:
    store = MessageStore(StoreConfig(root_dir=str(tmp_path), max_hash_slot_num=1000))
    store.start()
    try:
        slave = login_of(ADMIN, old_form=slave_is_old)
        master = login_of(ADMIN, old_form=master_takes_old)
        assert await logs_in(slave, master, store.log) == expected
        assert await logs_in(slave, None, store.log), "this master needs no login"
        assert not await logs_in(login_of(None), master, store.log)
    finally:
        store.close()


async def test_a_captured_login_is_not_accepted_again(tmp_path: Path) -> None:
    master = login_of(ADMIN)
    store = MessageStore(StoreConfig(root_dir=str(tmp_path), max_hash_slot_num=1000))
    store.start()
    captured: list[bytes] = []

    class Replayed(HaLogin):
        async def log_in(self, master: socket.socket) -> None:
            await asyncio.get_running_loop().sock_sendall(master, ASK + captured[0])

    check = master.check

    def noting(content: bytes, challenge: Challenge | None) -> None:
        captured.append(LOGIN_HEAD.pack(LOGIN, len(content)) + content)
        check(content, challenge)

    master.check = noting  # type: ignore[method-assign]
    try:
        assert await logs_in(login_of(ADMIN), master, store.log)
        again = Replayed(lambda: ADMIN, lambda: ACCOUNTS, Clock(), lambda: "store")
        for peer in (master, login_of(ADMIN), login_of(ADMIN, "other")):
            assert not await logs_in(again, peer, store.log)
    finally:
        store.close()


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
            old = LOGIN_HEAD.pack(LOGIN, len(old_login())) + old_login()
            for first in (REPORT.pack(0), LOGIN_HEAD.pack(LOGIN, 2) + b"{}", old, REPORT.pack(1)):
                assert await asyncio.to_thread(answer_to, ha, first) == b""
                assert await asyncio.to_thread(answer_to, ha, REPAIR + first) == b""
            assert await asyncio.to_thread(answer_to, ha, REPAIR + REPAIR) == b""
            asked = master.replication.repair, slave.replication.repair
            await eventually(lambda: asked[0].peers.endswith("(slave)"))
            await eventually(lambda: asked[1].peers.endswith("(master)"))
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
