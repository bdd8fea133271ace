"""A member of a group against a broker that answers as told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from congreve.client import ConsumeFrom, ConsumerSettings, MessageQueue, PushConsumer
from congreve.client.errors import (
    ClientStateError,
    InvalidNameError,
    InvalidSubscriptionError,
    NoNameServerError,
)
from congreve.remoting.bodies import HeartbeatData
from congreve.remoting.command import RemotingCommand

from .cluster import FakeBroker, FakeCluster, record, refused

QUICK = ConsumerSettings(pause_after_error_s=0.01, suspend_s=0.01, retry_local_s=0.01)

PULL, QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET = 11, 14, 15, 30
HEART_BEAT, UNREGISTER, SEND_BACK, MEMBERS, IDS_CHANGED = 34, 35, 36, 38, 40


class Group(FakeBroker):
    """The broker of a group: its queues' records, its members, its offsets."""

    def __init__(self) -> None:
        super().__init__("a")
        self.others: list[str] = []
        self.records: dict[int, list[bytes]] = {0: [], 1: []}
        self.committed: dict[int, int] = {}
        self.failures = 0
        self._me = ""
        self.answers |= {
            HEART_BEAT: self._heartbeat,
            MEMBERS: self._members,
            QUERY_OFFSET: self._query,
            UPDATE_OFFSET: self._update,
            PULL: self._pull,
            MAX_OFFSET: lambda request: request.reply(0, ext_fields={"offset": "5"}),
        }

    def fill(self, queue_id: int, offsets: Iterable[int]) -> None:
        self.records[queue_id] = [record(i, b"%d" % i) for i in offsets]

    async def notify(self) -> None:
        for connection in self.server.connections:
            fields = {"consumerGroup": "cg"}
            connection.oneway(RemotingCommand(code=IDS_CHANGED, ext_fields=fields))

    def _heartbeat(self, request: RemotingCommand) -> RemotingCommand:
        self._me = HeartbeatData.decode(request.body).client_id
        return request.reply(0)

    def _members(self, request: RemotingCommand) -> RemotingCommand:
        ids = ",".join(f'"{one}"' for one in [self._me, *self.others])
        return request.reply(0, body=f'{{"consumerIdList":[{ids}]}}'.encode())

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        offset = self.committed.get(int(request.ext_fields["queueId"]))
        if offset is None:
            return request.reply(22, "none")
        return request.reply(0, ext_fields={"offset": str(offset)})

    def _update(self, request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        self.committed[int(fields["queueId"])] = int(fields["commitOffset"])
        return request.reply(0)

    def _pull(self, request: RemotingCommand) -> RemotingCommand | None:
        if self.failures:
            self.failures -= 1
            return request.reply(1, "told to fail")
        begin, count = (int(request.ext_fields[key]) for key in ("queueOffset", "maxMsgNums"))
        all_records = self.records[int(request.ext_fields["queueId"])]
        if begin > len(all_records):
            return self._offsets(request, 21, len(all_records))
        found = all_records[begin : begin + count]
        if not found:
            return None
        return self._offsets(request, 0, begin + len(found), b"".join(found))

    def _offsets(
        self, request: RemotingCommand, code: int, next_offset: int, body: bytes = b""
    ) -> RemotingCommand:
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": "0",
            "maxOffset": "100",
        }
        return request.reply(code, ext_fields=fields, body=body)


@asynccontextmanager
async def cluster_of(group: Group, topics: tuple[str, ...] = ("T",)) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(topics=topics)
    cluster.brokers["a"] = group
    async with cluster:
        yield cluster


@asynccontextmanager
async def member(
    group: Group,
    *,
    consume_from: ConsumeFrom = ConsumeFrom.FIRST_OFFSET,
    tags: str = "*",
    settings: ConsumerSettings = QUICK,
    **more: Any,
) -> AsyncIterator[PushConsumer]:
    async with cluster_of(group) as cluster:
        consumer = PushConsumer(
            cluster.address,
            group="cg",
            topics={"T": tags},
            consume_from=consume_from,
            settings=settings,
            **more,
        )
        async with consumer:
            yield consumer


async def take(consumer: PushConsumer, count: int) -> list[bytes]:
    """Iterate until `count` messages came, and be done with all of them."""
    bodies: list[bytes] = []
    async with asyncio.timeout(10):
        async for message in consumer:
            bodies.append(message.body)
            if len(bodies) == count:
                consumer.done(message)
                break
    return bodies


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_messages_come_in_order_and_are_committed_at_the_end() -> None:
    group = Group()
    group.fill(0, range(100))
    async with member(group) as consumer:
        assert await take(consumer, 100) == [b"%d" % i for i in range(100)]
    assert group.committed[0] == 100


async def test_message_in_work_is_not_committed() -> None:
    group = Group()
    group.fill(0, range(10))
    async with member(group) as consumer:
        async for message in consumer:
            if message.queue_offset == 4:
                break
    assert group.committed[0] == 4


async def test_message_whose_work_failed_is_not_committed() -> None:
    group = Group()
    group.fill(0, range(10))

    async def work(consumer: PushConsumer) -> None:
        async for message in consumer:
            if message.queue_offset == 7:
                raise RuntimeError("work failed")

    async with member(group) as consumer:
        with pytest.raises(RuntimeError):
            await work(consumer)
    assert group.committed[0] == 7


async def test_group_goes_on_where_it_was() -> None:
    group = Group()
    group.fill(0, range(10))
    group.committed = {0: 6, 1: 0}
    async with member(group) as consumer:
        assert await take(consumer, 4) == [b"6", b"7", b"8", b"9"]


async def test_new_group_begins_at_the_end_by_default() -> None:
    group = Group()
    group.fill(0, range(8))
    async with member(group, consume_from=ConsumeFrom.LAST_OFFSET) as consumer:
        assert await take(consumer, 3) == [b"5", b"6", b"7"]


async def test_joining_and_leaving_are_told() -> None:
    group = Group()
    async with member(group, tags="A || B") as consumer:
        data = HeartbeatData.decode(group.asked(HEART_BEAT)[0].body)
        (heard,) = data.consumer_data_set
        assert (heard.group_name, heard.consume_type, heard.message_model) == (
            "cg",
            "CONSUME_PASSIVELY",
            "CLUSTERING",
        )
        topics = {one.topic: one for one in heard.subscription_data_set}
        assert set(topics) == {"T", "%RETRY%cg"}
        assert topics["T"].tags_set == ["A", "B"]
        assert topics["T"].code_set == [65, 66]
        assert topics["%RETRY%cg"].sub_string == "*"
        client_id = consumer.client_id
    (request,) = group.asked(UNREGISTER)
    assert request.ext_fields == {"clientID": client_id, "consumerGroup": "cg"}


async def test_notification_makes_room_for_a_new_member_at_once() -> None:
    group = Group()
    group.fill(1, range(3))
    async with member(group) as consumer:
        assert [queue.queue_id for queue in consumer.assigned] == [0, 1]
        assert await take(consumer, 3)
        group.others = ["000-sorts-first"]
        await group.notify()
        await eventually(lambda: [queue.queue_id for queue in consumer.assigned] == [1])
        group.others = ["zzz-sorts-last"]
        await group.notify()
        await eventually(lambda: [queue.queue_id for queue in consumer.assigned] == [0])
        assert group.committed[1] == 3


async def test_messages_of_a_lost_queue_are_not_handed_out() -> None:
    group = Group()
    group.fill(0, range(5))
    async with member(group) as consumer:
        assert await take(consumer, 2) == [b"0", b"1"]
        group.others = ["000-sorts-first"]
        await group.notify()
        await eventually(lambda: [queue.queue_id for queue in consumer.assigned] == [1])
        assert group.committed[0] == 2
        group.fill(1, range(1))
        group.fill(0, [])
        late = asyncio.create_task(take(consumer, 1))
        await asyncio.sleep(0.05)
        assert not late.done()
        late.cancel()


async def test_failing_pulls_are_repeated() -> None:
    group = Group()
    group.fill(0, range(3))
    group.failures = 4
    async with member(group) as consumer:
        assert len(await take(consumer, 3)) == 3


async def test_offset_beyond_the_end_is_corrected() -> None:
    group = Group()
    group.fill(0, range(3))
    group.committed = {0: 50, 1: 0}
    async with member(group) as consumer:
        await eventually(lambda: len(group.asked(PULL)) >= 3)
        assert MessageQueue(topic="T", broker_name="a", queue_id=0) in consumer.assigned
    assert group.committed[0] == 3


async def test_sent_back_message_is_done_with_here() -> None:
    group = Group()
    group.fill(0, range(2))
    async with member(group) as consumer:
        async with asyncio.timeout(10):
            async for message in consumer:
                await consumer.send_back(message, delay_level=2)
                if message.queue_offset == 1:
                    break
        request = group.asked(SEND_BACK)[0]
        assert request.ext_fields == {
            "offset": "1000",
            "group": "cg",
            "delayLevel": "2",
            "originMsgId": "U0",
            "originTopic": "T",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        }
    assert group.committed[0] == 2


async def test_stopping_ends_all_iterations() -> None:
    group = Group()

    async def work(consumer: PushConsumer) -> int:
        return len([message async for message in consumer])

    async with member(group) as consumer:
        tasks = [asyncio.create_task(work(consumer)) for _ in range(3)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*tasks) == [0, 0, 0]


async def test_unreachable_member_list_keeps_the_queues() -> None:
    group = Group()
    async with member(group) as consumer:
        assert len(consumer.assigned) == 2
        group.answers[MEMBERS] = refused(1, "no consumer for this group")
        asked = len(group.asked(MEMBERS))
        await group.notify()
        await eventually(lambda: len(group.asked(MEMBERS)) > asked)
        assert len(consumer.assigned) == 2


async def test_bad_beginnings_leave_nothing_running() -> None:
    with pytest.raises(InvalidSubscriptionError, match="no topics"):
        PushConsumer("127.0.0.1:1", group="cg", topics={})
    with pytest.raises(InvalidNameError):
        PushConsumer("127.0.0.1:1", group="cg", topics={"a b": "*"})
    consumer = PushConsumer("127.0.0.1:1", group="cg", topics={"T": "*"})
    with pytest.raises(NoNameServerError):
        await consumer.start()
    with pytest.raises(ClientStateError, match="stopped"):
        await consumer.queues("T")


async def test_topic_that_comes_later_is_taken_up() -> None:
    settings = ConsumerSettings(rebalance_s=0.02)
    group = Group()
    async with (
        cluster_of(group, topics=()) as cluster,
        PushConsumer(cluster.address, group="cg", topics={"T": "*"}, settings=settings) as consumer,
    ):
        assert consumer.assigned == []
        cluster.register("a", "T", perm=4)
        await eventually(lambda: len(consumer.assigned) == 2)
        assert group.asked(HEART_BEAT)
