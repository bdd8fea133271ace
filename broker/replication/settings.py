"""The settings of replication in the form that its threads read."""

import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.broker.tls import ha_certificates, ha_client_ssl
from congreve.remoting.errors import HeaderError
from congreve.remoting.messages.addresses import host_port
from congreve.remoting.tls.certificates import ServerCertificates


class ReplicationSettings(NamedTuple):
    """Settings of both ends of the HA port; they do not change while a broker runs.

    `certificates` are a master's, None without TLS. `client_ssl` is for each connection of a slave.
    """

    sync_flush: bool
    transfer_batch_bytes: int
    heartbeat_s: float
    silence_s: float
    allowed_addresses: str
    certificates: ServerCertificates | None = None
    client_ssl: Callable[[], ssl.SSLContext | None] = lambda: None


def replication_settings(config: BrokerConfig) -> ReplicationSettings:
    """The broker's settings for both ends of the HA port. Raises TlsError, ConfigError."""
    if config.is_slave and config.replication.master_address:
        try:
            host_port(config.replication.master_address)
        except HeaderError as error:
            raise ConfigError(f"haMasterAddress: {error}") from error
    return ReplicationSettings(
        sync_flush=config.store.sync_flush,
        transfer_batch_bytes=config.replication.transfer_batch_size,
        heartbeat_s=config.replication.send_heartbeat_interval / 1000,
        silence_s=config.replication.housekeeping_interval / 1000,
        allowed_addresses=config.replication.allowed_addresses,
        certificates=None if config.is_slave else ha_certificates(config),
        client_ssl=partial(ha_client_ssl, config),
    )
