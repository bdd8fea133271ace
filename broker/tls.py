"""The broker's settings of TLS, from broker.conf and tls.properties (RocketMQ: TlsSystemConfig)."""

import ssl

from congreve.broker.config import BrokerConfig
from congreve.remoting.tls.certificates import ServerCertificates, tls_context
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.settings import (
    ServerTls,
    TlsMode,
    read_tls_file,
    server_tls,
)


def server_settings(config: BrokerConfig) -> ServerTls:
    """The settings of the broker's ports.

    What broker.conf sets takes precedence over tls.properties. Raises TlsError for what cannot be
    used.
    """
    ours = {
        "tls.server.mode": config.tls.server_mode,
        "tls.server.certPath": config.tls.server_cert_path,
        "tls.server.keyPath": config.tls.server_key_path,
        "tls.server.need.client.auth": config.tls.server_need_client_auth,
        "tls.server.trustCertPath": config.tls.server_trust_cert_path,
    }
    texts = read_tls_file(config.tls.config_file) | {k: v for k, v in ours.items() if v}
    base = ServerTls(handshake_timeout_s=config.tls.handshake_timeout_mills / 1000)
    return server_tls(texts, base)


def server_certificates(config: BrokerConfig) -> ServerCertificates | None:
    """The certificates of the broker's ports; None if they have no TLS. Raises TlsError."""
    settings = server_settings(config)
    return ServerCertificates(settings) if settings.enabled else None


def client_ssl(config: BrokerConfig) -> ssl.SSLContext | None:
    """For the broker's own connections; None if `tlsEnable` is off. Raises TlsError."""
    if not config.tls.enable:
        return None
    return tls_context(config.tls.config_file)


def ha_certificates(config: BrokerConfig) -> ServerCertificates | None:
    """The certificates of a master's HA port; None if it has no TLS. Raises TlsError."""
    if not config.replication.tls_enable:
        return None
    texts = {"tls.server.mode": TlsMode.ENFORCING.value}
    if config.replication.tls_need_client_auth:
        texts["tls.server.need.client.auth"] = config.replication.tls_need_client_auth
    try:
        return ServerCertificates(server_tls(texts, server_settings(config)))
    except TlsError as error:
        raise TlsError(f"haTlsEnable=true: {error}") from error


def ha_client_ssl(config: BrokerConfig) -> ssl.SSLContext | None:
    """For a slave's connection to an HA port; None if that has no TLS. Raises TlsError."""
    if not config.replication.tls_enable:
        return None
    return tls_context(config.tls.config_file)
