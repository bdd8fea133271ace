"""The settings of replication in the form that its threads read."""

from typing import NamedTuple

from congreve.broker.config import BrokerConfig


class ReplicationSettings(NamedTuple):
    """Settings of both ends of the HA port; they do not change while a broker runs."""

    sync_flush: bool
    transfer_batch_bytes: int
    heartbeat_s: float
    silence_s: float
    allowed_addresses: str


def replication_settings(config: BrokerConfig) -> ReplicationSettings:
    """The broker's settings for both ends of the HA port."""
    return ReplicationSettings(
        sync_flush=config.store.sync_flush,
        transfer_batch_bytes=config.ha_transfer_batch_size,
        heartbeat_s=config.ha_send_heartbeat_interval / 1000,
        silence_s=config.ha_housekeeping_interval / 1000,
        allowed_addresses=config.ha_allowed_addresses,
    )
