"""The state that a slave copies from its master beside the log."""

from collections.abc import Callable
from pathlib import Path

import pytest
from harness.eventually import eventually
from harness.replication.pairs import Pair, broker_config, running_pair

from congreve.broker.broker import Broker
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata import table_text
from congreve.broker.metadata.offsets import ConsumerOffsetManager
from congreve.broker.replication.master_requests import LogSpan, MasterRequests
from congreve.broker.replication.slave_synchronize import SlaveSynchronize
from congreve.broker.replication.table_copies import HOLD_S
from congreve.client import Message, Producer
from congreve.engine.replication.log_receiver import LogReceiver
from congreve.records.message.message import Record
from congreve.records.message.topics import TRANS_GROUP
from congreve.remoting.messages import table_pages
from congreve.remoting.messages.bodies import (
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.pop_bodies import SetMessageRequestModeRequestBody
from congreve.remoting.transport.client import RemotingClient


def has_same_tables(pair: Pair) -> Callable[[], bool]:
    first, second = pair.master.managers.metadata, pair.slave.managers.metadata

    def same() -> bool:
        return (
            first.topics.table == second.topics.table
            and first.topics.data_version == second.topics.data_version
            and first.groups.table == second.groups.table
            and first.groups.data_version == second.groups.data_version
            and first.offsets.table == second.offsets.table
            and first.request_modes.table == second.request_modes.table
        )

    return same


async def test_the_tables_of_a_slave_follow_the_master(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        master = pair.master.managers.metadata
        master.topics.update(TopicConfig(topic_name="orders", read_queue_nums=3))
        master.topics.update(TopicConfig(topic_name="gone"))
        master.groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=3))
        master.request_modes.set(SetMessageRequestModeRequestBody("orders", "g", "POP", 2))
        master.offsets.commit("g", "orders", 1, 7)
        master.offsets.note(TRANS_GROUP, "half", 0, 3)
        await eventually(has_same_tables(pair))
        master.topics.delete("gone")
        master.groups.delete("g")
        master.request_modes.drop_group("g")
        master.offsets.commit("g", "orders", 1, 2)
        master.offsets.commit("h", "orders", 0, 9)
        await eventually(has_same_tables(pair))
        assert pair.slave.managers.metadata.topics.get("gone") is None
        master.offsets.remove_group("h")
        await eventually(has_same_tables(pair))


@pytest.fixture
def offsets() -> ConsumerOffsetManager:
    return ConsumerOffsetManager(BrokerConfig())


def test_a_slave_keeps_offsets_that_it_received_while_the_master_was_away(
    offsets: ConsumerOffsetManager,
) -> None:
    old = {"T@g": {0: 5, 1: 5}}
    offsets.follow_master(old, None)
    offsets.commit("g", "T", 0, 9)
    offsets.follow_master(old, old)
    assert offsets.query("g", "T", 0) == 9
    offsets.follow_master({"T@g": {0: 6, 1: 4}}, old)
    assert [offsets.query("g", "T", queue) for queue in (0, 1)] == [6, 4]


def test_the_first_table_of_a_master_decreases_no_offset(offsets: ConsumerOffsetManager) -> None:
    offsets.commit("g", "T", 0, 9)
    offsets.follow_master({"T@g": {0: 5, 1: 5}}, None)
    assert [offsets.query("g", "T", queue) for queue in (0, 1)] == [9, 5]


async def test_a_topic_created_just_before_the_master_died_is_served(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        metadata = pair.slave.managers.metadata
        pair.master.managers.metadata.topics.update(TopicConfig(topic_name="deleted"))
        pair.master.store.put(Record(topic="deleted", body=b"x"))
        await eventually(lambda: metadata.topics.get("deleted") is not None)
        pair.master.managers.metadata.topics.delete("deleted")
        await eventually(lambda: metadata.topics.get("deleted") is None)
        pair.master.store.put(Record(topic="late", queue_id=2, body=b"x"))
        await eventually(lambda: pair.slave.store.max_offset("late", 2) == 1)
        await pair.master.stop()
        await eventually(lambda: metadata.topics.get("late") is not None)
        late = metadata.topics.get("late")
        assert late is not None
        assert late.read_queue_nums == 3
        assert metadata.topics.get("deleted") is None


async def test_delay_progress_is_copied_after_the_log_has_the_deliveries(tmp_path: Path) -> None:
    settings = {"messageDelayLevel": "1s 1s"}
    async with running_pair(tmp_path, master=settings, slave=settings) as pair:
        async with Producer(pair.name_server.address, group="p") as producer:
            for _ in range(3):
                await producer.send(Message(topic="T", body=b"x", delay_level=2))
        levels = pair.slave.managers.delayed.levels
        await eventually(lambda: levels.offset_table.get(2) == 3)
        assert pair.slave.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 3
        assert pair.slave.store.log.max_offset == pair.master.store.log.max_offset


async def test_queues_of_deleted_topics_are_removed(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        master, slave = pair.master, pair.slave
        for topic in ("kept", "gone", "again"):
            master.managers.metadata.topics.update(TopicConfig(topic_name=topic))
            for _ in range(3):
                master.store.put(Record(topic=topic, body=b"old"))
        await eventually(lambda: slave.store.max_offset("again", 0) == 3)
        for topic in ("gone", "again"):
            master.managers.metadata.topics.delete(topic)
            master.store.delete_topic(topic)
        await eventually(
            lambda: (
                "gone" not in slave.store.queues
                and "again" not in slave.store.queues
                and slave.store.max_offset("kept", 0) == 3
            )
        )
        # The thread that receives the log does not continue with a removed queue.
        master.managers.metadata.topics.update(TopicConfig(topic_name="again"))
        master.store.put(Record(topic="again", body=b"new"))
        await eventually(lambda: slave.store.max_offset("again", 0) == 1)
        assert slave.store.max_offset("kept", 0) == 3


async def test_a_topic_that_was_made_again_serves_no_message_of_the_deleted_one(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        master, slave = pair.master, pair.slave
        topics = master.managers.metadata.topics
        topics.update(TopicConfig(topic_name="T"))
        for queue_id in (0, 1):
            master.store.put(Record(topic="T", queue_id=queue_id, body=b"old"))
        await eventually(
            lambda: slave.store.max_offset("T", 1) == 1 and slave.managers.metadata.topics.get("T")
        )
        # Without a turn of the loop: the slave sees one table with the topic, then another.
        topics.delete("T")
        master.store.delete_topic("T")
        topics.update(TopicConfig(topic_name="T"))
        master.store.put(Record(topic="T", queue_id=0, body=b"new"))
        await eventually(lambda: slave.store.max_offset("T", 1) == 0)
        await eventually(lambda: slave.store.log.max_offset == master.store.log.max_offset)
        assert slave.store.max_offset("T", 0) == 1
        place = slave.store.place_of(slave.store.queues.get("T", 0), 0)
        assert place is not None
        record = slave.store.read(place)
        assert record is not None
        assert b"new" in bytes(record)


async def test_queues_with_later_records_stay(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        master, slave = pair.master, pair.slave
        for queue_id in (0, 1):
            master.store.put(Record(topic="T", queue_id=queue_id, body=b"x"))
        before = master.store.log.max_offset
        master.store.put(Record(topic="T", body=b"y"))
        await eventually(lambda: slave.store.max_offset("T", 0) == 2)
        receiver = LogReceiver(slave.store)
        assert receiver.remove_topic("T", before)
        assert [slave.store.max_offset("T", queue_id) for queue_id in (0, 1)] == [2, 0]
        assert receiver.remove_topic("T", master.store.log.max_offset)
        assert "T" not in slave.store.queues


async def test_the_tables_of_a_master_that_lost_its_disk_are_not_copied(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        slave = pair.slave
        pair.master.managers.metadata.topics.update(TopicConfig(topic_name="T"))
        pair.master.store.put(Record(topic="T", body=b"x"))
        metadata = slave.managers.metadata
        await eventually(
            lambda: metadata.topics.get("T") is not None and slave.store.max_offset("T", 0) == 1
        )
        same_ports = {
            "listenPort": pair.master.address.rpartition(":")[2],
            "haListenPort": pair.master.replication.ha_address.rpartition(":")[2],
        }
        await pair.master.stop()
        async with Broker(broker_config(tmp_path / "empty", pair.name_server, **same_ports)):
            await eventually(lambda: "ahead of the master's" in slave.replication.state().trouble)
            assert not await slave.replication.copy_tables()
        assert metadata.topics.get("T") is not None
        assert slave.store.max_offset("T", 0) == 1


class CountedRequests(MasterRequests):
    """Counts the tables that are asked for."""

    asked = 0

    async def page(
        self, code: int, first: int, version: DataVersion | None
    ) -> tuple[bytes, int | None]:
        self.asked += 1
        return await super().page(code, first, version)


async def test_between_copies_of_all_tables_the_changed_topics_are_copied(tmp_path: Path) -> None:
    async with (
        running_pair(tmp_path, with_slave=False) as pair,
        Broker(broker_config(tmp_path / "copy", pair.name_server, brokerName="copy")) as copy,
    ):
        theirs, mine = pair.master.managers.metadata.topics, copy.managers.metadata.topics
        now = 100.0
        client = RemotingClient()
        master = CountedRequests(client, pair.master.address)
        tables = SlaveSynchronize(
            *(copy.managers.metadata, copy.managers.delayed, copy.store),
            lambda: master,
            lambda topic, end: True,
            lambda: True,
            monotonic=lambda: now,
        )
        for _ in range(2):  # the second time it has what the first answer announced
            assert await tables.run()
            theirs.update(TopicConfig(topic_name=f"before-{master.asked}"))
            assert await tables.wait_for_change(1)
        asked = master.asked
        theirs.update(TopicConfig(topic_name="T", read_queue_nums=3))
        assert await tables.run()
        assert await tables.wait_for_change(1)
        assert await tables.run()
        assert (master.asked, mine.table["T"]) == (asked, theirs.table["T"])
        assert mine.table == theirs.table
        assert mine.data_version == theirs.data_version
        theirs.update(TopicConfig(topic_name="later"))
        assert await tables.wait_for_change(1)
        now += 2 * HOLD_S
        assert await tables.run()
        assert master.asked > asked, "consumer offsets, too"
        assert mine.table["later"] == theirs.table["later"]
        await client.close()


async def test_large_tables_are_copied_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_pages, "PAGE_MAX", 7)
    monkeypatch.setattr(table_text, "PAGE_BYTES", 1_000)
    async with running_pair(tmp_path, with_slave=False) as pair:
        master = pair.master.managers.metadata
        for number in range(60):
            master.topics.update(TopicConfig(topic_name=f"T{number}"))
            master.groups.update(SubscriptionGroupConfig(group_name=f"G{number}"))
            master.offsets.commit(f"G{number}", f"T{number}", number % 4, number)
        many = dict.fromkeys(range(100), 7)
        master.offsets.table["long@G1"] = many
        async with Broker(
            broker_config(tmp_path / "copy", pair.name_server, brokerName="c")
        ) as copy:
            client = RemotingClient()
            asked = CountedRequests(client, pair.master.address)
            mine = copy.managers.metadata
            tables = SlaveSynchronize(
                *(mine, copy.managers.delayed, copy.store),
                lambda: asked,
                lambda topic, end: True,
                lambda: True,
            )
            assert await tables.run()
            assert asked.asked > 3 * 60 // 7
            assert mine.topics.table == master.topics.table
            assert mine.topics.data_version == master.topics.data_version
            assert mine.groups.table == master.groups.table
            assert mine.offsets.table == master.offsets.table
            before = asked.asked
            assert await tables.run()
            assert asked.asked - before < before, "one page shows that a table has its version"
            master.topics.delete("T3")
            assert await tables.run()
            assert mine.topics.table == master.topics.table
            await client.close()


async def test_a_table_that_changes_between_two_pages_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_pages, "PAGE_MAX", 7)

    class Changing(CountedRequests):
        async def page(
            self, code: int, first: int, version: DataVersion | None
        ) -> tuple[bytes, int | None]:
            if self.asked == 2:
                pair.master.managers.metadata.topics.delete("T0")
            return await super().page(code, first, version)

    async with running_pair(tmp_path, with_slave=False) as pair:
        theirs = pair.master.managers.metadata.topics
        for number in range(20):
            theirs.update(TopicConfig(topic_name=f"T{number}"))
        async with Broker(
            broker_config(tmp_path / "copy", pair.name_server, brokerName="c")
        ) as copy:
            client = RemotingClient()
            asked = Changing(client, pair.master.address)
            tables = SlaveSynchronize(
                *(copy.managers.metadata, copy.managers.delayed, copy.store),
                lambda: asked,
                lambda topic, end: True,
                lambda: True,
            )
            assert await tables.run()
            assert copy.managers.metadata.topics.table == theirs.table
            await client.close()


class FixedTables(MasterRequests):
    """A master with these offsets, whose log ends at `end`."""

    def __init__(self, client: RemotingClient, table: dict[str, dict[int, int]]) -> None:
        super().__init__(client, "127.0.0.1:1")
        self.offsets = table
        self.end = 0

    async def table(self, code: int) -> bytes:
        if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            return ConsumerOffsetSerializeWrapper(offset_table=self.offsets).encode()
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            return DelayOffsetSerializeWrapper().encode()
        empty = (
            TopicConfigSerializeWrapper()
            if code == RequestCode.GET_ALL_TOPIC_CONFIG
            else SubscriptionGroupWrapper()
        )
        return empty.encode()

    async def page(
        self, code: int, first: int, version: DataVersion | None
    ) -> tuple[bytes, int | None]:
        return await self.table(code), None

    async def span(self) -> LogSpan:
        return LogSpan(0, self.end)


async def test_offsets_beyond_what_a_slave_shows_are_taken_later(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        broker = pair.master
        store, metadata = broker.store, broker.managers.metadata
        for _ in range(3):
            store.put(Record(topic="T", body=b"x"))
        queue = store.queues.get("T", 0)
        master = FixedTables(RemotingClient(), {"T@g": {0: 3, 1: 5}, "expired@g": {0: 9}})
        master.end = store.log.max_offset
        tables = SlaveSynchronize(
            metadata,
            broker.managers.delayed,
            store,
            lambda: master,
            lambda topic, end: False,
            lambda: True,
            only_shown=True,
        )
        store.show_below(queue[1][0])
        assert await tables.run()
        assert metadata.offsets.table == {"T@g": {0: 1}}
        store.show_below(queue[2][0])
        tables.settle_offsets()
        assert metadata.offsets.table == {"T@g": {0: 2}}
        # Queues that are not in the whole log have expired: their groups keep their places.
        store.show_below(store.log.max_offset)
        assert await tables.run()
        assert metadata.offsets.table == {"T@g": {0: 3, 1: 5}, "expired@g": {0: 9}}
