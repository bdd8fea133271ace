"""A store with lite topics, opened by RocketMQ 4.9.4."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.grpc.clients import client
from broker.grpc.test_door import create
from broker.grpc.test_lite import ADD, PARENT, make_group, member, send
from harness import servers
from harness.wire import Wire

from remoting.http2.built import needs_http2

pytestmark = [pytest.mark.interop, needs_http2]

MESSAGES = 40
MAX_OFFSET = 30


def stored(broker: servers.Server) -> list[int]:
    """The messages of each queue of the parent topic."""
    with Wire(broker.address) as wire:
        answers = [
            wire.call(MAX_OFFSET, {"topic": PARENT, "queueId": str(queue)}) for queue in range(8)
        ]
    return [int(each.fields["offset"]) for each in answers]


def test_java_has_the_messages_of_lite_topics(namesrv: servers.Server, tmp_path: Path) -> None:
    store, port = tmp_path / "store", servers.free_port()
    ours = servers.broker(
        *("congreve", tmp_path / "ours", namesrv.address),
        store=store,
        settings={"grpcPort": str(port)},
    )
    ours.start()
    try:
        create(ours, PARENT, "+message.type=LITE")
        make_group(ours, "g")
        with client(port) as made, member(made) as consumer:
            for number in range(MESSAGES):
                send(made, f"l{number % 10}", str(number))
            consumer.sync(ADD, "l1")
            assert consumer.ack(*consumer.receive()[1])
        known = stored(ours)
        assert sum(known) == MESSAGES
        assert not [path for path in store.rglob("*") if "LMQ" in path.name]
        assert "LMQ" not in (store / "config/topics.json").read_text()
        assert ours.stop() == 0
    finally:
        ours.kill()
    java = servers.broker("java", tmp_path / "java", namesrv.address, store=store)
    java.start()
    try:
        assert stored(java) == known
    finally:
        java.kill()
