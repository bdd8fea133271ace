"""The broker's settings of TLS, from broker.conf and tls.properties (RocketMQ: TlsSystemConfig)."""

import os
import ssl
from pathlib import Path

import msgspec

from congreve.broker.config import BrokerConfig
from congreve.engine.state.state_file import FileSystem
from congreve.remoting.tls.certificates import ServerCertificates, tls_context
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.self_signed import self_signed
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


def certificates_of_grpc(config: BrokerConfig, files: FileSystem) -> ServerCertificates | None:
    """For a broker without a certificate: one that no authority has signed, in its folder.

    Most clients of RocketMQ 5 want TLS, and check no certificate; RocketMQ's proxy makes one, too.
    None if broker.conf forbids TLS, or without OpenSSL 3. Raises TlsError.
    """
    settings = server_settings(config)
    made = None if settings.mode == TlsMode.DISABLED else self_signed(config.broker_name)
    if made is None:
        return None
    paths = [str(Path(config.store.own_dir) / name) for name in ("grpc.pem", "grpc.key")]
    for path, content in zip(paths, made, strict=True):
        with files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) as file:
            files.write(file, content, 0)
    return ServerCertificates(
        msgspec.structs.replace(settings, cert_path=paths[0], key_path=paths[1])
    )


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
