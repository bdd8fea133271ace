"""Letters are packed into batches; each element equals what is sent alone."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from congreve.client.admin.offset_ranges import offsets_of
from congreve.client.admin.resend import (
    BATCH_BYTES,
    LARGE_BODY,
    Request,
    in_batches,
    resend_ids,
)
from congreve.client.message import Message, MessageQueue
from congreve.client.outgoing import prepare

QUEUE = MessageQueue(topic="%DLQ%g", broker_name="b", queue_id=3)
IDS = resend_ids("g", QUEUE, 1_767_225_600_000)


class Sent(NamedTuple):
    """The parts of a letter that a broker receives."""

    topic: str
    body: bytes
    flag: int
    properties: str


def elements(topic: str, batch: bytes) -> Iterator[Sent]:
    at = 0
    while at < len(batch):
        size, _, _, flag, length = struct.unpack_from(">iiiii", batch, at)
        body = batch[at + 20 : at + 20 + length]
        yield Sent(topic, body, flag, batch[at + 22 + length : at + size].decode())
        at += size


MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["a", "b", "ü"]),
    body=st.builds(
        bytes.__mul__, st.binary(min_size=1, max_size=40), st.sampled_from([1, 90, 200])
    ),
    flag=st.integers(-(2**31), 2**31 - 1),
    properties=st.dictionaries(st.sampled_from(["KEYS", "ü", "WAITS"]), st.just("v"), max_size=3),
)


@given(messages=st.lists(MESSAGES, max_size=30), first=st.sampled_from([100, 2**32 + 2**17]))
def test_a_batch_has_what_is_sent_alone(messages: list[Message], first: int) -> None:
    alone = [
        Request(prepare(message, IDS(offset), compress_from=LARGE_BODY), [(offset, offset)])
        for offset, message in enumerate(messages, first)
    ]
    packed = in_batches(alone)
    found = {}
    for request in packed:
        sent, offsets = request.outgoing, offsets_of(request.ranges)
        assert len(offsets) == sent.count
        if sent.is_batch:
            found.update(zip(offsets, elements(sent.topic, sent.body), strict=True))
        else:
            assert len(messages[offsets[0] - first].body) >= LARGE_BODY
            found[offsets[0]] = Sent(sent.topic, sent.body, sent.flag, sent.properties)
    assert found == {
        request.ranges[0][0]: Sent(sent.topic, sent.body, sent.flag, sent.properties)
        for request in alone
        for sent in [request.outgoing]
    }
    topics = [request.outgoing.topic for request in packed if request.outgoing.is_batch]
    assert len(topics) == len(set(topics))


def test_a_batch_ends_before_its_largest_size() -> None:
    message = Message(topic="a", body=b"m" * (LARGE_BODY - 1))
    alone = [
        Request(prepare(message, IDS(offset), compress_from=LARGE_BODY), [(offset, offset)])
        for offset in range(100)
    ]
    packed = in_batches(alone)
    assert [len(one.outgoing.body) <= BATCH_BYTES for one in packed] == [True, True]
    assert [one.ranges for one in packed] == [[(0, 61)], [(62, 99)]]


def test_an_id_has_the_place_the_time_and_the_offset() -> None:
    message_id = IDS(0x12345678)
    assert (len(message_id), message_id[16:20], message_id[28:]) == (32, "1234", "5678")
    assert IDS(1) == IDS(1) != resend_ids("h", QUEUE, 1_767_225_600_000)(1)
