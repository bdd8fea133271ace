"""The route table without a network."""

import time

import msgspec
import pytest
from harness.slowness import limit_s

from congreve.base.steps import at_once
from congreve.base.table_limit import TableFullError
from congreve.namesrv import routes as routes_module
from congreve.namesrv.config import NamesrvConfig
from congreve.namesrv.errors import RegistrationError
from congreve.namesrv.routes import EXPIRY_S, BrokerIdentity, RouteTable
from congreve.remoting.messages.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routes(clock: Clock) -> RouteTable:
    return RouteTable(clock)


A = BrokerIdentity("C", "a", 0, "10.0.0.1:10911", "10.0.0.1:10912")
A_SLAVE = BrokerIdentity("C", "a", 1, "10.0.0.2:10911", "10.0.0.2:10912")
B = BrokerIdentity("C", "b", 0, "10.0.0.3:10911", "10.0.0.3:10912")
OTHER = BrokerIdentity("D", "d", 0, "10.0.0.4:10911", "10.0.0.4:10912")


def topics(*names: str, counter: int = 1, **settings: int) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=counter, timestamp=7),
        topic_config_table={name: TopicConfig(topic_name=name, **settings) for name in names},
    )


def register(
    routes: RouteTable,
    broker: BrokerIdentity,
    wrapper: TopicConfigSerializeWrapper,
    channel: object = None,
    filter_servers: tuple[str, ...] = (),
) -> object:
    return routes.register(broker, wrapper, list(filter_servers), channel or broker.address)


def test_route_names_every_broker_that_has_the_topic(routes: RouteTable) -> None:
    register(routes, A, topics("T", read_queue_nums=3, write_queue_nums=2, perm=4))
    register(routes, B, topics("T", "U"))
    route = routes.route("T")
    assert route is not None
    assert {data.broker_name: data.broker_addrs for data in route.broker_datas} == {
        "a": {0: A.address},
        "b": {0: B.address},
    }
    (of_a,) = [queue for queue in route.queue_datas if queue.broker_name == "a"]
    assert (of_a.read_queue_nums, of_a.write_queue_nums, of_a.perm) == (3, 2, 4)


def test_unknown_topic_has_no_route(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    assert routes.route("U") is None


def test_slave_adds_its_address_and_not_its_topics(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    master = register(routes, A_SLAVE, topics("T", "only-on-slave"))
    assert master is not None
    assert (master.address, master.ha_address) == (A.address, A.ha_address)
    route = routes.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: A.address, 1: A_SLAVE.address}
    assert routes.route("only-on-slave") is None


def test_a_slave_without_a_master_gets_no_master_address(routes: RouteTable) -> None:
    assert register(routes, A_SLAVE, topics()) is None


def test_unchanged_data_version_keeps_wiped_permission(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    assert at_once(routes.wipe_write_perm("a")) == 1
    register(routes, A, topics("T"))
    assert routes.route("T").queue_datas[0].perm == 4
    register(routes, A, topics("T", counter=2))
    assert routes.route("T").queue_datas[0].perm == 6


def test_write_permission_can_be_restored(routes: RouteTable) -> None:
    register(routes, A, topics("T", "U"))
    register(routes, B, topics("T"))
    assert at_once(routes.wipe_write_perm("a")) == 2
    assert at_once(routes.add_write_perm("a")) == 2
    assert {queue.perm for queue in routes.route("T").queue_datas} == {6}
    assert at_once(routes.wipe_write_perm("nobody")) == 0


def test_registration_never_removes_a_topic(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    register(routes, A, topics("U", counter=2))
    assert set(routes.topics().topic_list) == {"T", "U"}


def test_a_slave_that_becomes_master_releases_its_old_id(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    register(routes, A_SLAVE, topics("T"))
    register(routes, msgspec.structs.replace(A_SLAVE, broker_id=0), topics("T"))
    assert routes.route("T").broker_datas[0].broker_addrs == {0: A_SLAVE.address}


def test_a_broker_with_another_name_leaves_the_old_one(
    routes: RouteTable, caplog: pytest.LogCaptureFixture
) -> None:
    register(routes, A, topics("T", "only-old"))
    register(routes, A_SLAVE, topics("T"))
    renamed = msgspec.structs.replace(A, name="new-name")
    register(routes, renamed, topics("T"))
    assert "registers as new-name, before as" in caplog.text
    brokers = {each.broker_name: each.broker_addrs for each in routes.route("T").broker_datas}
    assert brokers == {A.name: {1: A_SLAVE.address}, "new-name": {0: A.address}}
    register(routes, msgspec.structs.replace(A_SLAVE, name="new-name"), topics("T"))
    route = routes.route("T")
    assert [each.broker_name for each in route.broker_datas] == ["new-name"]
    assert [each.broker_name for each in route.queue_datas] == ["new-name"]
    assert routes.route("only-old") is None
    at_once(routes.expiry_steps())
    assert "only-old" not in routes.topics().topic_list
    register(routes, A, topics("T", "only-old"))
    assert routes.route("only-old") is not None, "it may take its name back"


def test_two_masters_of_one_name_are_named_in_the_log(
    routes: RouteTable, caplog: pytest.LogCaptureFixture
) -> None:
    other = msgspec.structs.replace(A, address="10.9.9.9:10911")
    register(routes, A, topics("T"))
    register(routes, other, topics("T"))
    assert "both register" not in caplog.text, "another may have been elected"
    register(routes, A, topics("T"))
    assert f"{A.address} and {other.address} both register as the master" in caplog.text


def test_closed_connection_removes_its_broker_at_once(routes: RouteTable) -> None:
    register(routes, A, topics("T", "U"), channel="x")
    register(routes, B, topics("T"), channel="y")
    at_once(routes.closing_steps("x"))
    assert [data.broker_name for data in routes.route("T").broker_datas] == ["b"]
    assert routes.route("U") is None
    assert "U" not in routes.topics().topic_list
    assert routes.cluster_info().cluster_addr_table == {"C": ["b"]}


def test_closing_an_old_connection_keeps_a_broker_that_came_back(routes: RouteTable) -> None:
    register(routes, A, topics("T"), channel="old")
    register(routes, A, topics("T"), channel="new")
    at_once(routes.closing_steps("old"))
    assert routes.route("T") is not None


def test_lost_master_leaves_its_slave_and_topics(routes: RouteTable) -> None:
    register(routes, A, topics("T"), channel="x")
    register(routes, A_SLAVE, topics("T"), channel="y")
    at_once(routes.closing_steps("x"))
    assert routes.route("T").broker_datas[0].broker_addrs == {1: A_SLAVE.address}


def test_silent_broker_expires_and_its_connection_is_named(
    routes: RouteTable, clock: Clock
) -> None:
    register(routes, A, topics("T"), channel="x")
    register(routes, B, topics("T"), channel="y")
    clock.now += EXPIRY_S
    assert at_once(routes.expiry_steps()) == []
    register(routes, B, topics("T"), channel="y")
    clock.now += 1
    assert at_once(routes.expiry_steps()) == ["x"]
    assert [data.broker_name for data in routes.route("T").broker_datas] == ["b"]


def test_unchanged_version_query_keeps_a_broker_alive(routes: RouteTable, clock: Clock) -> None:
    register(routes, A, topics("T"))
    clock.now += EXPIRY_S
    assert not routes.is_changed(A.address, DataVersion(counter=1, timestamp=7))
    routes.touch(A.address)
    clock.now += EXPIRY_S
    assert at_once(routes.expiry_steps()) == []


@pytest.mark.parametrize(("counter", "timestamp"), [(2, 7), (1, 8)])
def test_another_counter_or_timestamp_counts_as_a_change(
    routes: RouteTable, counter: int, timestamp: int
) -> None:
    register(routes, A, topics("T"))
    version = DataVersion(counter=counter, timestamp=timestamp)
    assert routes.is_changed(A.address, version)
    assert routes.is_changed("10.9.9.9:1", version)


def test_the_queues_of_an_unregistered_broker_are_removed(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    register(routes, B, topics("T"))
    at_once(routes.unregister_steps(A.address))
    assert [queue.broker_name for queue in routes.route("T").queue_datas] == ["b"]
    at_once(routes.unregister_steps(B.address))
    assert routes.topics().topic_list == []
    assert routes.cluster_info().broker_addr_table == {}


def test_broker_that_was_replaced_cannot_unregister_its_successor(routes: RouteTable) -> None:
    register(routes, A, topics("T"))
    successor = msgspec.structs.replace(A, address="10.0.0.9:10911")
    register(routes, successor, topics("T"))
    at_once(routes.unregister_steps(A.address))
    assert routes.route("T").broker_datas[0].broker_addrs == {0: successor.address}


def test_topic_can_be_deleted_for_one_cluster(routes: RouteTable) -> None:
    register(routes, A, topics("T", "U"))
    register(routes, OTHER, topics("T"))
    routes.delete_topic("T", "C")
    assert [queue.broker_name for queue in routes.route("T").queue_datas] == ["d"]
    routes.delete_topic("T")
    assert routes.topics().topic_list == ["U"]
    routes.delete_topic("never-was")


def test_topics_are_listed_by_cluster_and_for_the_system(routes: RouteTable) -> None:
    register(routes, A, topics("T", "U"))
    register(routes, OTHER, topics("V"))
    assert set(at_once(routes.topics_of_cluster("C")).topic_list) == {"T", "U"}
    assert at_once(routes.topics_of_cluster("nowhere")).topic_list == []
    listed = routes.system_topics()
    assert set(listed.topic_list) == {"C", "a", "D", "d"}
    assert listed.broker_addr in (A.address, OTHER.address)


def test_unit_topic_lists_follow_the_flags(routes: RouteTable) -> None:
    wrapper = topics("plain", "unit", "sub", "both")
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    for name, flag in flags.items():
        wrapper.topic_config_table[name].topic_sys_flag = flag
    register(routes, A, wrapper)
    assert set(at_once(routes.unit_topics()).topic_list) == {"unit", "both"}
    assert set(at_once(routes.unit_sub_topics()).topic_list) == {"sub", "both"}
    assert at_once(routes.unit_sub_ununit_topics()).topic_list == ["sub"]


def test_filter_servers_are_in_the_route_until_the_broker_is_removed(routes: RouteTable) -> None:
    register(routes, A, topics("T"), filter_servers=("10.0.0.1:30000",))
    assert routes.route("T").filter_server_table == {A.address: ["10.0.0.1:30000"]}
    register(routes, A, topics("T"))
    assert routes.route("T").filter_server_table == {}


def test_many_brokers_of_one_connection_are_removed_in_one_pass(routes: RouteTable) -> None:
    for number in range(5_000):
        name = f"b{number}"
        routes.register(BrokerIdentity(name, name, 0, name), topics(name), [], "channel")
    started = time.thread_time()
    assert len(routes.cluster_info().cluster_addr_table) == 5_000
    at_once(routes.closing_steps("channel"))
    assert time.thread_time() - started < limit_s(1)
    assert routes.cluster_info().broker_addr_table == {}
    assert routes.topics().topic_list == []


def test_a_master_under_a_new_id_brings_its_topics(routes: RouteTable) -> None:
    slave = msgspec.structs.replace(A, broker_id=1)
    routes.register(slave, topics("T"), [], "x")
    assert not routes.wants_topics(slave, topics("T").data_version)
    assert routes.wants_topics(A, topics("T").data_version)


def test_brokers_and_topics_over_their_limits_are_refused_and_the_others_stay(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    routes = RouteTable(clock, NamesrvConfig(max_brokers=2, max_topics=3))
    register(routes, A, topics("T", "U"))
    for number in range(30):
        with pytest.raises(TableFullError, match="maxTopics"):
            register(routes, B, topics("T", f"V{number}", counter=number + 1))
    assert (
        sorted(routes.topics().topic_list) == ["T", "U"] and routes.data_version(B.address) is None
    )
    register(routes, B, topics("T"))
    with pytest.raises(TableFullError, match="maxBrokers"):
        register(routes, OTHER, topics())
    renamed = BrokerIdentity("C", "c", 0, B.address)
    with pytest.raises(TableFullError, match="maxBrokers"):
        register(routes, renamed, topics(counter=9))
    register(routes, A, topics("T", "U", counter=2))
    routes.delete_topic("U")
    register(routes, A, topics("W", counter=3))
    assert routes.route("W") is not None
    assert sum("maxTopics" in record.getMessage() for record in caplog.records) == 1


def test_names_without_a_length_are_refused(clock: Clock) -> None:
    """A limit of ten thousand brokers is useless if each name may have megabytes."""
    routes = RouteTable(clock, NamesrvConfig())
    long = "n" * 1025
    for field in ("name", "cluster", "address", "ha_address"):
        with pytest.raises(RegistrationError, match="1025 characters"):
            register(routes, msgspec.structs.replace(A, **{field: long}), topics("T"))
    with pytest.raises(RegistrationError, match="topicName"):
        register(routes, A, topics("T", long))
    assert routes.topics().topic_list == [] and routes.data_version(A.address) is None
    register(routes, A, topics("T", long[1:]))


def body(routes: RouteTable, topic: str, listener: str = "") -> bytes | None:
    """The route as it is sent, which is the route as it is."""
    sent = routes.route_body(topic, listener, standard=True)
    route = routes.route(topic, listener)
    assert sent == (None if route is None else route.encode_as(standard=True))
    assert routes.route_body(topic, listener, standard=True) is sent
    return sent


def test_a_route_that_is_kept_follows_every_change(routes: RouteTable, clock: Clock) -> None:
    register(routes, A, topics("T", "U"))
    seen = [body(routes, "T")]
    assert body(routes, "U") == seen[0]
    register(routes, B, topics("T"))
    seen.append(body(routes, "T"))
    at_once(routes.wipe_write_perm("b"))
    seen.append(body(routes, "T"))
    register(routes, A_SLAVE, topics())
    seen.append(body(routes, "T"))
    register(routes, A, topics("T", "U"), filter_servers=("10.0.0.1:30000",))
    seen.append(body(routes, "T"))
    advertised = msgspec.structs.replace(A, advertised={"outside": "203.0.113.1:1"})
    before = body(routes, "T", "outside")
    register(routes, advertised, topics("T", "U"), filter_servers=("10.0.0.1:30000",))
    assert body(routes, "T", "outside") != before
    at_once(routes.unregister_steps(A_SLAVE.address))
    seen.append(body(routes, "T"))
    routes.delete_topic("T", "C")
    assert body(routes, "T") is None
    assert len(set(seen)) == len(seen)
    assert body(routes, "U") is not None


def test_kept_routes_are_bounded(routes: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "KEPT_BYTES_MAX", 1)
    register(routes, A, topics("T"))
    register(routes, B, topics("U"))
    for topic in ("T", "U", "T"):
        assert routes.route_body(topic, "", standard=True) is not None
        assert len(routes._kept) == 1
