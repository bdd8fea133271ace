"""The options of the web console."""

from pathlib import Path
from ssl import SSLContext

import msgspec

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `congreve console` was started with.

    `ssl` encrypts connections to name servers and brokers, `secure` says that browsers use https.
    `hosts` are further names that browsers may use for it; `store` is the root of a store on this
    machine, for the result of `congreve tune`; `broker_log` has the broker's audit lines.
    With `hide_bodies` only the accounts `bodies_for` see bodies of messages. Changes that users
    make are written to `audit_log`. `lake` is the warehouse of tables; `lake_broker` names the
    broker whose store is `store`, None for the one that started last with it.
    """

    namesrv: str
    ssl: SSLContext | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    hosts: tuple[str, ...] = ()
    secure: bool = False
    store: Path | None = None
    broker_log: Path | None = None
    audit_log: Path | None = None
    hide_bodies: bool = False
    bodies_for: tuple[str, ...] = ()
    lake: str | None = None
    lake_catalog: str | None = None
    lake_properties: tuple[tuple[str, str], ...] = ()
    lake_broker: str | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine reach the console."""
        return self.host in LOOPBACK_HOSTS

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The names that the Host header of a request may have.

        The check stops pages of other sites whose name resolves to this machine.
        """
        return frozenset((*LOOPBACK_HOSTS, self.host, *self.hosts))
