"""The login of a slave at its master's HA port, between two brokers with accounts (ours).

The slave asks for a challenge, which the master makes for this connection alone, and signs it: a
login that was captured is of no use at any other connection, also after a restart of the master and
at other masters. The contents are JSON.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import socket
from collections.abc import Callable
from typing import TypeVar

import msgspec

from congreve.base.clock import Clock
from congreve.broker.accounts.accounts import Account, Accounts
from congreve.broker.ha_frames import ASK, CHALLENGE, LOGIN, LOGIN_HEAD, LOGIN_MAX
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.remoting.loop.receiving import receive

TIME_TOLERANCE_MS = 60_000
"""How far the clocks of two brokers may be apart, for a login of the old form."""
REMEMBERED_MAX = 10_000
"""The most logins of the old form that are remembered, so that none is accepted twice."""
CHALLENGE_S = 10.0
"""How long a slave waits for a challenge, in seconds."""

T = TypeVar("T", bound=msgspec.Struct)


class Challenge(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a slave has to sign: the id of the master's store, and a number used once."""

    store: str
    number: str

    def signed_by(self, access_key: str, secret: str) -> str:
        """HMAC-SHA256 in base64."""
        return _signature(f"HA login\n{access_key}\n{self.store}\n{self.number}", secret)

    def frame(self) -> bytes:
        """What a master sends."""
        return _frame(CHALLENGE, self)


class Login(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The answer to a challenge."""

    access_key: str
    signature: str


class OldLogin(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A login of earlier versions, which a slave sends without a challenge."""

    access_key: str
    time: int  # ms since 1970
    nonce: str
    signature: str = ""

    def signed_by(self, secret: str) -> str:
        """HMAC-SHA256 in base64."""
        return _signature(f"HA\n{self.access_key}\n{self.time}\n{self.nonce}", secret)


class HaLogin:
    """Logs in as `own()`, and checks the logins of slaves by the current accounts.

    `store` is the id of this broker's store. With `old_form`, for the time of an upgrade, it logs
    in as earlier versions do and accepts such logins, too.
    """

    def __init__(
        self,
        own: Callable[[], Account | None],
        accounts: Callable[[], Accounts],
        clock: Clock,
        store: Callable[[], str],
        *,
        old_form: bool = False,
        number: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self._own = own
        self._accounts = accounts
        self._clock = clock
        self._store = store
        self._old_form = old_form
        self._number = number
        self._used: dict[str, int] = {}

    # --- at a slave

    async def log_in(self, master: socket.socket) -> None:
        """Log in at the other end of a connection that does not block; nothing without an account.

        Raises ReplicationError if the master makes no challenge, OSError for a lost connection.
        """
        account = self._own()
        if account is None:
            return
        loop = asyncio.get_running_loop()
        if self._old_form:
            await loop.sock_sendall(master, self._old_login(account))
            return
        await loop.sock_sendall(master, ASK)
        try:
            async with asyncio.timeout(CHALLENGE_S):
                content = await _challenge_from(master)
        except TimeoutError as error:
            raise ReplicationError(
                "the master does not answer the login: set haLogin=false if it is RocketMQ's, "
                "haOldLogin=true until it is upgraded"
            ) from error
        if not content:
            return  # this master asks for no login
        challenge = _decoded(content, Challenge)
        signature = challenge.signed_by(account.access_key, account.secret_key)
        await loop.sock_sendall(master, _frame(LOGIN, Login(account.access_key, signature)))

    def _old_login(self, account: Account) -> bytes:
        login = OldLogin(account.access_key, self._clock.now(), self._number())
        login.signature = login.signed_by(account.secret_key)
        return _frame(LOGIN, login)

    # --- at a master

    def challenge(self) -> Challenge:
        """A new challenge, for one connection."""
        return Challenge(self._store(), self._number())

    def check(self, content: bytes, challenge: Challenge | None) -> None:
        """Raises ReplicationError for a login that is not an administrator's answer to the
        challenge of its connection."""
        if challenge is None:
            self._check_old(content)
            return
        login = _decoded(content, Login)
        self._check_signature(login.access_key, login.signature, challenge.signed_by)

    def _check_old(self, content: bytes) -> None:
        if not self._old_form:
            raise ReplicationError(
                "a login of the form of earlier versions: upgrade the slave, or set haOldLogin=true"
                " until it is upgraded"
            )
        login = _decoded(content, OldLogin)
        self._check_signature(
            login.access_key, login.signature, lambda _, secret: login.signed_by(secret)
        )
        now = self._clock.now()
        if abs(now - login.time) > TIME_TOLERANCE_MS:
            raise ReplicationError(
                f"a login of {login.time}, but it is {now}: are the clocks of both brokers right?"
            )
        self._use(login, now)

    def _check_signature(
        self, access_key: str, given: str, signed_by: Callable[[str, str], str]
    ) -> None:
        account = self._accounts().by_key.get(access_key)
        expected = signed_by(access_key, "" if account is None else account.secret_key)
        matches = hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
        if not matches or account is None:
            raise ReplicationError(f"a login as {access_key[:64]!r} with a wrong signature")
        if not account.admin:
            raise ReplicationError(f"{account.access_key} is not an administrator")

    def _use(self, login: OldLogin, now: int) -> None:
        self._used = {
            nonce: time for nonce, time in self._used.items() if now - time <= TIME_TOLERANCE_MS
        }
        if login.nonce in self._used or len(self._used) >= REMEMBERED_MAX:
            raise ReplicationError("a login that was used before")
        self._used[login.nonce] = login.time


def _frame(kind: int, content: msgspec.Struct) -> bytes:
    encoded = msgspec.json.encode(content)
    return LOGIN_HEAD.pack(kind, len(encoded)) + encoded


async def _challenge_from(master: socket.socket) -> bytes:
    closed = ReplicationError(
        "the master closes the connection during the login: its log has the reason; set "
        "haOldLogin=true here if it is of an earlier version, until it is upgraded"
    )
    kind, size = LOGIN_HEAD.unpack(await receive(master, LOGIN_HEAD.size, closed=closed))
    if kind != CHALLENGE or not 0 <= size <= LOGIN_MAX:
        raise ReplicationError(f"the master answers the login with {kind}, {size}: no challenge")
    return await receive(master, size, closed=closed)


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplicationError(f"a {kind.__name__.lower()} that cannot be read: {error}") from error


def _signature(text: str, secret: str) -> str:
    digest = hmac.digest(secret.encode(), text.encode("utf-8", "replace"), hashlib.sha256)
    return base64.b64encode(digest).decode()
