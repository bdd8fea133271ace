"""Topics, groups, offsets, locks and members as RocketMQ's tables keep them."""

import json
from pathlib import Path

import pytest

from congreve.broker.clients import ClientChannel
from congreve.broker.config import BrokerConfig
from congreve.broker.consumers import ConsumerManager
from congreve.broker.groups import SubscriptionGroupManager
from congreve.broker.locks import LEASE_MS, RebalanceLockManager
from congreve.broker.offsets import ConsumerOffsetManager
from congreve.broker.producers import ProducerManager
from congreve.broker.topics import TopicConfigManager, topic_name_fault
from congreve.engine.clock import ManualClock
from congreve.remoting import fastjson
from congreve.remoting.bodies import (
    ConsumerData,
    MessageQueue,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)

FILES = json.loads(Path(__file__).with_name("config_json.json").read_text())


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig(broker_name="b", broker_cluster_name="C")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_456)


@pytest.fixture
def topics(config, clock) -> TopicConfigManager:
    return TopicConfigManager(config, clock)


@pytest.fixture
def groups(config, clock) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(config, clock)


# ---- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FILES))
def test_files_are_text_equal_to_the_reference(name, config, clock):
    manager = {
        "topics.json": TopicConfigManager,
        "subscriptionGroup.json": SubscriptionGroupManager,
        "consumerOffset.json": lambda *_: ConsumerOffsetManager(),
    }[name](config, clock)
    if name != "consumerOffset.json":
        manager.table.clear()
    manager.load(FILES[name])
    assert fastjson.dumps_pretty(manager.wrapper()) == FILES[name]


def test_loaded_topics_stand_beside_the_built_in_ones(topics):
    topics.load(FILES["topics.json"])
    assert topics.get("TopicTest").read_queue_nums == 8
    assert topics.get("TBW102").perm == 7
    assert topics.data_version.counter == 3


def test_quoted_keys_are_read_too():
    offsets = ConsumerOffsetManager()
    offsets.load('{"offsetTable":{"T@G":{"0":5,1:6}}}')
    assert offsets.queues("G", "T") == {0: 5, 1: 6}


# ---- topics ------------------------------------------------------------------------------------


def test_built_in_topics_are_those_of_the_reference(topics):
    table = {
        name: (t.read_queue_nums, t.write_queue_nums, t.perm) for name, t in topics.table.items()
    }
    assert table == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "BenchmarkTest": (1024, 1024, 6),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "C": (16, 16, 7),
        "b": (1, 1, 7),
        "C_REPLY_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
    }


def test_a_topic_is_made_from_its_template(topics, clock):
    clock.advance(10)
    made = topics.create_on_send("T", "TBW102", 4)
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (4, 4, 6)
    assert topics.create_on_send("T", "TBW102", 8) is made
    assert topics.create_on_send("U", "TBW102", 64).write_queue_nums == 8
    assert topics.data_version.counter == 2
    assert topics.data_version.timestamp == 1_700_000_000_466


def test_no_topic_comes_from_a_template_that_forbids_it(topics, config):
    assert topics.create_on_send("T", "nowhere", 4) is None
    assert topics.create_on_send("T", "SELF_TEST_TOPIC", 4) is None
    config.auto_create_topic_enable = False
    assert topics.create_on_send("T", "TBW102", 4) is None
    assert "T" not in topics.table


def test_listeners_hear_of_every_topic_that_comes_changes_and_goes(topics):
    heard: list[tuple[str, TopicConfig | None]] = []
    topics.listen(lambda name, config: heard.append((name, config)))
    assert {name for name, _ in heard} == topics.table.keys()
    heard.clear()
    made = topics.create_internal("%RETRY%G", 1)
    topics.update_order_topics(["%RETRY%G"])
    ordered = topics.get("%RETRY%G")
    topics.delete("%RETRY%G")
    assert heard == [("%RETRY%G", made), ("%RETRY%G", ordered), ("%RETRY%G", None)]
    assert ordered.order and not made.order


def test_every_change_asks_to_be_saved(topics):
    saves: list[int] = []
    topics.changed = lambda: saves.append(1)
    topics.create_internal("T", 1)
    topics.create_internal("T", 1)
    topics.update_order_topics(["nobody"])
    topics.delete("T")
    topics.delete("T")
    assert len(saves) == 2


@pytest.mark.parametrize("name", ["a", "%RETRY%g-1_x|y", "A" * 127])
def test_good_topic_names_pass(name):
    assert topic_name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [("", "blank"), ("  ", "blank"), ("a b", "[a b]"), ("täg", "[täg]"), ("A" * 128, "128")],
)
def test_bad_topic_names_are_named(name, says):
    assert says in topic_name_fault(name)


@pytest.mark.parametrize(
    "topic",
    ["T", "BenchmarkTest", "TBW102", "C"],
)
def test_ordinary_topics_may_be_served_by_compiled_code(topics, topic):
    assert topics.takes_ordinary_sends(topics.create_internal(topic, 1))


@pytest.mark.parametrize("topic", ["%RETRY%G", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"])
def test_topics_with_rules_of_their_own_may_not(topics, topic):
    assert not topics.takes_ordinary_sends(topics.create_internal(topic, 1))


# ---- groups ------------------------------------------------------------------------------------


def test_a_group_is_made_on_first_sight_only_where_allowed(groups, config):
    assert groups.find("G") == SubscriptionGroupConfig(group_name="G")
    config.auto_create_subscription_group = False
    assert groups.find("H") is None
    assert groups.find("CID_RMQ_SYS_H") is not None
    assert groups.find("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize("name", ["", "a b", "G" * 256])
def test_a_group_with_an_impossible_name_is_not_made(groups, name):
    assert groups.find(name) is None


# ---- offsets -----------------------------------------------------------------------------------


def test_the_last_offset_wins_and_none_is_minus_one():
    offsets = ConsumerOffsetManager()
    assert offsets.query("G", "T", 0) == -1
    offsets.commit("G", "T", 0, 9)
    offsets.commit("G", "T", 0, 7)
    assert offsets.query("G", "T", 0) == 7
    assert offsets.query("G", "T", 1) == offsets.query("H", "T", 0) == -1
    assert offsets.dirty


def test_offsets_know_groups_and_topics():
    offsets = ConsumerOffsetManager()
    for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics_of("G") == ["T", "U"]
    assert offsets.groups_of("T") == ["G", "H"]
    offsets.clone("G", "K", "U")
    offsets.remove_group("G")
    assert offsets.table == {"T@H": {0: 1}, "U@K": {0: 1}}
    offsets.remove_topic("T")
    assert offsets.table == {"U@K": {0: 1}}


# ---- locks -------------------------------------------------------------------------------------


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="b", queue_id=queue_id)


def test_who_asked_in_vain_for_a_queue_is_told_when_it_is_free(clock):
    told = []
    locks = RebalanceLockManager(clock, freed=lambda *of: told.append(of))
    locks.lock("G", [queue(0), queue(1), queue(2)], "c1")
    locks.lock("G", [queue(0)], "c2")
    locks.lock("G", [queue(0), queue(1)], "c3")
    locks.unlock("G", [queue(2)], "c1")
    locks.unlock("G", [queue(0)], "c2")
    assert told == [], "nobody asked for 2, and 0 is not c2's to give"
    locks.unlock("G", [queue(0)], "c1")
    assert told == [("G", {"c2", "c3"})]
    clock.advance(LEASE_MS + 1)
    locks.drop_expired()
    assert told == [("G", {"c2", "c3"}), ("G", {"c3"})], "queue 1 has ended by itself"
    assert not locks._groups and not locks._refused


def test_who_asked_in_vain_long_ago_is_forgotten(clock):
    told = []
    locks = RebalanceLockManager(clock, freed=lambda *of: told.append(of))
    locks.lock("G", [queue(0)], "c1")
    locks.lock("G", [queue(0)], "c2")
    for _ in range(2):
        clock.advance(LEASE_MS - 1)
        locks.lock("G", [queue(0)], "c1")
        locks.drop_expired()
    assert locks._refused == {"G": {}}
    locks.unlock("G", [queue(0)], "c1")
    assert told == []


def test_a_queue_has_one_holder_until_its_lease_ends(clock):
    locks = RebalanceLockManager(clock)
    assert locks.lock("G", [queue(0), queue(1)], "c1") == [queue(0), queue(1)]
    assert locks.lock("G", [queue(1), queue(2)], "c2") == [queue(2)]
    assert locks.lock("H", [queue(0)], "c2") == [queue(0)]
    clock.advance(LEASE_MS)
    assert locks.lock("G", [queue(0)], "c1") == [queue(0)]
    clock.advance(1)
    assert locks.lock("G", [queue(0), queue(1)], "c2") == [queue(1)]


def test_only_the_holder_can_unlock(clock):
    locks = RebalanceLockManager(clock)
    locks.lock("G", [queue(0)], "c1")
    locks.unlock("G", [queue(0)], "c2")
    assert locks.lock("G", [queue(0)], "c2") == []
    locks.unlock("G", [queue(0)], "c1")
    assert locks.lock("G", [queue(0)], "c2") == [queue(0)]


# ---- members -----------------------------------------------------------------------------------


def client(connection, name: str = "c1") -> ClientChannel:
    return ClientChannel(connection, name, "JAVA", 401)


def heartbeat(**topics: int) -> ConsumerData:
    return ConsumerData(
        group_name="G",
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=version)
            for topic, version in topics.items()
        ],
    )


def test_all_members_hear_of_comings_goings_and_new_topics(clock, connection, another_connection):
    told: list[list[object]] = []
    consumers = ConsumerManager(clock, lambda group, members: told.append(members))
    assert consumers.register(heartbeat(T=1), client(connection), notify=True)
    assert not consumers.register(heartbeat(T=1), client(connection), notify=True)
    assert not consumers.register(heartbeat(T=2), client(connection), notify=True)
    assert told == [[connection]]
    assert consumers.find_subscription("G", "T").sub_version == 2
    consumers.register(heartbeat(T=2), client(another_connection, "c2"), notify=True)
    assert told[1:] == [[connection, another_connection]]
    consumers.register(heartbeat(U=3), client(connection), notify=True)
    assert len(told) == 3
    assert consumers.find_subscription("G", "T") is None
    consumers.connection_closed(connection)
    assert told[3:] == [[another_connection]]
    consumers.connection_closed(another_connection)
    assert consumers.groups == {} and len(told) == 4


def test_a_group_may_ask_not_to_be_told(clock, connection):
    told: list[object] = []
    consumers = ConsumerManager(clock, lambda *call: told.append(call))
    consumers.register(heartbeat(T=1), client(connection), notify=False)
    assert told == []


def test_an_older_subscription_does_not_replace_a_newer_one(clock, connection):
    consumers = ConsumerManager(clock, lambda *_: None)
    consumers.register(heartbeat(T=5), client(connection), notify=True)
    consumers.register(heartbeat(T=4), client(connection), notify=True)
    assert consumers.find_subscription("G", "T").sub_version == 5


def test_clients_that_fell_silent_are_found(clock, connection, another_connection):
    consumers = ConsumerManager(clock, lambda *_: None)
    producers = ProducerManager(clock)
    consumers.register(heartbeat(T=1), client(connection), notify=True)
    clock.advance(100_000)
    producers.register("P", client(another_connection, "c2"))
    clock.advance(20_001)
    assert consumers.expired(120_000) == [connection]
    assert producers.expired(120_000) == []
    producers.connection_closed(another_connection)
    assert producers.groups == {}


def test_a_file_is_json_of_the_dialect_that_java_reads(topics):
    assert fastjson.loads(topics.wrapper().encode())["topicConfigTable"]["b"]["perm"] == 7
