"""Registration at name servers, some of which misbehave."""

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Hashable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from harness.eventually import eventually

from congreve.base.clock import Clock
from congreve.base.steps import at_once
from congreve.broker import registration
from congreve.broker.broker import Broker
from congreve.broker.config import PERM_READ, BrokerConfig
from congreve.broker.metadata.topics import TopicConfigManager
from congreve.broker.registration import NameServerRegistration
from congreve.namesrv.routes import BrokerIdentity, Master, RouteTable
from congreve.namesrv.server import NameServer
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.register_body import (
    PART_BYTES,
    read_registration,
    topic_size,
    write_registration,
)
from congreve.remoting.transport.client import RemotingClient
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.server import RemotingServer

T = TypeVar("T")


def broker_config(*name_servers: str, **settings: object) -> BrokerConfig:
    return BrokerConfig(
        namesrv_addr=";".join(name_servers),
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        broker_ip2="127.0.0.1",
        **settings,
    )


@asynccontextmanager
async def registered(
    config: BrokerConfig,
) -> AsyncIterator[tuple[NameServerRegistration, TopicConfigManager]]:
    topics = TopicConfigManager(config, Clock())
    subject = NameServerRegistration(config, topics, Pieces())
    await subject.start()
    try:
        yield subject, topics
    finally:
        await subject.stop()


class Recorder:
    """A name server that records registrations; `answer_code` is the code of its answers."""

    def __init__(self) -> None:
        self.registrations: list[TopicConfigSerializeWrapper] = []
        self.queries = 0
        self.changed = "false"
        self.answer_code = 0
        self.keeps_silent = False
        self.order_topics = b""
        self.drops_after = 0  # registrations
        self._server = RemotingServer(
            {
                RequestCode.REGISTER_BROKER: self._register,
                RequestCode.QUERY_DATA_VERSION: self._query,
            }
        )

    async def __aenter__(self) -> "Recorder":
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def drop_connections(self) -> None:
        for connection in list(self._server.connections):
            connection.abort()

    def _register(self, request: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        compressed = request.ext_fields["compressed"] == "true"
        body = read_registration(request.body, request.version, compressed=compressed)
        self.registrations.append(body.topic_config_serialize_wrapper)
        if len(self.registrations) == self.drops_after:
            connection.abort()
        if self.keeps_silent:
            return None
        return request.reply(self.answer_code, "as configured", body=self.order_topics)

    def _query(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        self.queries += 1
        return request.reply(ResponseCode.SUCCESS, ext_fields={"changed": self.changed})


async def test_a_broker_registers_at_every_name_server_and_unregisters_at_its_stop() -> None:
    async with NameServer(port=0) as one, NameServer(port=0) as two:
        async with registered(broker_config(one.address, two.address)) as (_, topics):
            for server in (one, two):
                assert set(server.routes.topics().topic_list) == set(topics.table)
        for server in (one, two):
            assert server.routes.topics().topic_list == []


async def test_a_new_topic_is_registered_at_once_and_without_the_others() -> None:
    async with Recorder() as server, registered(broker_config(server.address)) as (_, topics):
        assert set(server.registrations[0].topic_config_table) == set(topics.table)
        topics.update(TopicConfig(topic_name="T"))
        await eventually(lambda: len(server.registrations) == 2)
        assert set(server.registrations[1].topic_config_table) == {"T"}
        assert server.registrations[1].data_version == topics.data_version


class GatedPieces(Pieces):
    """Pieces whose work begins when `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.waiting = 0

    async def run(self, work: Generator[object, None, T]) -> T:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await super().run(work)


async def test_a_topic_that_is_created_while_another_is_being_registered_is_registered() -> None:
    """The version of the second change must not arrive with the first topic alone."""
    async with NameServer(port=0) as server:
        config, pieces = broker_config(server.address), GatedPieces()
        topics = TopicConfigManager(config, Clock())
        subject = NameServerRegistration(config, topics, pieces)
        pieces.gate.set()
        await subject.start()
        try:
            pieces.gate.clear()
            topics.update(TopicConfig(topic_name="first"))
            await eventually(lambda: pieces.waiting == 1)
            topics.update(TopicConfig(topic_name="second"))
            pieces.gate.set()
            await subject.registered_everywhere()
            assert {"first", "second"} <= set(server.routes.topics().topic_list)
        finally:
            await subject.stop()


async def test_a_waiter_for_a_new_topic_finds_it_at_each_name_server() -> None:
    async with (
        NameServer(port=0) as one,
        NameServer(port=0) as two,
        registered(broker_config(one.address, two.address)) as (subject, topics),
    ):
        for name in ("T", "U"):
            topics.update(TopicConfig(topic_name=name))
            await subject.registered_everywhere()
            assert all(name in server.routes.topics().topic_list for server in (one, two))


async def test_a_registration_does_not_wait_for_absent_or_silent_name_servers() -> None:
    silent = Recorder()
    async with silent, registered(broker_config("127.0.0.1:1", silent.address)) as made:
        subject, topics = made
        silent.keeps_silent = True
        topics.update(TopicConfig(topic_name="T"))
        async with asyncio.timeout(5):
            await subject.registered_everywhere(0.05)
            await eventually(lambda: len(silent.registrations) == 2)


async def test_deleted_topic_moves_the_data_version() -> None:
    async with Recorder() as server, registered(broker_config(server.address)) as (_, topics):
        topics.update(TopicConfig(topic_name="T"))
        await eventually(lambda: len(server.registrations) == 2)
        topics.delete("T")
        await eventually(lambda: len(server.registrations) == 3)
        assert server.registrations[2].topic_config_table == {}
        assert server.registrations[2].data_version == topics.data_version


async def test_a_name_server_that_comes_back_gets_all_topics() -> None:
    async with Recorder() as server, registered(broker_config(server.address)) as (_, topics):
        server.drop_connections()
        await eventually(lambda: len(server.registrations) == 2)
        assert set(server.registrations[1].topic_config_table) == set(topics.table)


async def test_failing_name_servers_do_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with Recorder() as refusing, Recorder() as healthy:
        refusing.answer_code = 1
        config = broker_config("127.0.0.1:1", refusing.address, healthy.address)
        async with registered(config):
            assert len(healthy.registrations) == 1
            assert "127.0.0.1:1" in caplog.text
            assert "as configured" in caplog.text


async def test_a_failed_registration_is_repeated_with_all_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "RETRY_S", 0.01)
    async with Recorder() as server:
        server.answer_code = 1
        async with registered(broker_config(server.address)) as (_, topics):
            await eventually(lambda: len(server.registrations) >= 2)
            server.answer_code = 0
            before = len(server.registrations)
            await eventually(lambda: len(server.registrations) > before)
            assert set(server.registrations[-1].topic_config_table) == set(topics.table)


@pytest.mark.parametrize(
    ("force", "changed", "registers"),
    [(True, "false", True), (False, "false", False), (False, "true", True)],
)
async def test_an_unforced_registration_queries_the_data_version_first(
    monkeypatch: pytest.MonkeyPatch, force: bool, changed: str, registers: bool
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MIN_S", 0.01)
    monkeypatch.setattr(registration, "PERIOD_MAX_S", 0.01)
    async with Recorder() as server:
        server.changed = changed
        async with registered(broker_config(server.address, force_register=force)) as (_, topics):
            if registers:
                await eventually(lambda: len(server.registrations) >= 3)
                assert set(server.registrations[-1].topic_config_table) == set(topics.table)
            else:
                await eventually(lambda: server.queries >= 3)
                assert len(server.registrations) == 1
            assert bool(server.queries) is not force


async def test_a_broker_without_write_permission_refuses_every_topic() -> None:
    async with Recorder() as server:
        config = broker_config(server.address)
        async with registered(config) as (_, topics):
            assert server.registrations[0].topic_config_table["BenchmarkTest"].perm == 6
            config.broker_permission = PERM_READ
            at_once(topics.notify_steps())
            await eventually(lambda: len(server.registrations) == 2)
            perms = {t.perm for t in server.registrations[1].topic_config_table.values()}
            assert perms == {PERM_READ}
            assert topics.table["BenchmarkTest"].perm == 6


async def test_name_servers_take_a_setting_that_changes_during_a_registration() -> None:
    async with Recorder() as server:
        config = broker_config(server.address)
        async with registered(config) as (_, topics):
            config.broker_permission = PERM_READ
            steps = topics.notify_steps()
            next(steps)
            await eventually(lambda: len(server.registrations) == 2)
            at_once(steps)
            await eventually(lambda: len(server.registrations) == 3)
            versions = [each.data_version.counter for each in server.registrations]
            assert len(set(versions)) == 3, "a name server ignores topics of a version it knows"
            later = [each.topic_config_table.keys() for each in server.registrations[1:]]
            assert later[0] | later[1] == topics.table.keys()


async def test_a_draining_broker_takes_only_the_write_permission_from_routes() -> None:
    async with Recorder() as server:
        config = broker_config(server.address)
        async with registered(config) as (_, topics):
            topics.update(TopicConfig(topic_name="none", perm=0))
            await eventually(lambda: len(server.registrations) == 2)
            config.draining = True
            at_once(topics.notify_steps())
            await eventually(lambda: len(server.registrations) == 3)
            announced = server.registrations[2].topic_config_table
            assert (announced["none"].perm, announced["BenchmarkTest"].perm) == (0, PERM_READ)


async def test_a_compressed_registration_has_the_same_content() -> None:
    async with Recorder() as server:
        config = broker_config(server.address, compressed_register=True)
        async with registered(config) as (_, topics):
            (sent,) = server.registrations
            assert sent.topic_config_table == topics.table
            assert sent.data_version == topics.data_version


async def test_order_topics_come_from_the_first_name_server_that_answers() -> None:
    async with Recorder() as silent, Recorder() as first, Recorder() as second:
        first.order_topics = b'{"table":{"BenchmarkTest":"broker-a:4"}}'
        second.order_topics = b'{"table":{"SELF_TEST_TOPIC":"broker-a:1"}}'
        config = broker_config(silent.address, first.address, second.address)
        async with registered(config) as (_, topics):
            await eventually(lambda: topics.is_order_topic("BenchmarkTest"))
            await eventually(lambda: not topics.is_order_topic("SELF_TEST_TOPIC"))


async def test_a_broker_without_name_servers_registers_nowhere() -> None:
    async with registered(broker_config()) as (_, topics):
        topics.update(TopicConfig(topic_name="T"))


async def test_a_groups_first_heartbeat_is_answered_when_its_retry_topic_has_a_route(
    tmp_path: Path,
) -> None:
    """The consumer requests that route next; without the route it waits for 30 s."""
    async with NameServer(port=0) as server:
        config = broker_config(server.address, bind_address="127.0.0.1", listen_port=0)
        config.store.root_dir = str(tmp_path)
        config.store.mapped_file_size_commit_log = 1 << 20
        config.store.message_index_enable = False
        async with Broker(config) as broker:
            client = RemotingClient()
            for number in range(40):
                body = b'{"clientID":"c","consumerDataSet":[{"groupName":"G%d"}]}' % number
                beat = RemotingCommand(code=RequestCode.HEART_BEAT, body=body)
                answer = await client.invoke(f"127.0.0.1:{broker.port}", beat)
                assert answer.code == ResponseCode.SUCCESS
                assert server.routes.route(f"%RETRY%G{number}") is not None
            await client.close()


async def test_a_heartbeat_waits_no_longer_than_a_second_for_a_silent_name_server(
    tmp_path: Path,
) -> None:
    async with Recorder() as silent:
        config = broker_config(silent.address, bind_address="127.0.0.1", listen_port=0)
        config.store.root_dir = str(tmp_path)
        config.store.mapped_file_size_commit_log = 1 << 20
        async with Broker(config) as broker:
            client = RemotingClient(timeout_s=3)  # that of a Java client's heartbeat
            silent.keeps_silent = True
            body = b'{"clientID":"c","consumerDataSet":[{"groupName":"G"}]}'
            beat = RemotingCommand(code=RequestCode.HEART_BEAT, body=body)
            answer = await client.invoke(f"127.0.0.1:{broker.port}", beat)
            assert answer.code == ResponseCode.SUCCESS
            await client.close()


@pytest.mark.parametrize(
    "topic",
    [
        TopicConfig("orders"),
        TopicConfig('%RETRY%é"x', 1000, 2, 7, "MULTI_TAG", 3, order=True),
    ],
)
def test_the_size_of_a_topic_is_what_a_registration_grows_by(topic: TopicConfig) -> None:
    other = TopicConfig("other")

    def size(*topics: TopicConfig) -> int:
        table = {each.topic_name: each for each in topics}
        wrapper = TopicConfigSerializeWrapper(topic_config_table=table)
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=[])
        return len(write_registration(body, compressed=False))

    assert size(other, topic) - size(other) == topic_size(topic)


def many(manager: TopicConfigManager, count: int) -> None:
    """Topics that take `count` parts of a registration."""
    size = topic_size(TopicConfig(f"{0:0100d}"))
    for number in range((count - 1) * PART_BYTES // size + 1):
        name = f"{number:0100d}"
        manager.table[name] = TopicConfig(name)


async def test_many_topics_take_several_registrations_and_the_last_one_has_the_version() -> None:
    async with Recorder() as server:
        config = broker_config(server.address)
        topics = TopicConfigManager(config, Clock())
        many(topics, 3)
        subject = NameServerRegistration(config, topics, Pieces())
        await subject.start()
        await subject.stop()
        parts = server.registrations
        assert len(parts) == 3
        assert [part.data_version == topics.data_version for part in parts] == [False, False, True]
        assert parts[0].data_version != parts[1].data_version
        tables = [part.topic_config_table for part in parts]
        assert tables[0] | tables[1] | tables[2] == topics.table
        assert AUTO_CREATE_TOPIC_KEY_TOPIC in tables[2]


async def test_a_connection_that_is_lost_between_two_parts_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name server may have started again: it must not take the last part for all topics."""
    monkeypatch.setattr(registration, "RETRY_S", 0.01)
    async with Recorder() as server:
        config = broker_config(server.address)
        topics = TopicConfigManager(config, Clock())
        many(topics, 3)
        server.drops_after = 2
        subject = NameServerRegistration(config, topics, Pieces())
        await subject.start()
        try:
            await eventually(lambda: len(server.registrations) == 5)
            again = server.registrations[2:]
            sent: dict[str, TopicConfig] = {}
            for part in again:
                sent |= part.topic_config_table
            assert sent == topics.table and again[-1].data_version == topics.data_version
        finally:
            await subject.stop()


async def test_a_name_server_of_ours_gets_only_the_version_until_it_lacks_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "PERIOD_MIN_S", 0.01)
    monkeypatch.setattr(registration, "PERIOD_MAX_S", 0.01)
    sent: list[tuple[str, int]] = []
    take = RouteTable.register

    def noted(
        self: RouteTable,
        broker: BrokerIdentity,
        topics: TopicConfigSerializeWrapper,
        filter_servers: list[str],
        channel: Hashable,
    ) -> Master | None:
        sent.append((broker.address, len(topics.topic_config_table)))
        return take(self, broker, topics, filter_servers, channel)

    monkeypatch.setattr(RouteTable, "register", noted)
    async with NameServer(port=0) as server:
        config = broker_config(server.address)
        async with registered(config) as (_, topics):
            await eventually(lambda: len(sent) >= 4)
            assert {count for _, count in sent[1:]} == {0}
            assert set(server.routes.topics().topic_list) == set(topics.table)
            at_once(server.routes.unregister_steps(config.address))
            await eventually(lambda: set(server.routes.topics().topic_list) == set(topics.table))
            topics.update(TopicConfig("T"))
            await eventually(lambda: server.routes.route("T") is not None)
