"""The pull consumer and the messages that it returns."""

import asyncio
import zlib

import pytest
from harness.fake_cluster import FakeCluster, pulled, record, refused

from congreve.client import MessageQueue, PullConsumer, PullStatus, SyncPullConsumer
from congreve.client.errors import (
    BrokerError,
    BrokerNotFoundError,
    ClientError,
    InvalidNameError,
    RouteNotFoundError,
)
from congreve.records.errors import RecordError
from congreve.remoting.messages.command import RemotingCommand

PULL, QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET = 11, 14, 15, 30
QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=1)


def offset(value: int) -> object:
    return lambda request: request.reply(0, ext_fields={"offset": str(value)})


async def pull_of(body: bytes, expression: str = "*") -> list[object]:
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers[PULL] = pulled(0, 9, body)
        async with PullConsumer(cluster.address, group="cg") as consumer:
            return (await consumer.pull(QUEUE, 0, expression=expression)).messages


async def test_a_pull_request_names_queue_offset_and_filter() -> None:
    async with FakeCluster("a") as cluster, PullConsumer(cluster.address, group="cg") as consumer:
        cluster.brokers["a"].answers[PULL] = pulled(19, 5)
        result = await consumer.pull(QUEUE, 5, 7, expression="A||B", wait_s=2.5)
        fields = cluster.brokers["a"].asked(PULL)[0].ext_fields
        assert {key: value for key, value in fields.items() if key != "subVersion"} == {
            "consumerGroup": "cg",
            "topic": "T",
            "queueId": "1",
            "queueOffset": "5",
            "maxMsgNums": "7",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "2500",
            "subscription": "A||B",
            "expressionType": "TAG",
        }
        assert (result.status, result.next_offset) == (PullStatus.NO_NEW_MSG, 5)
        await consumer.pull(QUEUE, 5)
        assert cluster.brokers["a"].asked(PULL)[1].ext_fields["sysFlag"] == "4"


async def test_records_become_messages() -> None:
    first, second = await pull_of(record(3, b"body") + record(4))
    assert first.body == b"body"
    assert (first.topic, first.queue, first.queue_offset, first.flag) == ("T", QUEUE, 3, 5)
    assert (first.tags, first.keys, first.message_id) == ("A", None, "U3")
    assert first.offset_message_id == "0A00000200002A9F00000000000003EB"
    assert (first.born_host, first.born_timestamp) == (("10.0.0.1", 99), 1)
    assert second.queue_offset == 4


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
async def test_compressed_bodies_of_all_clients_are_read(sys_flag: int) -> None:
    (message,) = await pull_of(record(0, zlib.compress(b"long" * 999), sys_flag=sys_flag))
    assert message.body == b"long" * 999
    assert not message.sys_flag & 1


@pytest.mark.parametrize(("sys_flag", "named"), [(0x401, "compressor 4"), (0x1, "decompressed")])
async def test_errors_for_bodies_that_cannot_be_decompressed_name_them(
    sys_flag: int, named: str
) -> None:
    (message,) = await pull_of(record(0, b"junk", sys_flag=sys_flag))
    with pytest.raises(ClientError, match=named):
        assert message.body


async def test_tags_are_compared_again_as_their_hashes_may_collide() -> None:
    assert len(await pull_of(record(0), "A")) == 1
    assert await pull_of(record(0), "B || C") == []


async def test_damaged_record_is_an_error() -> None:
    body = bytearray(record(0, b"body"))
    body[90] ^= 1
    with pytest.raises(RecordError):
        await pull_of(bytes(body))


@pytest.mark.parametrize("code", [1, 16, 17, 24, 26])
async def test_the_error_of_a_refused_pull_gives_the_reason(code: int) -> None:
    async with FakeCluster("a") as cluster, PullConsumer(cluster.address, group="cg") as consumer:
        cluster.brokers["a"].answers[PULL] = refused(code)
        with pytest.raises(BrokerError, match="as configured") as caught:
            await consumer.pull(QUEUE, 0)
        assert caught.value.code == code


async def test_a_pull_follows_the_suggestion_of_the_broker() -> None:
    def suggest_slave(request: RemotingCommand) -> RemotingCommand:
        answer = pulled(19, 0)(request)
        answer.ext_fields["suggestWhichBrokerId"] = "1"
        return answer

    async with FakeCluster("a", "a-slave") as cluster:
        master, slave = cluster.brokers["a"], cluster.brokers["a-slave"]
        master.answers[PULL], slave.answers[PULL] = suggest_slave, pulled(19, 0)
        slave.name = "a"
        cluster.brokers = {"a": slave}
        cluster.register("a", broker_id=1)
        cluster.brokers = {"a": master, "slave": slave}
        async with PullConsumer(cluster.address, group="cg") as consumer:
            for _ in range(3):
                await consumer.pull(QUEUE, 0)
        assert (len(master.asked(PULL)), len(slave.asked(PULL))) == (2, 1)


async def test_offsets_of_queues_and_groups_are_read() -> None:
    async with FakeCluster("a") as cluster, PullConsumer(cluster.address, group="cg") as consumer:
        answers = cluster.brokers["a"].answers
        answers |= {MAX_OFFSET: offset(12), QUERY_OFFSET: refused(22)}
        assert await consumer.max_offset(QUEUE) == 12
        assert await consumer.committed(QUEUE) is None
        answers[QUERY_OFFSET] = offset(4)
        assert await consumer.committed(QUEUE) == 4
        answers[QUERY_OFFSET] = refused(1)
        with pytest.raises(BrokerError):
            await consumer.committed(QUEUE)
        await consumer.commit(QUEUE, 6)
        (request,) = cluster.brokers["a"].asked(UPDATE_OFFSET)
        assert request.ext_fields == {
            "consumerGroup": "cg",
            "topic": "T",
            "queueId": "1",
            "commitOffset": "6",
        }
        assert not request.is_oneway


async def test_errors_for_unknown_topics_and_brokers_name_them() -> None:
    async with FakeCluster("a") as cluster, PullConsumer(cluster.address, group="cg") as consumer:
        with pytest.raises(RouteNotFoundError, match="nowhere"):
            await consumer.queues("nowhere")
        with pytest.raises(InvalidNameError):
            await consumer.queues("a b")
        unknown = MessageQueue(topic="T", broker_name="unknown", queue_id=0)
        with pytest.raises(BrokerNotFoundError, match="unknown"):
            await consumer.pull(unknown, 0)


async def test_the_sync_consumer_behaves_like_the_async_one() -> None:
    def work(address: str) -> None:
        with SyncPullConsumer(address, group="cg") as consumer:
            assert [queue.queue_id for queue in consumer.queues("T")] == [0, 1]
            assert consumer.pull(QUEUE, 0).messages[0].body == b"x"
            assert consumer.max_offset(QUEUE) == 12

    async with FakeCluster("a") as cluster:
        answers = cluster.brokers["a"].answers
        answers |= {PULL: pulled(0, 1, record(0)), MAX_OFFSET: offset(12)}
        await asyncio.to_thread(work, cluster.address)
