"""``python -m grpcdoor.lite``: a million lite topics: what each costs, and how soon they are ready.

PYTHONPATH=bench:tests python -m grpcdoor.lite
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from statistics import quantiles
from typing import Any

import click
import grpc
from harness import servers
from harness.wire import Wire
from sidebyside import process

from congreve.broker.grpc.protocol.calls import SERVICE
from congreve.broker.grpc.protos import Protos

from .raw import RawCalls, message_maker
from .servers import QUEUES

PARENT, GROUP, CLIENT = "Lites", "LiteGroup", "host@1@0@lite"
METADATA = (
    *(("x-mq-client-id", CLIENT), ("x-mq-language", "JAVA")),
    *(("x-mq-client-version", "5.2.0"), ("x-mq-protocol", "v2")),
)
NAME = "lite-000000000"
SIZE = 128
OPEN = 64
SUBSCRIBED = 1_000
MIB = 1 << 20


def requests(protos: Protos, numbers: Iterator[int]) -> Iterator[bytes]:
    """A SendMessageRequest for the lite topic of each number."""
    message = protos.Message(body=b"x" * SIZE)
    message.topic.name = PARENT
    system = message.system_properties
    system.message_id, system.message_type, system.body_encoding = "01" * 17, 5, 1
    system.born_host, system.lite_topic = "host", NAME
    system.born_timestamp.FromMilliseconds(1_700_000_000_123)
    whole = protos.SendMessageRequest(messages=[message]).SerializeToString()
    make = message_maker(whole, NAME.encode())
    for number in numbers:
        yield make(name_of(number).encode())


def name_of(number: int) -> str:
    """The name of a lite topic."""
    return f"lite-{number:09}"


def create(remoting: str) -> None:
    """Create the parent topic and the group."""
    topic = {"topic": PARENT, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
    topic |= {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES), "perm": "6"}
    topic |= {"topicSysFlag": "0", "order": "false", "attributes": "+message.type=LITE"}
    group = {"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}
    with Wire(remoting) as wire:
        wire.call(17, topic)
        wire.call(200, {}, json.dumps(group).encode())


def stored(remoting: str) -> int:
    """Messages of the parent topic."""
    with Wire(remoting) as wire:
        return sum(
            int(wire.call(30, {"topic": PARENT, "queueId": str(each)}).fields["offset"])
            for each in range(QUEUES)
        )


def disk(folder: Path) -> tuple[int, int, int]:
    """Bytes of the log's files, of all other files, and how many files there are."""
    log = more = count = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            size = os.stat(f"{parent}/{name}").st_blocks * 512
            count += 1
            if "commitlog" in parent:
                log += size
            else:
                more += size
    return log, more, count


class Subscriber:
    """A member of the group that subscribes to some lite topics."""

    def __init__(self, port: int, protos: Protos) -> None:
        self._protos = protos
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._commands: SimpleQueue[Any] = SimpleQueue()
        telemetry = self.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=protos.TelemetryCommand.SerializeToString,
            response_deserializer=protos.TelemetryCommand.FromString,
        )(iter(self._commands.get, None), metadata=METADATA)
        command = protos.TelemetryCommand()
        command.settings.client_type = 5
        command.settings.subscription.group.name = GROUP
        command.settings.subscription.subscriptions.add().topic.name = PARENT
        self._commands.put(command)
        next(telemetry)
        self._telemetry = telemetry

    def _call(self, name: str, request: Any) -> Any:
        response = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self._protos, f"{name}Response").FromString,
        )(request, metadata=METADATA, timeout=60)
        if response.status.code != 20000:
            raise click.ClickException(f"{name}: {response.status}")
        return response

    def subscribe(self, numbers: range) -> None:
        """Subscribe to these lite topics, and to no other."""
        request = self._protos.SyncLiteSubscriptionRequest(action=2)
        request.topic.name, request.group.name = PARENT, GROUP
        request.lite_topic_set.extend(map(name_of, numbers))
        self._call("SyncLiteSubscription", request)

    def receive(self) -> list[Any]:
        """Receive messages and acknowledge them."""
        request = self._protos.ReceiveMessageRequest(batch_size=32)
        request.group.name, request.message_queue.topic.name = GROUP, PARENT
        request.invisible_duration.seconds, request.long_polling_timeout.seconds = 60, 10
        answers = self.channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=self._protos.ReceiveMessageRequest.SerializeToString,
            response_deserializer=self._protos.ReceiveMessageResponse.FromString,
        )(request, metadata=METADATA, timeout=30)
        found = []
        for answer in answers:
            if answer.HasField("status") and answer.status.code != 20000:
                raise click.ClickException(f"ReceiveMessage: {answer.status}")
            if answer.HasField("message"):
                found.append((time.perf_counter(), answer.message))
        acked = self._protos.AckMessageRequest()
        acked.group.name, acked.topic.name = GROUP, PARENT
        for _, message in found:
            system = message.system_properties
            acked.entries.add(
                message_id=system.message_id,
                receipt_handle=system.receipt_handle,
                lite_topic=system.lite_topic,
            )
        if found:
            self._call("AckMessage", acked)
        return found


def receive_into(subscriber: Subscriber, found: SimpleQueue[Any]) -> None:
    """Receive once, for another thread."""
    found.put(subscriber.receive())


def first_messages(port: int, protos: Protos, numbers: range) -> list[float]:
    """How long it takes from a send that creates a lite topic to its subscriber, in ms."""
    subscriber, calls = Subscriber(port, protos), RawCalls(port, "SendMessage", METADATA)
    subscriber.subscribe(numbers)
    times = []
    for number in numbers:
        waiting: SimpleQueue[Any] = SimpleQueue()
        thread = threading.Thread(target=receive_into, args=(subscriber, waiting))
        thread.start()
        time.sleep(0.003)
        begun = time.perf_counter()
        calls.run(requests(protos, iter([number])), 1)
        ((arrived, _),) = waiting.get()
        thread.join()
        times.append((arrived - begun) * 1000)
    calls.close()
    subscriber.channel.close()
    return times


def say(what: str, value: str) -> None:
    """Print one line."""
    click.echo(f"{what:<44} {value}")


@click.command()
@click.option("--topics", default=1_000_000, show_default=True)
@click.option("--samples", default=1_000, show_default=True, help="Of the first message's latency.")
def main(topics: int, samples: int) -> None:
    """The figures of the row "a million lite topics"."""
    protos = Protos()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), servers.free_port()
        namesrv = servers.namesrv("congreve", folder / "namesrv")
        broker = servers.broker(
            *("congreve", folder / "broker", namesrv.address),
            settings={"grpcPort": str(port)},
            watchdog_millis=0,
        )
        namesrv.start()
        try:
            broker.start()
            measure(broker, port, protos, topics, samples)
        finally:
            broker.kill()
            namesrv.kill()


def measure(
    broker: servers.BrokerServer, port: int, protos: Protos, topics: int, samples: int
) -> None:
    """Create, receive, kill, start."""
    assert broker.process is not None
    create(broker.address)
    pid = broker.process.pid
    before, cpu = process.memory(pid), process.cpu_seconds(pid)
    calls = RawCalls(port, "SendMessage", METADATA)
    begun = time.perf_counter()
    times = calls.run(requests(protos, iter(range(topics))), OPEN)
    seconds = time.perf_counter() - begun
    calls.close()
    if stored(broker.address) != topics:
        raise click.ClickException(f"{stored(broker.address)} of {topics} are stored")
    say("created a second over 64 streams", f"{topics / seconds:,.0f}")
    time.sleep(2)
    cpu = process.cpu_seconds(pid) - cpu
    say("CPU of the broker for each, us", f"{cpu / topics * 1e6:.1f}")
    say("a send's latency, p50 and p99, ms", percentiles([each * 1000 for each in times]))
    after = process.memory(pid)
    say("resident before and after, MiB", f"{before.anonymous:.0f} {after.anonymous:.0f}")
    log, more, files = disk(broker.store)
    say("disk: log and all else, MiB; files", f"{log / MIB:.0f} {more / MIB:.0f}; {files}")
    say(
        "entries of topics.json",
        str(len(json.loads((broker.store / "config/topics.json").read_text())["topicConfigTable"])),
    )
    found = first_messages(port, protos, range(topics, topics + samples))
    say("first message, p50 and p99, ms", percentiles(found))
    broker.kill()
    begun = time.perf_counter()
    broker.start()
    say("ready after kill -9, s", f"{time.perf_counter() - begun:.1f}")
    assert broker.process is not None
    say("resident then, MiB", f"{process.memory(broker.process.pid).anonymous:.0f}")


def percentiles(values: list[float]) -> str:
    """The median and the 99th percentile."""
    cuts = quantiles(values, n=100)
    return f"{cuts[49]:.2f} {cuts[98]:.2f}"


if __name__ == "__main__":
    main()
