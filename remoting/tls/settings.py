"""Settings of TLS, as tls.properties and broker.conf have them (RocketMQ: TlsSystemConfig)."""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from congreve.base import properties
from congreve.remoting.tls.errors import TlsError

T = TypeVar("T", bound=msgspec.Struct)

DEFAULT_FILE = "/etc/rocketmq/tls.properties"
TLS_HANDSHAKE = 0x16
"""The first byte of every connection with TLS."""
FILE_MAX = 1 << 20
"""Most bytes of a tls.properties."""


class TlsMode(StrEnum):
    """Which connections a server accepts (RocketMQ: TlsMode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """With and without TLS, as the first byte of each connection says."""
    ENFORCING = "enforcing"
    """Only with TLS."""


class ClientAuth(StrEnum):
    """Whether a server asks its clients for certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class ServerTls(msgspec.Struct, frozen=True, kw_only=True):
    """The server's side. Without `cert_path` a permissive server has no TLS."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_path: str = ""
    """A file of PEM: the server's certificate, then those between it and its authority."""
    key_path: str = ""
    key_password: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    trust_cert_path: str = ""
    """A file of PEM with the authorities of client certificates."""
    handshake_timeout_s: float = 10.0

    def check(self) -> "ServerTls":
        """These settings. Raises TlsError when they contradict each other."""
        if self.mode == TlsMode.DISABLED:
            return self
        if bool(self.cert_path) != bool(self.key_path):
            raise TlsError(
                "tls.server.certPath and tls.server.keyPath belong together: set both or neither"
            )
        if self.mode == TlsMode.ENFORCING and not self.cert_path:
            raise TlsError(
                "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath"
            )
        if self.client_auth != ClientAuth.NONE and not self.trust_cert_path:
            raise TlsError(
                f"tls.server.need.client.auth={self.client_auth} needs tls.server.trustCertPath,"
                " a file with the authorities of client certificates"
            )
        return self

    @property
    def enabled(self) -> bool:
        """Whether the server has TLS."""
        return self.mode != TlsMode.DISABLED and bool(self.cert_path)


class ClientTls(msgspec.Struct, frozen=True, kw_only=True):
    """The client's side. Without `trust_cert_path` the system's authorities count."""

    cert_path: str = ""
    key_path: str = ""
    key_password: str = ""
    auth_server: bool = True
    """Whether the server's certificate must be valid; false accepts any server."""
    check_host_name: bool = False
    """Whether the certificate must also name the address that the client connects to."""
    trust_cert_path: str = ""


SERVER_KEYS = {
    "tls.server.mode": "mode",
    "tls.server.certPath": "cert_path",
    "tls.server.keyPath": "key_path",
    "tls.server.keyPassword": "key_password",
    "tls.server.need.client.auth": "client_auth",
    "tls.server.trustCertPath": "trust_cert_path",
}
CLIENT_KEYS = {
    "tls.client.certPath": "cert_path",
    "tls.client.keyPath": "key_path",
    "tls.client.keyPassword": "key_password",
    "tls.client.authServer": "auth_server",
    "tls.client.checkHostName": "check_host_name",
    "tls.client.trustCertPath": "trust_cert_path",
}


def read_tls_file(path: str) -> dict[str, str]:
    """The keys and values of a tls.properties; none where the file at DEFAULT_FILE is missing.

    Raises TlsError for a file that cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_MAX + 1)
    except FileNotFoundError as error:
        if path == DEFAULT_FILE:
            return {}
        raise TlsError(f"tls.config.file={path}: there is no such file") from error
    except OSError as error:
        raise TlsError(f"tls.config.file={path}: {os.strerror(error.errno or 0)}") from error
    if len(content) > FILE_MAX:
        raise TlsError(f"tls.config.file={path}: more than {FILE_MAX} bytes")
    try:
        return properties.values(content.decode("utf-8", "replace"))
    except properties.PropertiesError as error:
        raise TlsError(f"tls.config.file={path}: {error}") from error


def server_tls(texts: Mapping[str, str], base: ServerTls | None = None) -> ServerTls:
    """`base` with the values of tls.properties. Raises TlsError for a value that is not allowed."""
    return _with(base or ServerTls(), texts, SERVER_KEYS).check()


def client_tls(texts: Mapping[str, str], base: ClientTls | None = None) -> ClientTls:
    """`base` with the values of tls.properties. Raises TlsError for a value that is not allowed."""
    return _with(base or ClientTls(), texts, CLIENT_KEYS)


def _with(base: T, texts: Mapping[str, str], keys: Mapping[str, str]) -> T:
    values = msgspec.structs.asdict(base)
    types = {field.name: field.type for field in msgspec.structs.fields(base)}
    for key, field in keys.items():
        if key in texts:
            try:
                values[field] = msgspec.convert(texts[key], types[field], strict=False)
            except msgspec.ValidationError as error:
                raise TlsError(f"{key}={texts[key][:80]!r}: {error}") from error
    return type(base)(**values)
