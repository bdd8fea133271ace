"""Requests and replies with a fake broker that relays them."""

import asyncio
import zlib

import pytest
from harness.fake_cluster import FakeCluster, refused, stored

from congreve.client import Message, MessageQueue, Producer, ReceivedMessage
from congreve.client.errors import BrokerError, InvalidMessageError, RequestReplyTimeoutError
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

SEND, SEND_REPLY, PUSH_REPLY = 310, 325, 326


def properties(request: RemotingCommand) -> dict[str, str]:
    return dict(one.split("\x01") for one in request.ext_fields["i"].split("\x02") if one)


def pushed(correlation_id: str, body: bytes, sys_flag: int = 0) -> RemotingCommand:
    fields = {
        "producerGroup": "responder",
        "topic": "C_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "1",
        "sysFlag": str(sys_flag),
        "bornTimestamp": "1",
        "flag": "0",
        "properties": f"CORRELATION_ID\x01{correlation_id}\x02PUSH_REPLY_TIME\x015\x02",
        "bornHost": "/10.0.0.1:99",
        "storeHost": "10.0.0.2:10911",
        "storeTimestamp": "2",
    }
    return RemotingCommand(code=PUSH_REPLY, ext_fields=fields, body=body)


@pytest.mark.parametrize(("sys_flag", "packed"), [(0, b"answer"), (1, zlib.compress(b"answer"))])
async def test_the_reply_goes_to_the_requester(sys_flag: int, packed: bytes) -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        broker = cluster.brokers["a"]
        asked: list[dict[str, str]] = []

        def relay(request: RemotingCommand, connection: Connection) -> RemotingCommand:
            asked.append(properties(request))
            connection.oneway(pushed("no request waits for it", b"wrong"))
            connection.oneway(pushed(asked[-1]["CORRELATION_ID"], packed, sys_flag))
            return stored(request)

        broker.handlers[SEND] = relay
        replies = await asyncio.gather(
            *(producer.request(Message(topic="T", body=b"?"), timeout_s=5) for _ in range(3))
        )
        assert {reply.body for reply in replies} == {b"answer"}
        assert {reply.properties["CORRELATION_ID"] for reply in replies} == {
            one["CORRELATION_ID"] for one in asked
        }
        assert len(asked) == 3
        assert {one["REPLY_TO_CLIENT"] for one in asked} == {producer.client_id}
        assert {one["TTL"] for one in asked} == {"5000"}
        assert broker.asked(34), "the client must register at the broker before its request"
        assert replies[0].born_host == ("10.0.0.1", 99)


async def test_a_missing_reply_raises_its_own_error() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        cluster.brokers["a"].answers[SEND] = stored
        with pytest.raises(RequestReplyTimeoutError):
            await producer.request(Message(topic="T", body=b"?"), timeout_s=0.1)
        cluster.brokers["a"].answers[SEND] = refused(13)
        with pytest.raises(BrokerError):
            await producer.request(Message(topic="T", body=b"?"))


def request_message(**more: str) -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=b"?",
        properties={"UNIQ_KEY": "ID", **more},
        queue=MessageQueue(topic="T", broker_name="a", queue_id=0),
    )


async def test_a_reply_goes_to_the_topic_of_the_requests_cluster() -> None:
    asked = {"CLUSTER": "C", "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "TTL": "9"}
    async with (
        FakeCluster("a", topics=("C_REPLY_TOPIC",)) as cluster,
        Producer(cluster.address, group="pg") as producer,
    ):
        cluster.brokers["a"].answers[SEND_REPLY] = stored
        await producer.reply(request_message(**asked), b"answer")
        (reply,) = cluster.brokers["a"].asked(SEND_REPLY)
        assert reply.ext_fields["b"] == "C_REPLY_TOPIC"
        found = properties(reply)
        del asked["CLUSTER"]
        assert {name: found[name] for name in (*asked, "MSG_TYPE")} == {
            **asked,
            "MSG_TYPE": "reply",
        }


async def test_a_message_without_request_properties_gets_no_reply() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        with pytest.raises(InvalidMessageError, match="CORRELATION_ID"):
            await producer.reply(request_message(CLUSTER="C"), b"answer")
