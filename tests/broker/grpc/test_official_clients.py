"""The official clients, as their users call them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.grpc.codecs.codes import Code
from remoting.http2.built import needs_http2

from ..guarded import SECRET
from .test_access import guarded, send, signed
from .test_door import serving, stored

pytestmark = [pytest.mark.interop, needs_http2]


@pytest.fixture(autouse=True)
def event_loop_of_the_thread() -> Iterator[None]:
    """The client for Python asks for one, which tests before may have taken away."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def test_python_produces(tmp_path: Path) -> None:
    rocketmq = pytest.importorskip("rocketmq")
    with serving(tmp_path) as (broker, _):
        address = f"127.0.0.1:{broker.config.grpc_port}"
        configuration = rocketmq.ClientConfiguration(address, rocketmq.Credentials(), "")
        producer = rocketmq.Producer(configuration, ("Normal", "Fifo"))
        producer.startup()
        try:
            for topic, group in (("Normal", None), ("Fifo", "one")):
                for number in range(10):
                    message = rocketmq.Message()
                    message.topic, message.body = topic, b"%d" % number
                    message.tag, message.keys = "tag", f"key-{number}"
                    message.add_property("colour", "blue")
                    if group is not None:
                        message.message_group = group
                    assert producer.send(message).message_id
        finally:
            producer.shutdown()
        assert len(stored(broker, "Normal")) == 10
        assert [offset for _, offset in stored(broker, "Fifo")] == list(range(10))


def test_python_consumes_what_it_has_sent(tmp_path: Path) -> None:
    rocketmq = pytest.importorskip("rocketmq")
    with serving(tmp_path) as (broker, made):
        for number in range(10):
            made.send(made.message("Normal", b"%d" % number, tag="t"))
        address = f"127.0.0.1:{broker.config.grpc_port}"
        configuration = rocketmq.ClientConfiguration(address, rocketmq.Credentials(), "")
        consumer = rocketmq.SimpleConsumer(
            configuration, "g", {"Normal": rocketmq.FilterExpression("t")}
        )
        consumer.startup()
        try:
            found: set[bytes] = set()
            while len(found) < 10:
                for message in consumer.receive(32, 30) or ():
                    found.add(bytes(message.body))
                    consumer.ack(message)
        finally:
            consumer.shutdown()
        assert found == {b"%d" % number for number in range(10)}


def test_python_signs_its_calls(tmp_path: Path) -> None:
    rocketmq = pytest.importorskip("rocketmq")
    with guarded(tmp_path) as (broker, raw):
        assert send(raw, signed("administrator")).code == Code.OK
        address = f"127.0.0.1:{broker.config.grpc_port}"

        def producer(key: str, secret: str) -> Any:
            credentials = rocketmq.Credentials(key, secret)
            configuration = rocketmq.ClientConfiguration(address, credentials, "")
            return rocketmq.Producer(configuration, ())

        message = rocketmq.Message()
        message.topic, message.body = "T", b"body"
        for key, secret, stores in (
            ("administrator", SECRET, 2),
            ("pub-of-T", SECRET, 3),
            ("sub-of-T", SECRET, 3),
            ("pub-of-T", "a-wrong-secret", 3),
        ):
            made = producer(key, secret)
            try:
                with (
                    nullcontext() if stores > len(stored(broker, "T")) else pytest.raises(Exception)
                ):
                    made.startup()
                    made.send(message)
            finally:
                if made.is_running:
                    made.shutdown()
            assert len(stored(broker, "T")) == stores
