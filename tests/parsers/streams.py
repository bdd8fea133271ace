"""Parsers of the streams on the HA port, which read from sockets."""

from __future__ import annotations

import atexit
import contextlib
import socket
import struct
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from congreve.base.clock import ManualClock
from congreve.broker.accounts.accounts import Account, Accounts
from congreve.broker.ha_frames import ASK, HEADER, LOGIN, LOGIN_HEAD
from congreve.broker.replication.log_follower import LogFollower
from congreve.broker.replication.login import HaLogin, Login
from congreve.broker.replication.settings import ReplicationSettings
from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.engine.config import StoreConfig
from congreve.engine.store import MessageStore
from congreve.records.message.message import Record
from congreve.remoting.tls.relay import RelayedSocket

from .messages import RECORDS
from .parser import Parser

FRAME = 1_000
EMPTIED_EACH = 10
"""To open a store takes longer than to parse, and measure.py takes the quickest of six calls."""
ACCOUNT = Account(access_key="a-broker", secret_key="its-secret", admin=True)
CLOCK = ManualClock(1_700_000_000_000)
SETTINGS = ReplicationSettings(
    sync_flush=False,
    transfer_batch_bytes=FRAME,
    heartbeat_s=60.0,
    silence_s=60.0,
    allowed_addresses="*",
)


class _Store:
    """A small store in a temporary folder, made when it is needed first."""

    def __init__(self, *records: Record) -> None:
        self._records = records
        self._open = contextlib.ExitStack()
        self._store: MessageStore | None = None
        self._closes_at_exit = False

    def get(self) -> MessageStore:
        """The store, open."""
        if self._store is None:
            self._open = contextlib.ExitStack()
            folder = self._open.enter_context(tempfile.TemporaryDirectory())
            config = StoreConfig(
                root_dir=folder,
                mapped_file_size_commit_log=1 << 20,
                mapped_file_size_consume_queue=2_000,
                max_hash_slot_num=100,
                max_index_num=200,
                flush_disk_type="ASYNC_FLUSH",
            )
            self._store = self._open.enter_context(MessageStore(config))
            for record in self._records:
                self._store.put(record)
            if not self._closes_at_exit:
                # After the folder's own hook, because the last one runs first; and once, because
                # Python keeps the place of each hook that is removed.
                atexit.register(self.close)
                self._closes_at_exit = True
        return self._store

    def close(self) -> None:
        """Close and remove it; get() makes another one."""
        self._open.close()
        self._store = None


@contextlib.contextmanager
def _connection(data: bytes) -> Iterator[RelayedSocket]:
    """A socket from which `data` can be read, and then the end of the connection."""
    own, peer = socket.socketpair()
    with peer, RelayedSocket(fileno=own.detach()) as end:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # more than the system keeps for a socket
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        end.setblocking(False)
        yield end


class _Master:
    """The master's end of a slave's connection."""

    def __init__(self) -> None:
        self._store = _Store(*(Record(topic="T", body=bytes(100)) for _ in range(5)))
        self._accounts = Accounts(by_key={ACCOUNT.access_key: ACCOUNT})

    def logins(self) -> HaLogin:
        """Checks logins, those of the old form for the first time."""
        return HaLogin(
            *(lambda: ACCOUNT, lambda: self._accounts, CLOCK, lambda: "store"),
            old_form=True,
            number=lambda: "once",
        )

    def parse(self, data: bytes) -> object:
        """What a master believes of a slave's stream, with and without a login before it."""
        found = []
        for login in (None, self.logins()):
            with _connection(data) as peer:
                connection = SlaveConnection(peer, self._store.get().log, FRAME, 0.0, login)
                with contextlib.suppress(ReplicationError):
                    while connection.read(1.0):
                        pass
                found.append(connection.acknowledged)
        return found


class _Slave:
    """The slave's end of a master's connection; its log is empty again after EMPTIED_EACH calls."""

    def __init__(self) -> None:
        self._store = _Store()
        self._follower: LogFollower | None = None
        self._calls = 0

    def parse(self, data: bytes) -> object:
        """What a slave takes of a master's stream."""
        store = self._store.get()
        self._calls += 1
        if store.log.max_offset and self._follower is not None and self._calls % EMPTIED_EACH == 0:
            self._follower.close()
            self._store.close()
            store, self._follower = self._store.get(), None
        if self._follower is None:
            nothing: Any = lambda _: None  # noqa: E731
            self._follower = LogFollower(store, SETTINGS, nothing)
        with _connection(data) as peer, contextlib.suppress(ReplicationError):
            self._follower.follow(peer, store.log.max_offset)
        return store.log.max_offset


def parsers() -> Iterator[Parser]:
    """All parsers of this module."""
    master, slave = _Master(), _Slave()
    old_login = master.logins()._old_login(ACCOUNT)
    challenge = master.logins().challenge()
    signature = challenge.signed_by(ACCOUNT.access_key, ACCOUNT.secret_key)
    content = msgspec.json.encode(Login(ACCOUNT.access_key, signature))
    login = ASK + LOGIN_HEAD.pack(LOGIN, len(content)) + content
    yield Parser(
        "stream of a slave",
        ("broker/replication/slave_connection.pyx",),
        master.parse,
        [struct.pack(">3q", 0, 0, 0), login + struct.pack(">q", 0), old_login, login[:40]],
    )
    yield Parser(
        "stream of a master",
        ("broker/replication/log_follower.pyx", "engine/replication/log_receiver.pyx"),
        slave.parse,
        [
            HEADER.pack(0, len(RECORDS[0])) + RECORDS[0],
            HEADER.pack(0, 0) * 3,
            HEADER.pack(0, len(RECORDS[1])) + RECORDS[1] + HEADER.pack(len(RECORDS[1]), 0),
        ],
    )
