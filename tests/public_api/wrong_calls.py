"""Calls that a type checker refuses, one in a line; see test_typing.py."""

import asyncio
from typing import Any

import congreve
import congreve.client
from congreve.broker.broker import Broker
from congreve.client import (
    AdminClient,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SyncAdminClient,
    SyncLitePullConsumer,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncTransactionProducer,
    TransactionProducer,
    TransactionState,
)

A, M, TOPICS = "127.0.0.1:9876", Message(topic="T", body=b"x"), {"T": "*"}


def committed(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


def work(message: ReceivedMessage) -> None:
    print(message.body)


def texts(message: str) -> None:
    print(message)


def constructors() -> None:
    SyncProducer(A)  # wrong
    SyncProducer(A, grup="p")  # wrong
    SyncProducer(A, group=3)  # wrong
    SyncProducer(A, group="p", retriez=3)  # wrong
    SyncProducer(A, group="p", retries="3")  # wrong
    SyncProducer(A, group="p", timeout_s=3)  # wrong: it is send_timeout_s
    Producer(A, group="p", credential=1)  # wrong
    Producer(A, group="p", ssl=True)  # wrong: a context
    TransactionProducer(A, group="p")  # wrong: no check
    TransactionProducer(A, group="p", check=committed, hook=[])  # wrong
    SyncTransactionProducer(A, group="p", check=committed, retriez=1)  # wrong
    SyncTransactionProducer(A, check=committed)  # wrong
    PullConsumer(A, group="g", topics=TOPICS)  # wrong: it has none
    SyncPullConsumer(A, group="g", timeout=3)  # wrong
    PushConsumer(A, group="g", topics=TOPICS, orderli=True)  # wrong
    PushConsumer(A, group="g", topics=TOPICS, consume_from="FIRST")  # wrong
    PushConsumer(A, group="g", topics=["T"])  # wrong
    SyncPushConsumer(A, group="g", topics=TOPICS, listner=work)  # wrong
    SyncPushConsumer(A, group="g", topics=TOPICS, listener=texts)  # wrong
    SyncPushConsumer(A, group="g", topics=TOPICS, listener=work, settings={})  # wrong
    LitePullConsumer(A, group="g", topics=TOPICS, auto_comit=False)  # wrong
    SyncLitePullConsumer(A, group="g", topics="T")  # wrong
    SyncLitePullConsumer(A, group="g", topics=TOPICS, model="BROADCASTING")  # wrong
    AdminClient(A, timeout=3)  # wrong
    SyncAdminClient(A, credentials=("key", "secret"))  # wrong


def messages() -> None:
    Message("T", b"x")  # wrong: keywords
    Message(topic="T", body="text")  # wrong
    Message(topic="T", body=b"x", tag="A")  # wrong
    Message(topic="T", body=b"x", keys=["a"])  # wrong
    Message(topic="T", body=b"x", properties={"a": 1})  # wrong


def blocking(producer: SyncProducer, consumer: SyncLitePullConsumer) -> None:
    producer.send("text")  # wrong
    producer.send(M, timeout=3)  # wrong
    producer.send_soon(M, timeout=3)  # wrong
    producer.send_soon(M, print, queue=0)  # wrong
    producer.send_many("T", "text")  # wrong
    producer.send_many("T", b"text")  # wrong
    print(producer.send(M).msg_id)  # wrong
    producer.reply(M, b"x")  # wrong
    consumer.poll(timeout=3)  # wrong
    print(consumer.poll()[0].text)  # wrong
    consumer.seek(0, 0)  # wrong


async def awaited(producer: Producer, consumer: PullConsumer, admin: AdminClient) -> None:
    print((await producer.send(M)).msg_id)  # wrong
    producer.send_soon(M, timeout=3)  # wrong
    await consumer.pull(0, 0)  # wrong
    await admin.create_topic("T", queue=3)  # wrong
    print((await asyncio.wait_for(producer.send(M), 1)).que)  # wrong


def nodes(**anything: Any) -> None:
    congreve.serv("data")  # wrong: no such name
    print(congreve.client.Producr)  # wrong: no such name
    congreve.serve("data", namesrv_port="1")  # wrong
    congreve.serve("data", flushDiskTyp="SYNC_FLUSH")  # wrong
    congreve.serve("data", flushDiskType=True)  # wrong
    congreve.serve("data", listenPort="10911")  # wrong
    congreve.serve("data", namesrvAddr="127.0.0.1:9876")  # wrong: a node has its own
    quick: congreve.NodeSettings = {"flushDiskType": "ASYNC_FLUSH", "listenPort": 0}
    congreve.serve("data", **quick)
    Broker.from_conf("broker.conf", flushDiskTyp="SYNC_FLUSH")  # wrong
    Broker.from_conf("broker.conf", namesrvAddr="127.0.0.1:9876", listenPort="0")  # wrong
    Broker.from_conf("broker.conf", **quick)
    Broker.from_conf("broker.conf", namesrvAddr="127.0.0.1:9876", listenPort=0)
    congreve.serve("data", flushDiskType="ASYNC_FLUSH", enablePropertyFilter=False, **anything)
    with congreve.serve("data") as node:
        node.producer("p", retriez=3)  # wrong
        node.consumer("g", TOPICS, auto_comit=True)  # wrong
        node.push_consumer("g", TOPICS, work, orderli=True)  # wrong
        node.prodcer("p")  # wrong
        node.producer("p", **anything)
