"""Batches: which ones a broker accepts, and what it stores of one if it is stopped meanwhile."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
from harness import servers
from harness.cluster import Cluster
from harness.drivers import Driver, body
from harness.wire import GET_MAX_OFFSET, Wire, send_fields

SEND_BATCH_MESSAGE = 320
SYSTEM_ERROR = 1
MESSAGE_ILLEGAL = 13
SIZE = 24
ENOUGH = 40 * SIZE
RUN_MS = 5_000


def batch_of(*members: tuple[bytes, bytes]) -> bytes:
    """Bodies with their properties (RocketMQ: MessageDecoder.encodeMessages)."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for body, properties in members
    )


GOOD = batch_of((b"one", b"TAGS\1a"), (b"two", b"k\1v"))
MALFORMED = {
    "breaks off": GOOD[:-1],
    "continues after its end": GOOD + b"\0\0\0",
    "a negative length": GOOD[:16] + b"\xff" * 4 + GOOD[20:],
    "a body over the member": GOOD[:16] + struct.pack(">i", 1 << 20) + GOOD[20:],
}
# The reference's broker would store these: it checks no size, and leaves the rules to clients.
INVALID = {
    "a size over the body's": b"\x7f" + GOOD[1:],
    "a negative size": b"\xff" * 4 + GOOD[4:],
    "a delay": batch_of((b"one", b""), (b"two", b"DELAY\x013")),
    "a time of its own": batch_of((b"one", b""), (b"two", b"TIMER_DELAY_SEC\x013")),
    "a transaction": batch_of((b"one", b"TRAN_MSG\1true\2PGROUP\1p"), (b"two", b"")),
    "unlike WAIT": batch_of((b"one", b"WAIT\1true"), (b"two", b"WAIT\1false")),
}


@pytest.mark.parametrize("name", [*MALFORMED, *INVALID])
def test_no_message_of_an_invalid_batch_is_stored(
    kind: str, cluster: Cluster, topic: str, name: str
) -> None:
    if kind == "java" and name in INVALID:
        pytest.skip("the reference's broker stores it")
    with Wire(cluster.broker.address) as wire:
        fields = {**send_fields(topic, 1, {}), "m": "true"}
        answer = wire.call(SEND_BATCH_MESSAGE, fields, {**MALFORMED, **INVALID}[name])
        assert answer.code == (SYSTEM_ERROR if kind == "java" else MESSAGE_ILLEGAL), answer
        assert wire.call(GET_MAX_OFFSET, {"topic": topic, "queueId": "1"}).fields["offset"] == "0"
        good = wire.call(SEND_BATCH_MESSAGE, fields, GOOD)
        assert (good.code, good.fields["queueOffset"], good.fields["queueId"]) == (0, "0", "1")
        assert good.fields["msgId"].count(",") == 1


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_acknowledged_batches_are_complete_and_no_batch_is_partial(
    kind: str, how: str, namesrv: servers.Server, java: Driver, tmp_path: Path
) -> None:
    broker = servers.broker(
        *(kind, tmp_path, namesrv.address),
        broker_name=f"broker-batches-{how}",
        settings={"mappedFileSizeCommitLog": str(1 << 20)},
    )
    broker.start()
    cluster, topic = Cluster(namesrv, broker), f"batches-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(java, topic, queues=2)
    where = {"namesrv": namesrv.address, "topic": topic}
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(java.call, "batchesFor", size=SIZE, ms=RUN_MS, **where)
        with Wire(broker.address) as wire:
            places = [{"topic": topic, "queueId": str(queue_id)} for queue_id in range(2)]
            while sum(int(wire.call(GET_MAX_OFFSET, p).fields["offset"]) for p in places) < ENOUGH:
                assert not sending.done(), sending.result()
                sleep(0.02)
        broker.kill() if how == "kill" else broker.stop()
        broker.start()
        sent = sending.result(120)
    assert sent["failed"] > 0
    stored = defaultdict(list)
    for one in java.call("drain", namesrv=namesrv.address, topics=[topic])["messages"]:
        stored[one["queueId"]].append(int(body(one).split(b"|")[0]))
    for numbers in stored.values():
        firsts = numbers[::SIZE]
        assert not [first for first in firsts if first % SIZE], "a batch is there in part"
        assert numbers == [first + i for first in firsts for i in range(SIZE)]
    for one in sent["results"]:
        assert one["status"] == "SEND_OK"
        assert stored[one["queueId"]][one["queueOffset"]] == one["first"]
        assert one["offsetMsgId"].count(",") == SIZE - 1
    assert len(sent["results"]) > 20
    assert broker.stop() in (0, 143), broker.tail()
