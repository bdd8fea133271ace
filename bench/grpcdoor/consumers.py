"""Consumers that receive and acknowledge: consumers.c, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
from sidebyside import cases, process

from congreve.broker.grpc.protos import Protos
from congreve.console.loadgen import generator

from .servers import QUEUES, Target

SOURCE = Path(__file__).with_name("consumers.c")
TOPIC = "GrpcDoorRead"
SIZE = 128
WARM_UP_S = 2.0


class Done(msgspec.Struct, frozen=True):
    """What was acknowledged while measured; CPU is that of the consumers."""

    messages: int
    seconds: float
    cpu: float


class Consumers:
    """The program, compiled into a folder, and a topic for it."""

    def __init__(self, folder: Path, messages: int) -> None:
        folder.mkdir()
        self._folder, self._program = folder, folder / "consumers"
        self._load = cases.fill(TOPIC, messages, SIZE, QUEUES)
        command = ["gcc", "-O2", "-o", str(self._program), str(SOURCE), "-lnghttp2"]
        subprocess.run(command, check=True)

    def fill(self, target: Target) -> None:
        """Store the messages of the topic."""
        assert target.remoting is not None
        target.create_topic(TOPIC)
        generator.run(int(target.remoting.rpartition(":")[2]), self._load)

    def run(
        self,
        target: Target,
        group: str,
        connections: int,
        seconds: float,
        begins: Callable[[], None],
    ) -> Done:
        """Let a new group consume; `begins` is called after the warm-up.

        Raises ClickException when a call fails, or the topic has too few messages.
        """
        count = self._load.count * self._load.batch
        words = [target.port, connections, WARM_UP_S, seconds, count, *self._requests(group)]
        command = [str(self._program), *map(str, words)]
        try:
            done = msgspec.json.decode(process.output_of(command, begins), type=Done)
        except process.ProgramError as error:
            raise click.ClickException(f"{target.name}: {error}") from error
        if not done.messages:
            raise click.ClickException(f"{target.name}: no messages are left: give more --messages")
        return done

    def _requests(self, group: str) -> list[Path]:
        """Files with the settings, without which RocketMQ's proxy gives nothing, and with a receive
        and an acknowledgement, as the Java client writes them."""
        protos = Protos()
        settings = protos.TelemetryCommand()
        settings.settings.client_type, settings.settings.request_timeout.seconds = 3, 3
        settings.settings.subscription.group.name = group
        entry = settings.settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.type, entry.expression.expression = TOPIC, 1, "*"
        receive = protos.ReceiveMessageRequest(batch_size=32)
        receive.group.name, receive.message_queue.topic.name = group, TOPIC
        receive.invisible_duration.seconds, receive.long_polling_timeout.seconds = 60, 5
        ack = protos.AckMessageRequest()
        ack.group.name, ack.topic.name = group, TOPIC
        files = []
        for name, message in (("settings", settings), ("receive", receive), ("ack", ack)):
            files.append(self._folder / name)
            files[-1].write_bytes(message.SerializeToString())
        return files
