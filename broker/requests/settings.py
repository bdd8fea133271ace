"""The settings and topics of the compiled fast path."""

from ipaddress import ip_address
from typing import NamedTuple

from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.requests.checks import region_fields
from congreve.broker.requests.message_types import MessageType, type_fault
from congreve.broker.requests.topic_table import TopicTable
from congreve.records.message.properties import CLUSTER
from congreve.records.message.property_codec import encode_properties
from congreve.remoting.messages.bodies import TopicConfig
from congreve.remoting.wire.answers import send_response_constants


class FastPathSettings(NamedTuple):
    """Settings of the fast path; they do not change while a broker runs."""

    answers_wait: bool  # for the disk (SYNC_FLUSH) or a slave (SYNC_MASTER)
    max_message_size: int  # bytes
    reserves_properties: bool  # those that only brokers set: the Python handlers remove them
    cluster: bytes  # the property of that name, which every record gets
    send_constants: tuple[bytes, bytes]  # ext fields of every answer to a send: JSON, binary
    store_host: bytes  # address and port as a record holds them


def fast_path_settings(config: BrokerConfig) -> FastPathSettings:
    """The broker's settings in the form that the fast path reads."""
    return FastPathSettings(
        answers_wait=config.answers_wait,
        max_message_size=config.store.max_message_size,
        reserves_properties=config.acl_enable,
        cluster=encode_properties({CLUSTER: config.broker_cluster_name}),
        send_constants=send_response_constants(region_fields(config)),
        store_host=host_bytes(config.store_host),
    )


def host_bytes(host: tuple[str, int]) -> bytes:
    """4 or 16 address bytes, then the port as i32."""
    address, port = host
    return ip_address(address).packed + port.to_bytes(4, "big")


def follow_topics(topics: TopicConfigManager, table: TopicTable) -> None:
    """Keep the topics in `table` whose sends need no rule of the Python handlers.

    A topic that is not on disk yet is not among them: its sends are answered when it is.
    """

    def update(name: str, config: TopicConfig | None) -> None:
        if config is not None and topics.is_saved(name) and topics.takes_ordinary_sends(config):
            table.put(
                name,
                config.read_queue_nums,
                config.write_queue_nums,
                takes_normal=type_fault(config, MessageType.NORMAL) is None,
                takes_lite=type_fault(config, MessageType.LITE) is None,
            )
        elif config is None:
            table.forget(name)
        else:
            table.remove(name)

    topics.listen(update, when_saved=True)
