"""Who may use the console, and the cluster that each account sees."""

import asyncio
import secrets
from contextlib import suppress

from congreve.base.errors import CongreveError
from congreve.client.errors import BrokerNotFoundError, ClientError
from congreve.console.web.cluster import Cluster
from congreve.console.web.options import Options
from congreve.console.web.refreshed import Refreshed
from congreve.console.web.serving.login_limit import LoginLimit
from congreve.console.web.serving.sessions import Session, Sessions
from congreve.remoting.messages.signature import Credentials

OPEN_AGE_S = 30.0
OPEN_STALE_S = 3600.0
"""How long after the last answer of the brokers the console still opens, and shows that they are
down. When they are back, they check each request themselves."""
FIRST_S = 2.0
NAME_MAX = 256
"""Characters of an access key and of a secret."""


class LoginError(ClientError):
    """A login was refused; `status` is that of the HTTP answer."""

    def __init__(self, text: str, status: int = 403, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.wait_s = wait_s


class Gate:
    """Opens sessions for accounts of the brokers, which check all signatures themselves.

    On loopback the console needs no login while the brokers accept unsigned requests: every
    program on this machine can send those.
    """

    def __init__(self, options: Options) -> None:
        self.sessions = Sessions()
        self._options = options
        self._limit = LoginLimit()
        self._unsigned = Cluster(options.namesrv, None, ssl=options.ssl)
        self._clusters: dict[tuple[str, str], Cluster] = {}
        self._open = Refreshed(self._is_open, OPEN_AGE_S, stale=OPEN_STALE_S)
        self._warm: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the client for unsigned requests, and read what its first page needs.

        That takes FIRST_S at most; the rest is read while the console serves.
        """
        await self._unsigned.start()
        if self._options.is_loopback:
            self._warm = asyncio.create_task(self._read_first())
            await asyncio.wait((self._warm,), timeout=FIRST_S)

    async def stop(self) -> None:
        """Close all connections."""
        if self._warm is not None:
            self._warm.cancel()
            await asyncio.gather(self._warm, return_exceptions=True)
        await self._open.stop()
        for cluster in (*self._clusters.values(), self._unsigned):
            await cluster.stop()

    async def cluster(self, session_id: str) -> tuple[Cluster, str | None] | None:
        """The cluster and access key of a session; None if the user has to log in.

        Raises CongreveError if no broker can be asked whether it needs signatures.
        """
        session = self.sessions.find(session_id)
        if session is not None:
            return self._clusters[session.access_key, session.secret_key], session.access_key
        if self._options.is_loopback and await self._open.get():
            return self._unsigned, None
        return None

    async def login(self, access_key: str, secret_key: str, address: str) -> Session:
        """Open a session for an account.

        Raises LoginError if it is refused, CongreveError if no broker answers.
        """
        if not access_key or not secret_key or max(len(access_key), len(secret_key)) > NAME_MAX:
            raise LoginError("Enter an access key and its secret.", 400)
        names = (f"address {address}", f"access key {access_key}")
        wait_s = self._limit.wait_s(*names)
        if wait_s:
            raise LoginError(
                f"There were too many failed logins: try again in {wait_s:.0f} s.", 429, wait_s
            )
        self._limit.failed(*names)  # before the answer, so that attempts at the same time count
        cluster = await self._checked(access_key, secret_key)
        self._limit.succeeded(*names)
        known = self._clusters.setdefault((access_key, secret_key), cluster)
        session = self.sessions.begin(access_key, secret_key)
        if known is not cluster:
            await cluster.stop()
        await self._drop_unused()
        return session

    async def logout(self, session_id: str) -> None:
        """End a session. Idempotent."""
        self.sessions.end(session_id)
        await self._drop_unused()

    async def _is_open(self) -> bool:
        """Whether brokers accept unsigned requests. Raises RemotingError if none answers."""
        try:
            return await self._unsigned.check_signature()
        except BrokerNotFoundError:
            return True  # no broker could be asked

    async def _read_first(self) -> None:
        """Connect, and begin to read topics and groups."""
        with suppress(CongreveError):  # the page shows what is wrong
            if await self._open.get():
                await asyncio.gather(self._unsigned.statuses(), self._unsigned.snapshot())

    async def _checked(self, access_key: str, secret_key: str) -> Cluster:
        """A cluster for this account. Raises LoginError if its broker does not accept the secret,
        or does not check it."""
        cluster = await self._signed(access_key, secret_key)
        other = await self._signed(access_key, secrets.token_urlsafe())
        try:
            if not await cluster.check_signature():
                raise LoginError("The broker does not accept this access key and secret.")
            if await other.check_signature():
                raise LoginError(
                    "The broker does not check signatures from this machine: set aclEnable=true, "
                    "and take the machine's address out of globalWhiteRemoteAddresses."
                )
        except BaseException:
            await cluster.stop()
            raise
        finally:
            await other.stop()
        return cluster

    async def _signed(self, access_key: str, secret_key: str) -> Cluster:
        credentials = Credentials(access_key=access_key, secret_key=secret_key)
        cluster = Cluster(self._options.namesrv, credentials, ssl=self._options.ssl)
        await cluster.start()
        return cluster

    async def _drop_unused(self) -> None:
        used = self.sessions.accounts()
        for account in [each for each in self._clusters if each not in used]:
            await self._clusters.pop(account).stop()
