"""Topics, groups, offsets, locks and members as RocketMQ's tables keep them."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from congreve.base.clock import ManualClock
from congreve.base.steps import at_once
from congreve.broker.config import BrokerConfig
from congreve.broker.group.clients import ClientChannel
from congreve.broker.group.consumers import ConsumerManager
from congreve.broker.group.locks import LEASE_MS, RebalanceLockManager
from congreve.broker.group.producers import ProducerManager
from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.name_rules import topic_name_fault
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.broker.metadata.state_writer import MemoryOnly
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.bodies import ConsumerData, SubscriptionGroupConfig, TopicConfig
from congreve.remoting.messages.body import MessageQueue

FILES = json.loads((Path(__file__).parents[2] / "golden/state_files.json").read_text())
MANAGERS = {
    "topics.json": TopicConfigManager,
    "subscriptionGroup.json": SubscriptionGroupManager,
    "consumerOffset.json": lambda *_: ConsumerOffsetManager(BrokerConfig()),
}


@pytest.fixture
def config() -> BrokerConfig:
    return BrokerConfig(broker_name="b", broker_cluster_name="C")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_456)


@pytest.fixture
def seconds(clock) -> Callable[[], float]:
    return lambda: clock.now() / 1000


@pytest.fixture
def topics(config, clock) -> TopicConfigManager:
    return TopicConfigManager(config, clock)


@pytest.fixture
def groups(config, clock) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(config, clock)


# --- files


@pytest.mark.parametrize("name", MANAGERS)
def test_files_are_text_equal_to_the_reference(name, config, clock):
    manager = MANAGERS[name](config, clock)
    if name != "consumerOffset.json":
        manager.table.clear()
    manager.load(FILES[name])
    body = at_once(manager.body().encode_steps())
    assert fastjson.loads(body) == fastjson.loads(FILES[name])
    version = () if name == "consumerOffset.json" else (manager.data_version,)
    assert manager.file_text(*version) == FILES[name]


def test_loaded_topics_are_added_to_the_built_in_ones(topics):
    topics.load(FILES["topics.json"])
    assert topics.get("TopicTest").read_queue_nums == 8
    assert topics.get("TBW102").perm == 7
    assert topics.data_version.counter == 3


def test_quoted_keys_are_read_too():
    offsets = ConsumerOffsetManager(BrokerConfig())
    offsets.load('{"offsetTable":{"T@G":{"0":5,1:6}}}')
    assert offsets.queues("G", "T") == {0: 5, 1: 6}


# --- topics


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


def test_a_topic_is_created_from_its_template(topics, clock):
    clock.advance(10)
    made = topics.create_on_send("T", "TBW102", 4)
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (4, 4, 6)
    assert topics.create_on_send("T", "TBW102", 8) is made
    assert topics.create_on_send("U", "TBW102", 64).write_queue_nums == 8
    assert topics.data_version.counter == 2
    assert topics.data_version.timestamp == 1_700_000_000_466


def test_no_topic_is_created_from_a_template_without_inheritance(topics, config):
    assert topics.create_on_send("T", "nowhere", 4) is None
    assert topics.create_on_send("T", "SELF_TEST_TOPIC", 4) is None
    config.auto_create_topic_enable = False
    assert topics.create_on_send("T", "TBW102", 4) is None
    assert "T" not in topics.table


def test_listeners_are_notified_of_every_new_changed_and_deleted_topic(topics):
    heard: list[tuple[str, TopicConfig | None]] = []
    topics.listen(lambda name, config: heard.append((name, config)))
    assert {name for name, _ in heard} == topics.table.keys()
    heard.clear()
    made = topics.create_internal("%RETRY%G", 1)
    at_once(topics.order_steps(["%RETRY%G"]))
    ordered = topics.get("%RETRY%G")
    topics.delete("%RETRY%G")
    assert heard == [("%RETRY%G", made), ("%RETRY%G", ordered), ("%RETRY%G", None)]
    assert ordered.order and not made.order


def test_every_change_requests_a_save(topics):
    saves: list[int] = []
    topics.file = MemoryOnly()
    topics.file.changed = lambda: saves.append(1) or 0
    topics.create_internal("T", 1)
    topics.create_internal("T", 1)
    at_once(topics.order_steps(["nobody"]))
    topics.delete("T")
    topics.delete("T")
    assert len(saves) == 2


def test_what_waited_for_a_queue_that_its_topic_has_lost_gets_another(topics):
    topics.create_internal("T", 8)
    assert topics.present_queue("T", 7) == 7
    topics.update(msgspec.structs.replace(topics.get("T"), write_queue_nums=3))
    assert topics.present_queue("T", 7) == 7, "consumers still read it"
    topics.update(msgspec.structs.replace(topics.get("T"), read_queue_nums=3))
    assert [topics.present_queue("T", queue_id) for queue_id in (2, 3, 7)] == [2, 0, 1]
    assert topics.present_queue("unknown", 7) == 7
    topics.update(msgspec.structs.replace(topics.get("T"), read_queue_nums=0))
    assert topics.present_queue("T", 7) == 7, "no consumer reads any"


def test_an_internal_topic_has_at_least_the_queues_that_the_broker_uses(topics):
    topics.create_internal("%RETRY%G", 2)
    topics.update(msgspec.structs.replace(topics.get("%RETRY%G"), read_queue_nums=1, perm=4))
    grown = topics.create_internal("%RETRY%G", 3)
    assert (grown.read_queue_nums, grown.write_queue_nums, grown.perm) == (3, 3, 4)
    assert topics.create_internal("%RETRY%G", 1) == grown == topics.get("%RETRY%G")


@pytest.mark.parametrize("name", ["a", "%RETRY%g-1_x|y", "A" * 127])
def test_valid_topic_names_are_accepted(name):
    assert topic_name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "[a b]"),
        ("täg", "[täg]"),
        ("A" * 128, "128"),
        ("%LMQ%1", "light message queue"),
    ],
)
def test_the_error_for_an_invalid_topic_name_names_it(name, says):
    assert says in topic_name_fault(name)


@pytest.mark.parametrize(
    "topic",
    ["T", "BenchmarkTest", "TBW102", "C"],
)
def test_ordinary_topics_may_be_served_by_compiled_code(topics, topic):
    assert topics.takes_ordinary_sends(topics.create_internal(topic, 1))


@pytest.mark.parametrize("topic", ["%RETRY%G", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT"])
def test_topics_with_special_rules_are_not_served_by_compiled_code(topics, topic):
    assert not topics.takes_ordinary_sends(topics.create_internal(topic, 1))


# --- groups


def test_a_group_is_created_automatically_only_if_allowed(groups, config):
    assert groups.find("G") == SubscriptionGroupConfig(group_name="G")
    config.auto_create_subscription_group = False
    assert groups.find("H") is None
    assert groups.find("CID_RMQ_SYS_H") is not None
    assert groups.find("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize("name", ["", "a b", "G" * 256])
def test_a_group_with_an_invalid_name_is_not_created(groups, name):
    assert groups.find(name) is None


# --- offsets


def test_the_last_offset_wins_and_a_missing_one_is_minus_one():
    offsets = ConsumerOffsetManager(BrokerConfig())
    assert offsets.query("G", "T", 0) == -1
    offsets.commit("G", "T", 0, 9)
    offsets.commit("G", "T", 0, 7)
    assert offsets.query("G", "T", 0) == 7
    assert offsets.query("G", "T", 1) == offsets.query("H", "T", 0) == -1
    assert offsets.dirty


def test_offsets_are_listed_by_group_and_by_topic():
    offsets = ConsumerOffsetManager(BrokerConfig())
    for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
        offsets.commit(group, topic, 0, 1)
    assert offsets.topics_of("G") == ["T", "U"]
    assert offsets.groups_of("T") == ["G", "H"]
    offsets.clone("G", "K", "U")
    offsets.remove_group("G")
    assert offsets.table == {"T@H": {0: 1}, "U@K": {0: 1}}
    at_once(offsets.remove_topic_steps("T"))
    assert offsets.table == {"U@K": {0: 1}}


# --- locks


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name="b", queue_id=queue_id)


def test_a_client_that_was_refused_a_queue_is_notified_when_it_is_free(clock, seconds):
    notified = []
    locks = RebalanceLockManager(freed=lambda *of: notified.append(of), monotonic=seconds)
    locks.lock("G", [queue(0), queue(1), queue(2)], "c1")
    locks.lock("G", [queue(0)], "c2")
    locks.lock("G", [queue(0), queue(1)], "c3")
    locks.unlock("G", [queue(2)], "c1")
    locks.unlock("G", [queue(0)], "c2")
    assert notified == [], "no client requested 2, and c2 does not hold 0"
    locks.unlock("G", [queue(0)], "c1")
    assert notified == [("G", {"c2", "c3"})]
    clock.advance(LEASE_MS + 1)
    at_once(locks.expiry_steps())
    assert notified == [("G", {"c2", "c3"}), ("G", {"c3"})], "the lock of queue 1 has expired"
    assert not locks._groups and not locks._refused


def test_a_refused_client_is_removed_after_a_while(clock, seconds):
    notified = []
    locks = RebalanceLockManager(freed=lambda *of: notified.append(of), monotonic=seconds)
    locks.lock("G", [queue(0)], "c1")
    locks.lock("G", [queue(0)], "c2")
    for _ in range(2):
        clock.advance(LEASE_MS - 1)
        locks.lock("G", [queue(0)], "c1")
        at_once(locks.expiry_steps())
    assert not locks._refused
    locks.unlock("G", [queue(0)], "c1")
    assert notified == []


def test_a_queue_has_one_holder_until_its_lease_ends(clock, seconds):
    locks = RebalanceLockManager(monotonic=seconds)
    assert locks.lock("G", [queue(0), queue(1)], "c1") == [queue(0), queue(1)]
    assert locks.lock("G", [queue(1), queue(2)], "c2") == [queue(2)]
    assert locks.lock("H", [queue(0)], "c2") == [queue(0)]
    clock.advance(LEASE_MS)
    assert locks.lock("G", [queue(0)], "c1") == [queue(0)]
    clock.advance(1)
    assert locks.lock("G", [queue(0), queue(1)], "c2") == [queue(1)]


def test_locks_have_a_limit_and_expired_ones_make_room(clock, seconds):
    locks = RebalanceLockManager(monotonic=seconds, most=lambda: 3)
    assert locks.lock("G", [queue(0), queue(1)], "c1") == [queue(0), queue(1)]
    assert locks.lock("H", [queue(0), queue(1)], "c2") == [queue(0)]
    assert locks.lock("H", [queue(0), queue(1)], "c2") == [queue(0)], "it keeps what it has"
    locks.unlock("G", [queue(0)], "c1")
    assert locks.lock("H", [queue(1)], "c2") == [queue(1)]
    clock.advance(LEASE_MS + 1)
    assert locks.lock("G", [queue(1)], "c3") == [queue(1)], "in place of an expired lock"
    assert len(locks) == 3
    at_once(locks.expiry_steps())
    assert len(locks) == 1
    locks.unlock("G", [queue(1)], "c3")
    assert len(locks) == 0 and not locks._groups and not locks._counts


def test_one_client_leaves_locks_to_the_others(monkeypatch, seconds):
    monkeypatch.setattr("congreve.broker.group.locks.OF_CLIENT_MAX", 2)
    locks = RebalanceLockManager(monotonic=seconds)
    assert locks.lock("G", [queue(0), queue(1), queue(2)], "c1") == [queue(0), queue(1)]
    assert locks.lock("H", [queue(0)], "c1") == []
    assert locks.lock("G", [queue(2)], "c2") == [queue(2)]


def test_remembered_refusals_have_a_limit(clock, monkeypatch, seconds):
    monkeypatch.setattr("congreve.broker.group.locks.REFUSALS_MAX", 2)
    notified = []
    locks = RebalanceLockManager(freed=lambda *of: notified.append(of), monotonic=seconds)
    locks.lock("G", [queue(0)], "c1")
    for number in range(9):
        assert locks.lock("G", [queue(0)], f"other{number}") == []
    clock.advance(LEASE_MS)
    locks.lock("G", [queue(0)], "c1")
    locks.lock("G", [queue(0)], "other0")
    clock.advance(1)
    at_once(locks.expiry_steps())
    assert locks.lock("G", [queue(0)], "late") == []
    locks.unlock("G", [queue(0)], "c1")
    assert notified == [("G", {"other0", "late"})]
    assert not locks._refused


def test_only_the_holder_can_unlock(seconds):
    locks = RebalanceLockManager(monotonic=seconds)
    locks.lock("G", [queue(0)], "c1")
    locks.unlock("G", [queue(0)], "c2")
    assert locks.lock("G", [queue(0)], "c2") == []
    locks.unlock("G", [queue(0)], "c1")
    assert locks.lock("G", [queue(0)], "c2") == [queue(0)]


# --- members


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


def test_all_members_are_notified_of_joins_leaves_and_new_topics(connection, another_connection):
    notified: list[list[object]] = []
    consumers = ConsumerManager(
        BrokerConfig(), lambda name: notified.append([*consumers.groups[name].channels])
    )
    assert consumers.register(heartbeat(T=1), client(connection), notify=True)
    assert not consumers.register(heartbeat(T=1), client(connection), notify=True)
    assert not consumers.register(heartbeat(T=2), client(connection), notify=True)
    assert notified == [[connection]]
    assert consumers.find_subscription("G", "T").sub_version == 2
    consumers.register(heartbeat(T=2), client(another_connection, "c2"), notify=True)
    assert notified[1:] == [[connection, another_connection]]
    consumers.register(heartbeat(U=3), client(connection), notify=True)
    assert len(notified) == 3
    assert consumers.find_subscription("G", "T") is None
    at_once(consumers.closing_steps(connection))
    assert notified[3:] == [[another_connection]]
    at_once(consumers.closing_steps(another_connection))
    assert consumers.groups == {} and len(notified) == 4


def test_a_group_may_decline_notifications(connection):
    notified: list[object] = []
    consumers = ConsumerManager(BrokerConfig(), lambda *call: notified.append(call))
    consumers.register(heartbeat(T=1), client(connection), notify=False)
    assert notified == []


def test_an_older_subscription_does_not_replace_a_newer_one(connection):
    consumers = ConsumerManager(BrokerConfig(), lambda *_: None)
    consumers.register(heartbeat(T=5), client(connection), notify=True)
    consumers.register(heartbeat(T=4), client(connection), notify=True)
    assert consumers.find_subscription("G", "T").sub_version == 5


def test_clients_without_a_recent_heartbeat_are_found(
    clock, seconds, connection, another_connection
):
    consumers = ConsumerManager(BrokerConfig(), lambda *_: None, monotonic=seconds)
    producers = ProducerManager(BrokerConfig(), clock, seconds)
    consumers.register(heartbeat(T=1), client(connection), notify=True)
    clock.advance(100_000)
    producers.register("P", client(another_connection, "c2"))
    clock.advance(20_001)
    assert at_once(consumers.expired_steps(120)) == {connection}
    assert at_once(producers.expired_steps(120)) == set()
    at_once(producers.closing_steps(another_connection))
    assert producers.groups == {}


def test_a_file_has_the_json_dialect_that_java_reads(topics):
    assert (
        fastjson.loads(at_once(topics.body().encode_steps()))["topicConfigTable"]["b"]["perm"] == 7
    )
