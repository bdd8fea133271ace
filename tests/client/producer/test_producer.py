"""The producer with fake brokers."""

import asyncio
import contextvars
import threading
from contextlib import suppress

import pytest
from harness.fake_cluster import FakeBroker, FakeCluster, refused, silence, stored

from congreve.client import (
    Message,
    MessageQueue,
    Producer,
    SendResult,
    SendStatus,
    SyncProducer,
    by_key,
)
from congreve.client.errors import (
    BrokerError,
    ClientStateError,
    InvalidMessageError,
    InvalidNameError,
    NoNameServerError,
    RouteNotFoundError,
    SendTimeoutError,
)
from congreve.namesrv.routes import BrokerIdentity
from congreve.remoting.messages.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.server import RemotingServer

SEND, SEND_BATCH = 310, 320
RETRYABLE = [1, 14, 16, 17, 204, 205]


def all_store(cluster: FakeCluster) -> list[FakeBroker]:
    for broker in cluster.brokers.values():
        broker.answers |= {SEND: stored, SEND_BATCH: stored}
    return list(cluster.brokers.values())


def sends(cluster: FakeCluster) -> list[RemotingCommand]:
    return [r for broker in cluster.brokers.values() for r in broker.asked(SEND, SEND_BATCH)]


async def test_a_send_request_has_the_fields_that_the_reference_sends() -> None:
    async with (
        FakeCluster("a") as cluster,
        Producer(cluster.address, group="pg", clock=lambda: 1700000000.125) as producer,
    ):
        all_store(cluster)
        result = await producer.send(Message(topic="T", body=b"body", tags="A", flag=3))
        (request,) = sends(cluster)
        fields = request.ext_fields
        assert request.code == SEND
        assert request.version == 401
        assert request.body == b"body"
        assert {key: fields[key] for key in "abcdfghjkm"} == {
            "a": "pg",
            "b": "T",
            "c": "TBW102",
            "d": "4",
            "f": "0",
            "g": "1700000000125",
            "h": "3",
            "j": "0",
            "k": "false",
            "m": "false",
        }
        assert f"UNIQ_KEY\x01{result.message_id}" in fields["i"]
        assert "WAIT\x01true" in fields["i"]
        assert result.status is SendStatus.SEND_OK
        assert result.offset_message_id == "7F00000100002A9F0000000000000000"
        assert result.queue.queue_id == int(fields["e"])
        assert result.queue_offset == 7


async def test_messages_are_sent_to_all_queues_of_all_brokers_in_turn() -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        all_store(cluster)
        results = [await producer.send(Message(topic="T", body=b"x")) for _ in range(8)]
        counts: dict[MessageQueue, int] = {}
        for result in results:
            counts[result.queue] = counts.get(result.queue, 0) + 1
        assert sorted(counts.values()) == [2, 2, 2, 2]


@pytest.mark.parametrize("code", RETRYABLE)
async def test_refused_send_is_repeated_at_another_broker(code: int) -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        one, other = all_store(cluster)
        one.answers[SEND] = refused(code)
        for _ in range(6):
            assert (await producer.send(Message(topic="T", body=b"x"))).queue.broker_name == "b"
        assert one.asked(SEND)
        ids = [request.ext_fields["i"] for request in other.asked(SEND)]
        assert len(set(ids)) == 6


@pytest.mark.parametrize("code", [2, 13, 25, 99])
async def test_other_refusals_are_raised_at_once(code: int) -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        for broker in cluster.brokers.values():
            broker.answers[SEND] = refused(code)
        with pytest.raises(BrokerError, match="as configured") as caught:
            await producer.send(Message(topic="T", body=b"x"))
        assert caught.value.code == code
        assert len(sends(cluster)) == 1


async def test_the_last_refusal_is_raised_after_all_attempts() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        cluster.brokers["a"].answers[SEND] = refused(14)
        with pytest.raises(BrokerError) as caught:
            await producer.send(Message(topic="T", body=b"x"))
        assert caught.value.code == 14
        assert len(sends(cluster)) == 3


async def test_a_dead_broker_is_skipped() -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        all_store(cluster)
        await producer.queues("T")
        await cluster.brokers["a"].server.stop()
        for _ in range(4):
            assert (await producer.send(Message(topic="T", body=b"x"))).queue.broker_name == "b"


async def test_silent_broker_ends_the_send_in_time() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        cluster.brokers["a"].answers[SEND] = silence
        with pytest.raises(SendTimeoutError, match="not confirmed in time"):
            await producer.send(Message(topic="T", body=b"x"), timeout_s=0.05)


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_messages_with_a_flush_or_slave_status_count_as_stored(code: int) -> None:
    def half(request: RemotingCommand) -> RemotingCommand:
        return request.reply(code, "slow", stored(request).ext_fields)

    async with FakeCluster("a", "b") as cluster:
        for broker in cluster.brokers.values():
            broker.answers[SEND] = half
        async with Producer(cluster.address, group="pg") as producer:
            assert (await producer.send(Message(topic="T", body=b"x"))).status == code
            assert len(sends(cluster)) == 1
        async with Producer(cluster.address, group="pg", retry_when_not_stored_ok=True) as producer:
            assert (await producer.send(Message(topic="T", body=b"x"))).status == code
            assert len(sends(cluster)) == 4


async def test_sends_with_a_selector_or_a_queue_get_one_attempt() -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        all_store(cluster)
        message = Message(topic="T", body=b"x")
        chosen = {(await producer.send(message, selector=by_key("k"))).queue for _ in range(5)}
        assert len(chosen) == 1
        (queue,) = chosen
        cluster.brokers[queue.broker_name].answers[SEND] = refused(14)
        before = len(sends(cluster))
        for choice in ({"queue": queue}, {"selector": by_key("k")}):
            with pytest.raises(BrokerError):
                await producer.send(message, **choice)
        assert len(sends(cluster)) == before + 2


async def test_keys_are_hashed_as_java_does() -> None:
    queues = [MessageQueue(topic="T", broker_name="a", queue_id=i) for i in range(1000)]
    assert by_key("hello")(queues).queue_id == 99162322 % 1000
    assert by_key("polygenelubricants")(queues).queue_id == 2**31 % 1000


async def test_a_message_for_a_missing_topic_goes_to_a_broker_that_creates_it() -> None:
    async with FakeCluster("a", topics=("TBW102",), queues=8) as cluster:
        all_store(cluster)
        async with Producer(cluster.address, group="pg") as producer:
            queues = await producer.queues("new")
            assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
            assert (await producer.send(Message(topic="new", body=b"x"))).queue.topic == "new"


async def test_unknown_topic_without_template_is_an_error() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        with pytest.raises(RouteNotFoundError, match="nowhere"):
            await producer.send(Message(topic="nowhere", body=b"x"))


async def test_unwritable_topic_and_masterless_broker_have_no_queues() -> None:
    async with FakeCluster("a", topics=()) as cluster:
        cluster.register("a", "read-only", perm=4)
        async with Producer(cluster.address, group="pg") as producer:
            with pytest.raises(RouteNotFoundError, match="read-only had no writable queue until"):
                await producer.send(Message(topic="read-only", body=b"x"), timeout_s=0.05)
            gone = MessageQueue(topic="read-only", broker_name="a", queue_id=0)
            cluster.register("a", "read-only", broker_id=1)
            await producer.routes.refresh()
            with pytest.raises(RouteNotFoundError, match="had no master of a until"):
                await producer.send(
                    Message(topic="read-only", body=b"x"), queue=gone, timeout_s=0.05
                )


async def test_batch_is_one_request() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        all_store(cluster)
        (result,) = await producer.send_batch(
            [Message(topic="T", body=b"m%d" % i) for i in range(3)]
        )
        (request,) = sends(cluster)
        assert request.code == SEND_BATCH
        assert request.ext_fields["m"] == "true"
        assert result.message_id.count(",") == 2


async def test_a_oneway_send_requests_no_answer() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        await producer.send_oneway(Message(topic="T", body=b"x"))
        while not sends(cluster):
            await asyncio.sleep(0.001)
        assert sends(cluster)[0].is_oneway


async def test_refused_messages_are_not_sent() -> None:
    async with (
        FakeCluster("a") as cluster,
        Producer(cluster.address, group="pg", max_message_size=10) as producer,
    ):
        with pytest.raises(InvalidMessageError):
            await producer.send(Message(topic="T", body=b"x" * 11))
        with pytest.raises(InvalidNameError):
            await producer.send_oneway(Message(topic="a b", body=b"x"))
        with pytest.raises(InvalidMessageError):
            await producer.send_batch([])
        assert sends(cluster) == []


@pytest.mark.parametrize("group", ["", "a b", "DEFAULT_PRODUCER"])
def test_an_invalid_group_is_refused(group: str) -> None:
    with pytest.raises(InvalidNameError):
        Producer("127.0.0.1:1", group=group)


async def test_errors_name_the_state_of_the_producer() -> None:
    producer = Producer("127.0.0.1:1", group="pg")
    with pytest.raises(ClientStateError, match="not started"):
        await producer.send(Message(topic="T", body=b"x"))
    async with producer:
        with pytest.raises(ClientStateError, match="only once"):
            await producer.start()
        with pytest.raises(NoNameServerError, match=r"127\.0\.0\.1:1"):
            await producer.send(Message(topic="T", body=b"x"))
    with pytest.raises(ClientStateError, match="stopped"):
        await producer.send(Message(topic="T", body=b"x"))
    await producer.stop()


def test_address_list_without_addresses_is_refused() -> None:
    with pytest.raises(NoNameServerError):
        Producer(" ; ", group="pg")


async def test_stopping_unregisters_the_group() -> None:
    async with FakeCluster("a") as cluster:
        all_store(cluster)
        async with Producer(cluster.address, group="pg") as producer:
            await producer.send(Message(topic="T", body=b"x"))
            await producer.heartbeat()
        broker = cluster.brokers["a"]
        assert b'"producerDataSet":[{"groupName":"pg"}]' in broker.asked(34)[0].body
        (request,) = broker.asked(35)
        assert request.ext_fields == {"clientID": producer.client_id, "producerGroup": "pg"}


async def test_cancelled_send_leaves_a_working_producer() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        broker = cluster.brokers["a"]
        broker.answers[SEND] = silence
        task = asyncio.create_task(producer.send(Message(topic="T", body=b"x")))
        while not sends(cluster):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        broker.answers[SEND] = stored
        await producer.send(Message(topic="T", body=b"x"))


async def test_sync_producer_serves_several_threads() -> None:
    def work(address: str) -> int:
        with SyncProducer(address, group="pg") as producer:

            def send() -> None:
                for _ in range(5):
                    producer.send(Message(topic="T", body=b"x"))

            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.send_oneway(Message(topic="T", body=b"x"))
            with pytest.raises(InvalidMessageError):
                producer.send(Message(topic="T", body=b""))
            return len(producer.send_batch([Message(topic="T", body=b"x")]))

    async with FakeCluster("a") as cluster:
        all_store(cluster)
        assert await asyncio.to_thread(work, cluster.address) == 1
        assert len(sends(cluster)) == 22


def test_a_sync_producer_that_is_not_started_raises_an_error() -> None:
    producer = SyncProducer("127.0.0.1:1", group="pg")
    with pytest.raises(ClientStateError, match="not running"):
        producer.send(Message(topic="T", body=b"x"))
    producer.stop()


async def test_callbacks_get_the_result_in_the_context_of_the_sender() -> None:
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current")
    seen: list[tuple[str, int]] = []

    def note(task: asyncio.Task[SendResult]) -> None:
        seen.append((current.get(), task.result().queue_offset))

    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        all_store(cluster)
        for name in ("one", "two"):
            current.set(name)
            producer.send_soon(Message(topic="T", body=b"x"), note)
    assert sorted(seen) == [("one", 7), ("two", 7)]


async def test_a_stop_waits_for_asynchronous_sends() -> None:
    async with FakeCluster("a") as cluster:
        all_store(cluster)
        async with Producer(cluster.address, group="pg") as producer:
            tasks = [producer.send_soon(Message(topic="T", body=b"x")) for _ in range(50)]
        assert all(task.done() and not task.exception() for task in tasks)


async def test_the_vip_channel_uses_the_port_minus_two() -> None:
    async with FakeCluster("a") as cluster:
        vip = RemotingServer({SEND: lambda request, connection: stored(request)}, port=0)
        await vip.start()
        broker = cluster.brokers["a"]
        cluster.name_server.routes.register(
            BrokerIdentity("C", "a", 0, f"127.0.0.1:{vip.port + 2}"),
            TopicConfigSerializeWrapper(
                topic_config_table={"V": TopicConfig(topic_name="V")},
                data_version=DataVersion(counter=2, timestamp=2),
            ),
            [],
            "a",
        )
        async with Producer(cluster.address, group="pg", vip_channel=True) as producer:
            await producer.send(Message(topic="V", body=b"x"))
        await vip.stop()
        assert broker.asked(SEND) == []


async def test_a_hanging_broker_delays_only_one_send() -> None:
    async with (
        FakeCluster("a", "b") as cluster,
        Producer(cluster.address, group="pg", latency_faults=True) as producer,
    ):
        all_store(cluster)
        cluster.brokers["a"].answers[SEND] = silence
        for _ in range(10):
            with suppress(SendTimeoutError):
                await producer.send(Message(topic="T", body=b"x"), timeout_s=0.5)
        assert len(cluster.brokers["a"].asked(SEND)) <= 1  # none if the first went to b


def test_futures_of_the_sync_producer_run_their_callbacks() -> None:
    async def scenario() -> list[int]:
        async with FakeCluster("a") as cluster:
            all_store(cluster)
            return await asyncio.to_thread(send, cluster.address)

    def send(address: str) -> list[int]:
        offsets: list[int] = []
        with SyncProducer(address, group="pg") as producer:
            futures = [
                producer.send_soon(
                    Message(topic="T", body=b"x"),
                    lambda future: offsets.append(future.result().queue_offset),
                )
                for _ in range(5)
            ]
            for future in futures:
                future.result(60)
            assert len(producer.send_many("T", [b"x"])) == 1
        return offsets

    assert asyncio.run(scenario()) == [7] * 5
