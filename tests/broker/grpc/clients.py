"""Messages of gRPC clients, and a client that has only their stubs."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from congreve.broker.grpc.codecs.codes import Code
from congreve.broker.grpc.protocol.calls import SERVICE
from congreve.broker.grpc.protos import Protos

METADATA = (
    ("x-mq-client-id", "host@1@0@abc"),
    ("x-mq-language", "PYTHON"),
    ("x-mq-client-version", "5.1.2"),
)
MESSAGE_ID = "01" + "0A" * 16
NORMAL, FIFO, DELAY, TRANSACTION = 1, 2, 3, 4


class Client:
    """Calls methods by their names, as the official clients do."""

    def __init__(self, protos: Protos, channel: grpc.Channel) -> None:
        self.protos = protos
        self._channel = channel

    def call(self, name: str, request: Any, metadata: Any = METADATA) -> Any:
        """The response of a unary call. Raises grpc.RpcError."""
        return self._channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self.protos, name + "Response").FromString,
        )(request, metadata=metadata, timeout=20)

    def stream(self, name: str, request: Any, metadata: Any = METADATA, timeout: float = 20) -> Any:
        """The responses of a call with several. Raises grpc.RpcError."""
        return self._channel.unary_stream(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self.protos, name + "Response").FromString,
        )(request, metadata=metadata, timeout=timeout)

    def telemetry(self, commands: Iterator[Any], metadata: Any = METADATA) -> Any:
        """An open Telemetry: iterate over its commands."""
        return self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=self.protos.TelemetryCommand.SerializeToString,
            response_deserializer=self.protos.TelemetryCommand.FromString,
        )(commands, metadata=metadata, timeout=20)

    def send(self, *messages: Any) -> Any:
        """Send messages in one request."""
        return self.call("SendMessage", self.protos.SendMessageRequest(messages=messages))

    def message(self, topic: str, body: bytes = b"body", **system: Any) -> Any:
        """A message as a client makes it."""
        message = self.protos.Message(topic=self.protos.Resource(name=topic), body=body)
        found = message.system_properties
        found.message_id, found.message_type, found.body_encoding = MESSAGE_ID, NORMAL, 1
        found.born_timestamp.FromMilliseconds(1_700_000_000_123)
        found.born_host = "host"
        for name, value in system.items():
            if isinstance(value, list):
                getattr(found, name).extend(value)
            elif name.endswith("_timestamp"):
                getattr(found, name).FromMilliseconds(value)
            else:
                setattr(found, name, value)
        return message


@contextmanager
def client(port: int) -> Iterator[Client]:
    """A client of the port on 127.0.0.1."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Client(Protos(), channel)


@contextmanager
def open_telemetry(made: Client, settings: Any, metadata: Any = METADATA) -> Iterator[Any]:
    """The commands that the broker sends to a client that has sent its settings; sends answers
    by `commands.answer`."""
    sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
    sent.put(made.protos.TelemetryCommand(settings=settings))
    commands = made.telemetry(iter(sent.get, None), metadata)
    commands.answer = sent.put
    assert next(commands).status.code == Code.OK
    yield commands
    sent.put(None)
