"""Headers and bodies of pops are those of RocketMQ 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.remoting.messages import pop_headers as headers
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.header import Header
from congreve.remoting.messages.pop_bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)

VECTORS = json.loads((Path(__file__).parents[2] / "golden/pop_vectors.json").read_text())["vectors"]
HEADERS: dict[int, tuple[type[Header], type[Header] | None]] = {
    200050: (headers.PopMessageRequestHeader, headers.PopMessageResponseHeader),
    200051: (headers.AckMessageRequestHeader, None),
    200053: (
        headers.ChangeInvisibleTimeRequestHeader,
        headers.ChangeInvisibleTimeResponseHeader,
    ),
}
BODIES: dict[int, tuple[type[Body] | None, type[Body] | None]] = {
    200151: (BatchAckMessageRequestBody, None),
    400: (QueryAssignmentRequestBody, QueryAssignmentResponseBody),
    401: (SetMessageRequestModeRequestBody, None),
    402: (None, MessageRequestModeSerializeWrapper),
}


def texts(fields: dict[str, Any]) -> dict[str, str]:
    return {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in fields.items()}


def read_and_written(cls: type[Header], fields: dict[str, str]) -> dict[str, str]:
    return cls.read(RemotingCommand(code=0, ext_fields=fields)).fields()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_each_exchange_with_rocketmq_is_read_and_written_again(vector: dict[str, Any]) -> None:
    code = RequestCode(vector["remoting_code"])
    answer = vector["response"]
    of_request, of_answer = HEADERS.get(code, (None, None))
    if of_request is not None and vector.get("extFields"):
        given = texts(vector["extFields"])
        optional = {"bornTime": "0", "order": "false", "suspend": "false"}
        assert {**optional, **given} == {**optional, **read_and_written(of_request, given)}
    if of_answer is not None:
        given = answer["extFields"]
        assert read_and_written(of_answer, given) == given
    body_of_request, body_of_answer = BODIES.get(code, (None, None))
    if body_of_request is not None:
        given = json.loads(vector["request_body"])
        written = body_of_request.decode(vector["request_body"].encode()).encode()
        assert json.loads(written) == given
    if body_of_answer is not None:
        tree = json.loads(json.dumps(answer["body"]))
        written = body_of_answer.from_tree(tree).encode()
        assert json.loads(written) == answer["body"]


def test_a_batch_of_acknowledgements_is_what_rocketmq_writes() -> None:
    ack = BatchAck.of(
        [0, 2, 77],
        start_offset=0,
        consumer_group="GB5",
        topic="B5",
        revive_queue_id=7,
        pop_time=1795638552467,
        invisible_time=4000,
    )
    assert BatchAckMessageRequestBody(broker_name="broker-a", acks=[ack]).encode() == (
        b'{"acks":[{"b":"BQAAAAAAAAAAIA==","c":"GB5","it":4000,"pt":1795638552467,"q":0,"r":"0",'
        b'"rq":7,"so":0,"t":"B5"}],"brokerName":"broker-a"}'
    )


def test_an_acknowledgement_may_have_long_names() -> None:
    long = (
        b'{"brokerName":"b","acks":[{"consumerGroup":"g","topic":"t","retry":"1","startOffset":3,'
        b'"queueId":1,"reviveQueueId":2,"popTime":4,"invisibleTime":5,"bitSet":"BQ=="}]}'
    )
    assert BatchAckMessageRequestBody.decode(long).acks == [
        BatchAck("g", "t", "1", 3, 1, 2, 4, 5, bytes([0b101]))
    ]


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(-10, 320), st.integers(-10, 320))
def test_an_acknowledgement_has_the_offsets_it_was_made_of(
    offsets: set[int], first: int, end: int
) -> None:
    ack = BatchAck.of(offsets, start_offset=max(0, min(offsets) - 3))
    assert list(ack.offsets(0, 1 << 60)) == sorted(offsets)
    assert list(ack.offsets(first, end)) == [
        each for each in sorted(offsets) if first <= each < end
    ]
