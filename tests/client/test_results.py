"""Results as web frameworks see them."""

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from harness.fake_cluster import FakeCluster, stored
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from congreve.client import (
    Message,
    MessageQueue,
    Producer,
    PullResult,
    PullStatus,
    ReceivedMessage,
    SendResult,
    SendStatus,
    TransactionResult,
    TransactionState,
)
from congreve.client.admin.groups import GroupSummary
from congreve.client.admin.resend import ResendFailure, ResendReport
from congreve.remoting.messages.admin_bodies import (
    DelayedCount,
    DelayedCounts,
    DelayedMessage,
    DelayedMessages,
)
from congreve.remoting.messages.bodies import BrokerData, ClusterInfo

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=1)
SENT = SendResult(
    status=SendStatus.SEND_OK, message_id="M", offset_message_id="O", queue=QUEUE, queue_offset=7
)
RECEIVED = ReceivedMessage(
    topic="T",
    body="Grüße".encode(),
    properties={"UNIQ_KEY": "M", "TAGS": "a", "KEYS": "k"},
    queue=QUEUE,
    queue_offset=7,
    born_timestamp=1,
    store_timestamp=2,
)
RECEIVED_AS_JSON = {
    **{"topic": "T", "message_id": "M", "tags": "a", "keys": "k", "body": "Grüße"},
    "properties": {"UNIQ_KEY": "M", "TAGS": "a", "KEYS": "k"},
    "queue": {"topic": "T", "broker_name": "b", "queue_id": 1},
    **{"queue_offset": 7, "born_timestamp": 1, "store_timestamp": 2, "reconsume_times": 0},
}
PULLED = PullResult(
    status=PullStatus.FOUND, next_offset=8, min_offset=0, max_offset=9, messages=[RECEIVED]
)
PULLED_AS_JSON = {
    **{"status": 0, "next_offset": 8, "min_offset": 0, "max_offset": 9},
    **{"messages": [RECEIVED_AS_JSON], "suggested_broker_id": 0},
}
DELAYED = {
    **{"topic": "T", "msg_id": "M", "keys": "k", "due_ms": 5, "level": 3, "store_timestamp": 1},
    **{"physic_offset": 9, "body_size": 2, "recall_handle": "h"},
}
BROKER = {"cluster": "C", "broker_name": "b", "broker_addrs": {"0": "127.0.0.1:1"}}
AS_JSON = {
    "status": 0,
    "message_id": "M",
    "offset_message_id": "O",
    "queue": {"topic": "T", "broker_name": "b", "queue_id": 1},
    "queue_offset": 7,
    "count": 1,
    "transaction_id": None,
    "recall_handle": None,
}


def test_a_dict_of_a_result_has_its_fields() -> None:
    assert dict(SENT)["queue"] is QUEUE
    assert list(dict(SENT)) == list(AS_JSON)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (SENT, AS_JSON),
        ([SENT, SENT], [AS_JSON, AS_JSON]),
        (RECEIVED, RECEIVED_AS_JSON),
        (PULLED, PULLED_AS_JSON),
        (
            TransactionResult(sent=SENT, state=TransactionState.COMMIT),
            {"sent": AS_JSON, "state": 8},
        ),
        (
            GroupSummary(group="g", members=1, topics=2, lag=3),
            {"group": "g", "members": 1, "topics": 2, "lag": 3},
        ),
        (
            DelayedCounts(counts=[DelayedCount(hour_ms=1, level=2, count=3)]),
            {"counts": [{"hour_ms": 1, "level": 2, "count": 3}], "is_complete": True},
        ),
        (
            DelayedMessages(messages=[DelayedMessage(**DELAYED)]),  # type: ignore[arg-type]
            {"messages": [DELAYED], "is_complete": True},
        ),
        (
            ClusterInfo(
                broker_addr_table={"b": BrokerData("C", "b", {0: "127.0.0.1:1"})},
                cluster_addr_table={"C": ["b"]},
            ),
            {"broker_addr_table": {"b": BROKER}, "cluster_addr_table": {"C": ["b"]}},
        ),
        (
            ResendReport(sent=1, failures=[ResendFailure("b", 0, 7, "why")]),
            {
                **{"sent": 1, "already_sent": 0, "in_doubt": 0},
                "failures": [
                    {"broker_name": "b", "queue_id": 0, "queue_offset": 7, "reason": "why"}
                ],
            },
        ),
    ],
)
def test_fastapi_encodes_results(result: Any, expected: Any) -> None:
    assert json.loads(json.dumps(jsonable_encoder(result))) == expected
    kind = list[SendResult] if isinstance(result, list) else type(result)
    assert TypeAdapter(kind).dump_python(result, mode="json") == expected


def test_a_body_that_is_no_text_is_base64() -> None:
    message = ReceivedMessage(topic="T", body=b"\xff\0", properties={}, queue=QUEUE)
    found = jsonable_encoder(message)
    assert (found["body"], found["body_base64"]) == (None, "/wA=")


async def test_endpoints_return_results_with_and_without_an_annotation() -> None:
    app = FastAPI()
    async with (
        FakeCluster("a") as cluster,
        Producer(cluster.address, group="p") as producer,
    ):
        cluster.brokers["a"].answers[310] = stored
        sent = await producer.send(Message(topic="T", body=b"x"))
    queue = sent.queue

    @app.get("/plain")
    async def plain():  # type: ignore[no-untyped-def]
        return sent

    @app.get("/typed")
    async def typed() -> SendResult:
        return sent

    @app.get("/pulled")
    async def pulled() -> PullResult:
        return PULLED

    @app.get("/received")
    async def received() -> list[ReceivedMessage]:
        return [RECEIVED]

    @app.post("/queue")
    async def same(queue: list[MessageQueue]) -> MessageQueue:
        assert isinstance(queue[0], MessageQueue)
        return queue[0]

    with TestClient(app) as web:
        assert web.get("/plain").json() == web.get("/typed").json() == jsonable_encoder(sent)
        assert web.post("/queue", json=[dict(queue)]).json() == dict(queue)
        assert web.get("/pulled").json() == PULLED_AS_JSON
        assert web.get("/received").json() == [RECEIVED_AS_JSON]
        assert "queue_offset" in web.get("/openapi.json").text
