"""What the compiled hot path is told of settings and topics."""

from ipaddress import ip_address
from typing import NamedTuple

from congreve.broker.config import BrokerConfig
from congreve.broker.sendchecks import region_fields
from congreve.broker.topics import TopicConfigManager
from congreve.broker.topictable import TopicTable
from congreve.remoting.answers import send_response_constants
from congreve.remoting.bodies import TopicConfig


class HotPathSettings(NamedTuple):
    """Fixed while a broker runs."""

    sync_flush: bool
    max_message_size: int  # bytes
    cluster: str
    send_constants: tuple[bytes, bytes]  # ext fields of every answer to a send: JSON, binary
    store_host: bytes  # address and port as a record holds them


def hot_path_settings(config: BrokerConfig) -> HotPathSettings:
    """The broker's settings as compiled code wants them."""
    return HotPathSettings(
        sync_flush=config.store.sync_flush,
        max_message_size=config.store.max_message_size,
        cluster=config.broker_cluster_name,
        send_constants=send_response_constants(region_fields(config)),
        store_host=host_bytes(config.store_host),
    )


def host_bytes(host: tuple[str, int]) -> bytes:
    """4 or 16 address bytes, then the port as i32."""
    address, port = host
    return ip_address(address).packed + port.to_bytes(4, "big")


def follow_topics(topics: TopicConfigManager, table: TopicTable) -> None:
    """Keep in `table` exactly the topics whose sends need no rule of the Python handlers."""

    def tell(name: str, config: TopicConfig | None) -> None:
        if config is not None and topics.takes_ordinary_sends(config):
            table.put(name, config.read_queue_nums, config.write_queue_nums)
        else:
            table.remove(name)

    topics.listen(tell)
