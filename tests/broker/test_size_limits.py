"""The limits of broker, name server, slave and frame fit each other, from one to the next."""

from congreve.base.steps import at_once
from congreve.broker.config_parts import LimitsConfig
from congreve.broker.metadata.name_rules import QUEUES_MAX, TOPIC_MAX
from congreve.namesrv.broker_processor import SMALL_REGISTRATION
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.routes import NAME_MAX
from congreve.remoting.messages.bodies import (
    BrokerData,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from congreve.remoting.messages.command import HEADER_MAX
from congreve.remoting.messages.register_body import (
    INFLATED_MAX,
    PART_BYTES,
    TOPICS_MAX,
    registration_steps,
    topic_size,
)
from congreve.remoting.transport.guard import SharedLimits
from congreve.remoting.wire.frame import FRAME_MAX

LARGEST = TopicConfig("\x01" * TOPIC_MAX, QUEUES_MAX, QUEUES_MAX, 7, "MULTI_TAG", 3)
"""Each character of its name takes six in JSON."""
SMALLEST = TopicConfig("T", 1, 1, 6)
BROKERS, TOPICS_OF_BROKER = 1_000, 10_000


def test_a_part_of_a_registration_fits_into_a_frame() -> None:
    largest = PART_BYTES + topic_size(LARGEST)
    assert largest + HEADER_MAX < FRAME_MAX
    assert largest < INFLATED_MAX


def test_a_name_server_takes_as_many_topics_as_a_part_has() -> None:
    assert PART_BYTES // topic_size(SMALLEST) < TOPICS_MAX
    assert TOPIC_MAX <= NAME_MAX


def test_a_compressed_registration_of_rocketmq_has_room_for_the_topics_of_a_broker() -> None:
    """It is in one part; a name of 40 characters is long for a topic."""
    topics = LimitsConfig().max_topics
    assert topics <= TOPICS_MAX
    table = {f"{n:040d}": TopicConfig(f"{n:040d}") for n in range(1_000)}
    wrapper = TopicConfigSerializeWrapper(topic_config_table=table)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    written = at_once(registration_steps(body, compressed=True))
    assert len(written) / len(table) * topics < INFLATED_MAX


def test_a_name_server_has_room_for_a_thousand_brokers() -> None:
    config = NamesrvConfig()
    assert config.max_topics >= BROKERS * TOPICS_OF_BROKER
    assert config.max_brokers >= BROKERS
    assert LimitsConfig().max_topics <= config.max_topics


def test_a_name_server_takes_a_part_of_each_of_a_thousand_brokers_at_once() -> None:
    """Beyond these limits it closes connections."""
    request = PART_BYTES + topic_size(TopicConfig("T" * TOPIC_MAX)) + 1_024
    assert BROKERS * request <= SharedLimits().unfinished_bytes
    assert BROKERS * request <= SharedLimits().unread_bytes
    assert request <= SMALL_REGISTRATION


def test_the_route_of_a_topic_on_a_thousand_brokers_fits_into_a_frame() -> None:
    name, address = "b" * 64, "255.255.255.255:65535"
    brokers = [BrokerData("cluster", name, {0: address, 1: address}) for _ in range(BROKERS)]
    queues = [QueueData(name, QUEUES_MAX, QUEUES_MAX, 7, 3) for _ in range(BROKERS)]
    route = TopicRouteData(queue_datas=queues, broker_datas=brokers)
    assert len(route.encode_for(401, standard_only=True)) + HEADER_MAX < FRAME_MAX
