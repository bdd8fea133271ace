"""The login of a slave at its master's HA port, between two brokers with accounts (ours).

It is JSON with an access key, the time, a number used once, and their signature.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable

import msgspec

from congreve.broker.accounts.accounts import Account, Accounts
from congreve.broker.replication.frames import LOGIN, LOGIN_HEAD
from congreve.broker.replication.slave_connection import ReplicationError
from congreve.engine.clock import Clock

TIME_TOLERANCE_MS = 60_000
"""How far the clocks of two brokers may be apart."""
REMEMBERED_MAX = 10_000
"""The most logins that are remembered, so that none is accepted twice; refused ones are not
remembered."""


class Login(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The content of a login."""

    access_key: str
    time: int  # ms since 1970
    nonce: str
    signature: str = ""

    def signed_by(self, secret: str) -> str:
        """HMAC-SHA256 in base64."""
        text = f"HA\n{self.access_key}\n{self.time}\n{self.nonce}".encode("utf-8", "replace")
        return base64.b64encode(hmac.digest(secret.encode(), text, hashlib.sha256)).decode()


class HaLogin:
    """Logs in as `own()`, and checks the logins of slaves by the current accounts."""

    def __init__(
        self,
        own: Callable[[], Account | None],
        accounts: Callable[[], Accounts],
        clock: Clock,
        nonce: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        self._own = own
        self._accounts = accounts
        self._clock = clock
        self._nonce = nonce
        self._used: dict[str, int] = {}

    def frame(self) -> bytes:
        """What a slave sends first; nothing without an account of its own."""
        account = self._own()
        if account is None:
            return b""
        login = Login(account.access_key, self._clock.now(), self._nonce())
        login.signature = login.signed_by(account.secret_key)
        content = msgspec.json.encode(login)
        return LOGIN_HEAD.pack(LOGIN, len(content)) + content

    def check(self, content: bytes) -> None:
        """Raises ReplicationError for a login that is not an administrator's, old, or used."""
        try:
            login = msgspec.json.decode(content, type=Login)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ReplicationError(f"a login that cannot be read: {error}") from error
        account = self._accounts().by_key.get(login.access_key)
        expected = login.signed_by("" if account is None else account.secret_key)
        given = login.signature.encode("utf-8", "replace")
        if not hmac.compare_digest(expected.encode(), given) or account is None:
            raise ReplicationError(f"a login as {login.access_key[:64]!r} with a wrong signature")
        if not account.admin:
            raise ReplicationError(f"{account.access_key} is not an administrator")
        now = self._clock.now()
        if abs(now - login.time) > TIME_TOLERANCE_MS:
            raise ReplicationError(
                f"a login of {login.time}, but it is {now}: are the clocks of both brokers right?"
            )
        self._use(login, now)

    def _use(self, login: Login, now: int) -> None:
        self._used = {
            nonce: time for nonce, time in self._used.items() if now - time <= TIME_TOLERANCE_MS
        }
        if login.nonce in self._used or len(self._used) >= REMEMBERED_MAX:
            raise ReplicationError("a login that was used before")
        self._used[login.nonce] = login.time
