"""The client refuses arguments that no broker accepts before it sends a request."""

import asyncio
import math
from typing import Any

import pytest
from harness.fake_cluster import FakeCluster, stored

from congreve.client import (
    ConsumerSettings,
    FlowLimits,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    Sql,
    SyncProducer,
    TransactionProducer,
    TransactionState,
)
from congreve.client.checks import RESERVED_PROPERTIES, check_group, check_message, checked_batch
from congreve.client.errors import (
    ClientError,
    InvalidMessageError,
    InvalidNameError,
    InvalidSettingError,
    InvalidSubscriptionError,
)

MAX = 1024


def message(topic: Any = "T", body: Any = b"x", **more: Any) -> Message:
    return Message(topic=topic, body=body, **more)


@pytest.mark.parametrize(
    ("topic", "named"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "a b"),
        ("ü", "ü"),
        ("T\n", "T"),
        ("x" * 128, "128"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
def test_errors_for_invalid_topics_name_them(topic: str, named: str) -> None:
    with pytest.raises(InvalidNameError, match=named):
        check_message(message(topic), MAX)


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b_c-9", "x" * 127])
def test_valid_topics_are_accepted(topic: str) -> None:
    check_message(message(topic), MAX)


@pytest.mark.parametrize(
    ("body", "named"), [(b"", "empty"), (b"x" * 1025, "1025"), ("text", "str"), (None, "NoneType")]
)
def test_errors_for_invalid_bodies_name_them(body: object, named: str) -> None:
    with pytest.raises(InvalidMessageError, match=named):
        check_message(message(body=body), MAX)


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "REAL_QID", "TRAN_MSG", ""])
def test_reserved_and_blank_properties_are_refused(name: str) -> None:
    with pytest.raises(InvalidMessageError):
        check_message(message(properties={name: "v"}), MAX)


def test_blank_property_values_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="blank"):
        check_message(message(properties={"n": " "}), MAX)


def test_a_separator_in_a_property_name_is_refused() -> None:
    assert " " not in RESERVED_PROPERTIES
    assert "KEYS" in RESERVED_PROPERTIES


@pytest.mark.parametrize("group", ["", "a b", "x" * 256, "DEFAULT"])
def test_invalid_groups_are_refused(group: str) -> None:
    with pytest.raises(InvalidNameError):
        check_group(group, "DEFAULT")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message("T"), message("U")],
        [message(), message(wait=False)],
        [message(delay_level=1)],
        [message("%RETRY%g")],
        [message(), message(body=b"")],
        [message(delay_level=-1)],
    ],
)
def test_invalid_batches_are_refused(messages: list[Message]) -> None:
    with pytest.raises(InvalidMessageError):
        checked_batch(messages, MAX)


NO_MESSAGES = [
    None,
    "text",
    message(None),
    message(["T"]),
    message(b"T"),
    message(body=None),
    message(tags=5),
    message(tags=b"a"),
    message(keys=["a", "b"]),
    message(properties=None),
    message(properties=[("a", "b")]),
    message(properties={"a": 1}),
    message(properties={1: "a"}),
    message(properties={"a\x01": "b"}),
    message(properties={"a": "\ud800"}),
    message(properties={"a": "x" * 40_000}),
    message(delay_level="3"),
    message(delay_level=1.5),
    message(delay_level=2**31),
    message(flag=2**31),
    message(flag="1"),
    message(wait=None),
    message("a b"),
    message("TRANS_CHECK_MAX_TIME_TOPIC"),
    message(body=b""),
    message(body=b"x" * 1025),
    message(properties={"KEYS": "x"}),
    message(tags="\ud800"),
]
QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=0)
BAD_CALLS = [
    {"timeout_s": 0},
    {"timeout_s": -1},
    {"timeout_s": math.nan},
    {"timeout_s": math.inf},
    {"timeout_s": "3"},
    {"queue": "T"},
    {"queue": MessageQueue(topic="U", broker_name="a", queue_id=0)},
    {"queue": MessageQueue(topic="T", broker_name="a", queue_id=-1)},
    {"queue": MessageQueue(topic="T", broker_name="nobody", queue_id=0)},
    {"selector": lambda queues: None},
    {"selector": lambda queues: MessageQueue(topic="T", broker_name="nobody", queue_id=0)},
    {"selector": "first"},
]


async def nothing() -> TransactionState:
    raise AssertionError("no work without a message")


async def test_every_send_mode_refuses_invalid_messages() -> None:
    async with FakeCluster("a") as cluster:
        cluster.brokers["a"].answers |= {310: stored, 320: stored}
        settings = {"group": "pg", "max_message_size": MAX}
        async with TransactionProducer(
            cluster.address, check=lambda _: TransactionState.UNKNOWN, **settings
        ) as producer:
            ways = [
                producer.send,
                producer.send_oneway,
                producer.send_soon,
                producer.request,
                lambda bad: producer.send_batch([message(), bad]),
                lambda bad: producer.send_in_transaction(bad, lambda *_: nothing()),
            ]
            await producer.send(message())
            for bad in NO_MESSAGES:
                for send in ways:
                    with pytest.raises((InvalidMessageError, InvalidNameError)):
                        await send(bad)
            for more in BAD_CALLS:
                with pytest.raises(ClientError):
                    await producer.send(message(), **more)
            for bodies in (None, "text", b"bytes", [1], [b"x", None], [b""]):
                with pytest.raises(InvalidMessageError):
                    await producer.send_many("T", bodies)
            with pytest.raises(InvalidMessageError):
                await producer.send_batch(None)
            with pytest.raises(InvalidMessageError):
                await producer.reply(None, b"x")
            for topic in (None, 5, "a b"):
                with pytest.raises(InvalidNameError):
                    await producer.queues(topic)
                with pytest.raises(InvalidNameError):
                    await producer.send_many(topic, [b"x"])
        await asyncio.to_thread(refused_in_threads, cluster.address, settings)
        assert len(cluster.brokers["a"].asked(310, 320, 324, 325)) == 2


def refused_in_threads(address: str, settings: dict[str, Any]) -> None:
    """The first send fetches the route; after it the thread sends the requests itself."""
    with SyncProducer(address, **settings) as producer:
        producer.send(message())
        for bad in NO_MESSAGES:
            for send in (producer.send, producer.send_oneway):
                with pytest.raises((InvalidMessageError, InvalidNameError)):
                    send(bad)
        for more in BAD_CALLS:
            with pytest.raises(ClientError):
                producer.send(message(), **more)


@pytest.mark.parametrize(
    "more",
    [
        {"group": None},
        {"group": 5},
        {"send_timeout_s": 0},
        {"send_timeout_s": "3"},
        {"retries": -1},
        {"retries": 1.5},
        {"max_message_size": 0},
        {"compress_from": -1},
        {"compression": "zlib"},
        {"hooks": [object()]},
        {"hooks": 5},
        {"credentials": "secret"},
        {"ssl": "yes"},
        {"latency_faults": "yes"},
        {"vip_channel": 1},
        {"retry_when_not_stored_ok": None},
        {"group": "g" * 200, "namespace": "n" * 100},
        {"namespace": 5},
        {"namespace": "a b"},
    ],
)
def test_producers_with_invalid_settings_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        Producer("127.0.0.1:1", **{"group": "pg", **more})


@pytest.mark.parametrize(
    "more",
    [
        {"topics": None},
        {"topics": ["T"]},
        {"topics": {}},
        {"topics": {"T": None}},
        {"topics": {"T": "||"}},
        {"topics": {"T": Sql(None)}},
        {"topics": {None: "*"}},
        {"topics": {"a b": "*"}},
        {"group": None},
        {"group": "DEFAULT_CONSUMER"},
        {"listener": 5},
        {"batch_listener": "f"},
        {"model": "CLUSTERING"},
        {"consume_from": "last"},
        {"consume_timestamp_ms": -1},
        {"strategy": 5},
        {"settings": {}},
        {"timeout_s": 0},
        {"namespace": "a b"},
        {"credentials": 5},
        {"orderly": "yes"},
        {"model": MessageModel.BROADCASTING, "local_offsets": 5},
        {"model": MessageModel.BROADCASTING, "instance_name": "../../x"},
        {"listener": print, "hooks": 5},
        {"listener": print, "hooks": [object()]},
        {"group": "g" * 200, "namespace": "n" * 100},
        {"topics": {"t" * 100: "*"}, "namespace": "n" * 100},
    ],
)
def test_consumers_with_invalid_settings_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        PushConsumer("127.0.0.1:1", **{"group": "cg", "topics": {"T": "*"}, **more})


@pytest.mark.parametrize("address", [None, 5, "", " ; "])
def test_addresses_of_name_servers_must_be_text(address: Any) -> None:
    with pytest.raises(ClientError):
        Producer(address, group="pg")


@pytest.mark.parametrize(
    "more",
    [
        {"pull_count": 0},
        {"pull_count": 1.5},
        {"pull_count": True},
        {"concurrency": 1001},
        {"consume_batch": 1025},
        {"max_reconsume_times": -2},
        {"pull_wait_s": -1},
        {"pull_wait_s": "1"},
        {"rebalance_s": 0},
        {"commit_s": math.nan},
        {"stop_wait_s": math.inf},
        {"limits": None},
    ],
)
def test_errors_for_settings_out_of_range_name_them(more: dict[str, Any]) -> None:
    (name,) = more
    with pytest.raises(InvalidSettingError, match=name):
        ConsumerSettings(**more)


@pytest.mark.parametrize("name", FlowLimits.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, 1.5, "1"])
def test_a_limit_of_zero_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError, match=name):
        FlowLimits(**{name: value})


async def test_invalid_reads_are_refused_before_any_request() -> None:
    async with FakeCluster("a") as cluster:
        async with PullConsumer(cluster.address, group="cg") as consumer:
            for arguments in (
                ("T", 0),
                (MessageQueue(topic="T", broker_name="a", queue_id=-1), 0),
                (QUEUE, -1),
                (QUEUE, "0"),
                (QUEUE, 0, 0),
            ):
                with pytest.raises(InvalidSettingError):
                    await consumer.pull(*arguments)
            with pytest.raises(InvalidSettingError):
                await consumer.pull(QUEUE, 0, wait_s=-1)
            with pytest.raises(InvalidSubscriptionError):
                await consumer.pull(QUEUE, 0, expression=None)
        assert cluster.brokers["a"].requests == []
