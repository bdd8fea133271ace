"""send_many with fake brokers; the test decodes batches itself."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from harness.fake_cluster import FakeCluster, refused, stored
from hypothesis import given, settings
from hypothesis import strategies as st

from congreve.client import Message, Producer
from congreve.client.errors import (
    ClientError,
    InvalidMessageError,
    InvalidNameError,
    SendManyError,
)
from congreve.client.ids import UniqueIds
from congreve.client.producer.columns import pieces
from congreve.client.producer.many import batches
from congreve.remoting.messages.command import RemotingCommand

BATCH = 320
BODIES = [b"a", b"bc", b"def"]


def elements(body: bytes) -> Iterator[tuple[bytes, dict[str, str]]]:
    """(body, properties) of each element of a batch."""
    at = 0
    while at < len(body):
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", body, at)
        assert (magic, crc, flag) == (0, 0, 0)
        text = body[at + 22 + length : at + size].decode()
        assert struct.unpack_from(">h", body, at + 20 + length) == (len(text),)
        yield (
            body[at + 20 : at + 20 + length],
            dict(one.split("\x01") for one in text.split("\x02") if one),
        )
        at += size


def outgoing(bodies: Any, batch_bytes: int = 4096) -> list[Any]:
    ids = UniqueIds("10.1.2.3", clock=lambda: 1e9, token=7)
    like = Message(topic="T", body=b"?", tags="A", keys="k")
    return list(batches(like, bodies, ids, batch_bytes=batch_bytes, system={}))


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=60), max_size=60), st.integers(200, 1000))
def test_batches_hold_every_body_once_within_the_limit(
    bodies: list[bytes], batch_bytes: int
) -> None:
    found = outgoing(bodies, batch_bytes)
    assert all(len(one.body) <= batch_bytes for one in found)
    inside = [list(elements(one.body)) for one in found]
    assert [body for batch in inside for body, _ in batch] == bodies
    assert [one.count for one in found] == [len(batch) for batch in inside]
    for one, batch in zip(found, inside, strict=True):
        assert one.message_id.split(",") == [names["UNIQ_KEY"] for _, names in batch]
        assert all((names["TAGS"], names["KEYS"]) == ("A", "k") for _, names in batch)
        assert all(names["WAIT"] == "true" for _, names in batch)


def test_ids_continue_from_batch_to_batch_and_across_the_end_of_the_counter() -> None:
    ids = UniqueIds("10.1.2.3", clock=lambda: 1e9, token=7)
    ids.block(0xFFFE)
    like = Message(topic="T", body=b"?")
    found = list(batches(like, [b"x"] * 6, ids, batch_bytes=250, system={}))
    names = [name for one in found for name in one.message_id.split(",")]
    assert len(found) > 1
    assert [name[-4:] for name in names] == ["FFFE", "FFFF", "0000", "0001", "0002", "0003"]


COLUMNS = {
    "list": BODIES,
    "tuple": tuple(BODIES),
    "iterator": iter(BODIES),
    "views": [memoryview(b"a"), bytearray(b"bc"), b"def"],
    "binary": pa.array(BODIES),
    "slice": pa.array([b"no", *BODIES, b"no"]).slice(1, 3),
    "large": pa.array(BODIES, pa.large_binary()),
    "text": pa.array(["a", "bc", "def"]),
    "chunks": pa.chunked_array([[b"a"], [], [b"bc", b"def"]]),
    "numpy S": np.array(BODIES),
    "numpy objects": np.array(BODIES, dtype=object),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_all_forms_of_bodies_are_read_alike(name: str) -> None:
    (found, *more) = outgoing(COLUMNS[name])
    bodies = [body for one in (found, *more) for body, _ in elements(one.body)]
    assert bodies == BODIES


def test_byte_arrays_and_fixed_size_binary_are_bodies() -> None:
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for column in (rows, np.asfortranarray(rows), pa.array(map(bytes, rows), pa.binary(4))):
        (found,) = outgoing(column)
        assert [body for body, _ in elements(found.body)] == [bytes(row) for row in rows]


def test_empty_columns_give_no_batches() -> None:
    for column in ([], pa.array([], pa.binary()), np.empty((0, 3), np.uint8), iter(())):
        assert outgoing(column) == []


@pytest.mark.parametrize(
    "bodies",
    [
        [b"a", b""],
        [b"x" * 5000],
        ["text"],
        [None],
        [np.arange(20)[::2]],
        b"bytes",
        "text",
        {b"a": 1},
        7,
        pa.array([b"a", None]),
        pa.array([1, 2]),
        pa.array([b"a", b""]),
        np.zeros(3),
        np.zeros((2, 2, 2), np.uint8),
    ],
)
def test_arrays_without_bodies_are_refused(bodies: Any) -> None:
    with pytest.raises(InvalidMessageError):
        outgoing(bodies)


def test_an_endless_iterable_is_read_one_batch_at_a_time() -> None:
    def forever() -> Iterator[bytes]:
        while True:
            yield b"x"

    assert len(next(pieces(forever()))) < 100_000


async def test_results_are_in_order_and_use_the_queues_in_turn() -> None:
    async with FakeCluster("a", "b") as cluster, Producer(cluster.address, group="pg") as producer:
        for broker in cluster.brokers.values():
            broker.answers[BATCH] = stored
        results = await producer.send_many("T", [b"%03d" % i for i in range(200)], batch_bytes=900)
        assert sum(one.count for one in results) == 200
        ids = [name for one in results for name in one.message_id.split(",")]
        assert ids == sorted(ids)
        assert len({one.queue for one in results}) == 4


async def test_the_error_of_a_failed_batch_lists_what_is_stored() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        broker = cluster.brokers["a"]

        def third_fails(request: RemotingCommand) -> RemotingCommand | None:
            answer = refused(13) if len(broker.asked(BATCH)) == 3 else stored
            return answer(request)

        broker.answers[BATCH] = third_fails
        with pytest.raises(SendManyError, match="13") as caught:
            await producer.send_many("T", [b"x"] * 100, batch_bytes=300, in_flight=1)
        assert len(caught.value.sent) == 2
        assert len(broker.asked(BATCH)) == 3


async def test_an_invalid_body_ends_the_sending_after_the_stored_batches() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        cluster.brokers["a"].answers[BATCH] = stored
        with pytest.raises(SendManyError, match="body number") as caught:
            await producer.send_many("T", [b"x"] * 100 + [b""], batch_bytes=300)
        assert sum(one.count for one in caught.value.sent) <= 100


async def test_each_queue_gets_one_batch_at_a_time() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        cluster.brokers["a"].answers[BATCH] = stored
        queue = (await producer.queues("T"))[1]
        await producer.send_many("T", [b"%d" % i for i in range(50)], queue=queue, batch_bytes=300)
        requests = cluster.brokers["a"].asked(BATCH)
        assert {request.ext_fields["e"] for request in requests} == {str(queue.queue_id)}
        bodies = [body for request in requests for body, _ in elements(request.body)]
        assert bodies == [b"%d" % i for i in range(50)]


async def test_invalid_arguments_are_refused_before_any_send() -> None:
    async with FakeCluster("a") as cluster, Producer(cluster.address, group="pg") as producer:
        with pytest.raises(InvalidNameError):
            await producer.send_many("a b", [b"x"])
        with pytest.raises(InvalidMessageError):
            await producer.send_many("T", [b"x"], properties={"TAGS": "x"})
        for more in ({"batch_bytes": 0}, {"batch_bytes": 1 << 30}, {"in_flight": 0}):
            with pytest.raises(ClientError):
                await producer.send_many("T", [b"x"], **more)
        assert cluster.brokers["a"].asked(BATCH) == []
