"""Transactions with a fake broker."""

import asyncio
from collections.abc import Callable

import pytest
from harness.fake_cluster import FakeBroker, FakeCluster, record, refused, stored

from congreve.client import (
    Message,
    ReceivedMessage,
    SyncTransactionProducer,
    TransactionProducer,
    TransactionState,
)
from congreve.client.errors import TransactionEndError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

SEND, BATCH, END, CHECK = 310, 320, 37, 39
MESSAGE = Message(topic="T", body=b"half", delay_level=3)
STATES = TransactionState


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(message)


async def ends(broker: FakeBroker, count: int) -> list[RemotingCommand]:
    async with asyncio.timeout(60):
        while len(broker.asked(END)) < count:
            await asyncio.sleep(0.001)
    return broker.asked(END)


@pytest.mark.parametrize("state", list(STATES))
async def test_the_broker_gets_the_result_of_the_local_work(state: TransactionState) -> None:
    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(cluster.address, group="pg", check=never) as producer,
    ):
        broker = cluster.brokers["a"]
        broker.answers[SEND] = stored
        found = await producer.send_in_transaction(MESSAGE, lambda *_: state)
        assert found.state is state
        (half,) = broker.asked(SEND)
        assert half.ext_fields["f"] == "4"
        assert "TRAN_MSG\x01true\x02PGROUP\x01pg\x02" in half.ext_fields["i"]
        assert "DELAY" not in half.ext_fields["i"]
        (end,) = await ends(broker, 1)
        assert end.is_oneway == (state is STATES.UNKNOWN)
        assert end.ext_fields == {
            "producerGroup": "pg",
            "tranStateTableOffset": "7",
            "commitLogOffset": "0",
            "commitOrRollback": str({"UNKNOWN": 0, "COMMIT": 8, "ROLLBACK": 12}[state.name]),
            "msgId": found.sent.message_id,
            "fromTransactionCheck": "false",
        }


async def test_an_exception_rolls_back_and_a_cancellation_leaves_the_state_unknown() -> None:
    async def hang(*_: object) -> TransactionState:
        await asyncio.Event().wait()
        return STATES.COMMIT

    async def fail(*_: object) -> TransactionState:
        raise ZeroDivisionError

    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(cluster.address, group="pg", check=never) as producer,
    ):
        broker = cluster.brokers["a"]
        broker.answers[SEND] = stored
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(MESSAGE, fail)
        task = asyncio.create_task(producer.send_in_transaction(MESSAGE, hang))
        while len(broker.asked(SEND)) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        states = [end.ext_fields["commitOrRollback"] for end in await ends(broker, 2)]
        assert states == ["12", "0"]


async def test_a_partly_stored_half_message_is_rolled_back_without_local_work() -> None:
    def slow(request: RemotingCommand) -> RemotingCommand:
        return request.reply(10, "slow", stored(request).ext_fields)

    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(cluster.address, group="pg", check=never) as producer,
    ):
        broker = cluster.brokers["a"]
        broker.answers[SEND] = slow
        worked: list[object] = []

        def work(*_: object) -> TransactionState:
            worked.append(1)
            return STATES.COMMIT

        found = await producer.send_in_transaction(MESSAGE, work)
        assert (found.state, worked) == (STATES.ROLLBACK, [])
        assert (await ends(broker, 1))[0].ext_fields["commitOrRollback"] == "12"


def checks_after_heartbeat(body: bytes) -> Callable[[RemotingCommand, Connection], RemotingCommand]:
    """A handler that answers a heartbeat and then sends a check of a half message."""

    def serve(request: RemotingCommand, connection: Connection) -> RemotingCommand:
        fields = {"tranStateTableOffset": "11", "commitLogOffset": "1005", "transactionId": "U5"}
        connection.oneway(RemotingCommand(code=CHECK, ext_fields=fields, body=body))
        return request.reply(0)

    return serve


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (lambda message: STATES.COMMIT, "8"),
        (lambda message: STATES.ROLLBACK, "12"),
        (lambda message: 1 // 0, "0"),
        (lambda message: 5, "0"),
    ],
)
async def test_a_check_is_answered_to_the_broker_that_sent_it(
    check: Callable[[ReceivedMessage], TransactionState], state: str
) -> None:
    seen: list[ReceivedMessage] = []

    async def note(message: ReceivedMessage) -> TransactionState:
        seen.append(message)
        return check(message)

    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(cluster.address, group="pg", check=note) as producer,
    ):
        broker = cluster.brokers["a"]
        broker.handlers[34] = checks_after_heartbeat(record(5, b"half"))
        await producer.queues("T")
        await producer.heartbeat()
        (end,) = await ends(broker, 1)
        assert end.ext_fields == {
            "producerGroup": "pg",
            "tranStateTableOffset": "11",
            "commitLogOffset": "1005",
            "commitOrRollback": state,
            "msgId": "U5",
            "fromTransactionCheck": "true",
            "transactionId": "U5",
        }
        assert (seen[0].topic, seen[0].body, seen[0].message_id) == ("T", b"half", "U5")


async def test_a_damaged_check_does_not_stop_later_checks() -> None:
    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(
            cluster.address, group="pg", check=lambda message: STATES.COMMIT
        ) as producer,
    ):
        broker = cluster.brokers["a"]
        await producer.queues("T")
        for body in (b"", b"damaged", record(5)[:-1], record(5) * 2):
            broker.handlers[34] = checks_after_heartbeat(body)
            await producer.heartbeat()
        broker.handlers[34] = checks_after_heartbeat(record(5))
        await producer.heartbeat()
        (end,) = await ends(broker, 1)
        assert end.ext_fields["commitOrRollback"] == "8"


async def test_a_refused_half_message_is_an_error_and_sends_no_end() -> None:
    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(cluster.address, group="pg", check=never, retries=0) as producer,
    ):
        cluster.brokers["a"].answers[SEND] = refused(16)
        with pytest.raises(Exception, match="16"):
            await producer.send_in_transaction(MESSAGE, lambda *_: STATES.COMMIT)
        await asyncio.sleep(0.05)
        assert cluster.brokers["a"].asked(END) == []


async def test_a_refused_outcome_is_an_error_and_a_lost_one_is_unknown() -> None:
    """A check may have rolled back meanwhile: COMMIT would be untrue."""
    async with (
        FakeCluster("a") as cluster,
        TransactionProducer(
            cluster.address, group="pg", check=never, send_timeout_s=0.5
        ) as producer,
    ):
        broker = cluster.brokers["a"]
        broker.answers[SEND] = stored
        broker.answers[END] = refused(1)
        for state in (STATES.COMMIT, STATES.ROLLBACK):
            with pytest.raises(TransactionEndError, match=state.name):
                await producer.send_in_transaction(MESSAGE, lambda *_, state=state: state)
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(MESSAGE, lambda *_: 1 // 0)
        broker.answers[END] = lambda request: None
        found = await producer.send_in_transaction(MESSAGE, lambda *_: STATES.COMMIT)
        assert found.state is STATES.UNKNOWN


async def test_a_sync_transaction_producer_also_sends_ordinary_messages() -> None:
    message = Message(topic="T", body=b"plain")

    def send_in_each_way(address: str) -> list[int]:
        with SyncTransactionProducer(address, group="pg", check=never) as producer:
            sent = [
                producer.send(message),
                producer.send(message),  # by the calling thread
                producer.send_soon(message).result(),
                *producer.send_batch([message]),
                *producer.send_many("T", [b"plain"]),
            ]
            producer.send_oneway(message)
            assert producer.queues("T")
            return [result.queue_offset for result in sent]

    async with FakeCluster("a") as cluster:
        for code in (SEND, BATCH):
            cluster.brokers["a"].answers[code] = stored
        assert await asyncio.to_thread(send_in_each_way, cluster.address) == [7] * 5
