"""Contexts of TLS from files, and the replacement of a server's certificate while it runs."""

import asyncio
import logging
import os
import ssl
import threading

from congreve.base.limited_log import LimitedLog
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.openssl import OpenSsl, load_openssl
from congreve.remoting.tls.sessions import TlsSessions
from congreve.remoting.tls.settings import (
    ClientAuth,
    ClientTls,
    ServerTls,
    TlsMode,
    client_tls,
    read_tls_file,
)

logger = logging.getLogger(__name__)

FOLLOW_S = 0.5
"""How often a server looks whether its certificate has changed, as in RocketMQ."""

Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, time of change (ns), size and inode of each file."""

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class ServerCertificates:
    """A server's certificate and key, for new connections of the event loop and of lanes.

    follow() takes changed files, certificate and key together. Open connections stay as they are.
    Raises TlsError for files that cannot be used. (RocketMQ: FileWatchService, TlsHelper.)
    """

    def __init__(self, settings: ServerTls) -> None:
        self.settings = settings
        self._openssl: OpenSsl | None = load_openssl()
        self.sessions = TlsSessions(
            {} if self._openssl is None else self._openssl.addresses,
            enforcing=self.enforcing,
            handshake_timeout_s=settings.handshake_timeout_s,
        )
        """For lanes, which leave TLS to the event loop if this Python hides its OpenSSL."""
        self.replaced_count = 0
        """How often changed files were taken."""
        self.late_handshake_count = 0
        """Connections that were closed because their handshake did not end in time."""
        self.failed_handshake_count = 0
        """Handshakes that failed, for example because of a client's certificate."""
        self.plain_refused_count = 0
        """Connections without TLS that were closed, because TLS is required."""
        self._lock = threading.Lock()
        self._log = LimitedLog(logger)
        self._failed_log = LimitedLog(logger)
        self._late_log = LimitedLog(logger)
        self._plain_log = LimitedLog(logger)
        self._stamp = self._stamp_now()
        self.context = self._load()

    @property
    def enforcing(self) -> bool:
        """Whether connections without TLS are closed."""
        return self.settings.mode == TlsMode.ENFORCING

    def follow(self) -> bool:
        """Take changed files; returns whether it did. It keeps what it has if they do not fit."""
        with self._lock:  # a broker's two servers share this object
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return False
            try:
                context = self._load()
            except TlsError as error:
                # Often only one of two files is new. The next call tries again.
                self._log.warning("the certificate stays as it is: %s", error)
                return False
            self._stamp, self.context = stamp, context
            self.replaced_count += 1
        logger.info("new connections use the new certificate of %s", self.settings.cert_path)
        return True

    async def keep_following(self) -> None:
        """Call follow() every FOLLOW_S seconds, in a thread, until cancelled."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            await asyncio.to_thread(self.follow)

    def note_late_handshake(self, peer: object) -> None:
        """Count and log a connection whose handshake did not end in time."""
        self.late_handshake_count += 1
        self._late_log.warning("%s: the TLS handshake did not end in time: closing it", peer)

    def note_failed_handshake(self, peer: object, error: Exception) -> None:
        """Count and log a handshake that failed."""
        self.failed_handshake_count += 1
        self._failed_log.warning("%s: the TLS handshake failed: %s", peer, error)

    def note_plain(self, peer: object) -> None:
        """Count and log a connection without TLS where TLS is required."""
        self.plain_refused_count += 1
        self._plain_log.warning("%s: not encrypted, but tls.server.mode=enforcing: closed", peer)

    def _load(self) -> ssl.SSLContext:
        context = server_context(self.settings)
        if self._openssl is not None:
            self.sessions.replace_context(self._openssl.context(self.settings))
        return context

    def _stamp_now(self) -> Stamp:
        settings, found = self.settings, []
        for path in (settings.cert_path, settings.key_path, settings.trust_cert_path):
            try:
                status = os.stat(path)
            except OSError:
                continue
            found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


def server_context(settings: ServerTls) -> ssl.SSLContext:
    """The server's side of asyncio connections. Raises TlsError for unusable files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["h2"])  # clients of gRPC want to hear it
    _load_chain(context, settings.cert_path, settings.key_path, settings.key_password)
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != ClientAuth.NONE:
        _load_authorities(context, settings.trust_cert_path)
    return context


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """The client's side, for asyncio and blocking connections. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.auth_server and settings.check_host_name
    context.verify_mode = ssl.CERT_REQUIRED if settings.auth_server else ssl.CERT_NONE
    if settings.trust_cert_path:
        _load_authorities(context, settings.trust_cert_path)
    elif settings.auth_server:
        context.load_default_certs()
    if settings.cert_path:
        _load_chain(context, settings.cert_path, settings.key_path, settings.key_password)
    return context


def tls_context(path: str) -> ssl.SSLContext:
    """A client's context by the keys `tls.client.*` of a tls.properties, for the setting `ssl`.

    Raises TlsError for a file or a value that cannot be used.
    """
    return client_context(client_tls(read_tls_file(path)))


def _load_chain(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
    try:
        # Not None: OpenSSL would ask at the terminal.
        context.load_cert_chain(certificate, key or None, password=lambda: password)
    except (OSError, ValueError) as error:
        raise TlsError(f"certificate {certificate} with key {key}: {_reason(error)}") from error


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise TlsError(f"authorities {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "OpenSSL gives no reason"
    return str(error) if isinstance(error, ValueError) else os.strerror(getattr(error, "errno", 0))
