"""Sessions of users who logged in, and the CSRF tokens of forms."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

import msgspec

COOKIE = "congreve_session"
IDLE_S = 30 * 60.0
"""A session ends after this time without a request."""
LIFETIME_S = 12 * 3600.0
SESSIONS_MAX = 100
"""A further login ends the session that was idle for the longest time."""
ID_BYTES = 32


class Session(msgspec.Struct):
    """A logged-in user; times are those of the monotonic clock, in seconds."""

    id: str
    access_key: str
    secret_key: str
    began_at: float
    used_at: float

    def __repr__(self) -> str:
        return f"Session(access_key={self.access_key!r})"


class Sessions:
    """The open sessions, in memory: they end with the process."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._by_id: dict[str, Session] = {}
        self._csrf_key = secrets.token_bytes(ID_BYTES)

    def begin(self, access_key: str, secret_key: str) -> Session:
        """A new session with a random id."""
        now = self._monotonic()
        self._drop_ended(now)
        if len(self._by_id) >= SESSIONS_MAX:
            oldest = min(self._by_id.values(), key=lambda session: session.used_at)
            self.end(oldest.id)
        session = Session(new_id(), access_key, secret_key, now, now)
        self._by_id[session.id] = session
        return session

    def find(self, session_id: str) -> Session | None:
        """The open session with this id, None without one; it counts as used."""
        now = self._monotonic()
        session = self._by_id.get(session_id)
        if session is None:
            return None
        if self._is_over(session, now):
            self.end(session_id)
            return None
        session.used_at = now
        return session

    def end(self, session_id: str) -> None:
        """End a session. Idempotent."""
        self._by_id.pop(session_id, None)

    def accounts(self) -> set[tuple[str, str]]:
        """The access keys and secrets of all open sessions."""
        self._drop_ended(self._monotonic())
        return {(each.access_key, each.secret_key) for each in self._by_id.values()}

    def csrf_token(self, session_id: str) -> str:
        """The token that each form of a session carries."""
        return hmac.new(self._csrf_key, session_id.encode(), hashlib.sha256).hexdigest()

    def is_csrf_token(self, session_id: str, token: str) -> bool:
        """Whether a form's token is that of the session, compared in constant time."""
        return hmac.compare_digest(self.csrf_token(session_id).encode(), token.encode())

    def _drop_ended(self, now: float) -> None:
        for session in [each for each in self._by_id.values() if self._is_over(each, now)]:
            self.end(session.id)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used_at > IDLE_S or now - session.began_at > LIFETIME_S


def new_id() -> str:
    """A random id for a cookie."""
    return secrets.token_urlsafe(ID_BYTES)
