"""``congreve send``: sends one message, or the lines of stdin."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from congreve.base.errors import CongreveError
from congreve.client.message import Message, MessageQueue
from congreve.client.producer.producer import MAX_MESSAGE_SIZE
from congreve.client.producer.sync_producer import SyncProducer
from congreve.client.results import SendResult
from congreve.console.connection import cluster_options, connection, topic_hints
from congreve.console.option_types import KeyValue, Pairs, Time
from congreve.console.report import output_option, print_json
from congreve.records.message.topics import COMMAND_GROUP

READ_BYTES = 64 * 1024


@click.command(help="Send one message, or each line of stdin as a message.")
@click.option("-t", "--topic", required=True)
@click.option("-m", "--message", help="The body; without it, each line of stdin is a message.")
@click.option("--tags", help="Tag of each message.")
@click.option("--keys", help="Keys of each message, separated by spaces.")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    type=KeyValue("NAME", keeps_blanks=True),
    help="A property of each message; repeatable.",
)
@click.option("-q", "--queue", metavar="[BROKER:]ID", help="Only to this queue.")
@click.option("--delay-level", type=click.IntRange(0), default=0, help="RocketMQ's delay level.")
@click.option("--at", "deliver_ms", type=Time(), default=0, help="Deliver then: a time, or +10m.")
@click.option("--priority", type=click.IntRange(0), help="Priority from 0 upwards.")
@cluster_options
@output_option
def send(
    topic: str,
    message: str | None,
    tags: str | None,
    keys: str | None,
    properties: Pairs,
    queue: str | None,
    delay_level: int,
    deliver_ms: int,
    priority: int | None,
    namesrv: str,
    output: str,
) -> None:
    """Send `message`, or each line of stdin. JSON has a line for each request that was stored."""
    pattern = Message(
        topic=topic,
        body=b"",
        tags=tags,
        keys=keys,
        properties=dict(properties),
        delay_level=delay_level,
        deliver_ms=deliver_ms,
        priority=priority,
    )
    # fsencode restores the bytes of the argument as the shell passed them.
    bodies = lines() if message is None else [[os.fsencode(message)]]
    send_bodies(namesrv, pattern, bodies, queue, output)


def stdin() -> io.BufferedReader | None:
    """The process's stdin, or None if it is closed."""
    buffer = getattr(sys.stdin, "buffer", None)
    return buffer if isinstance(buffer, io.BufferedReader) else None


def lines() -> Iterator[list[bytes]]:
    """The lines of stdin, one group per read, so that lines of a slow pipe do not wait."""
    source = stdin()
    if source is None:
        raise click.UsageError("stdin is closed: pass the body with -m, or pipe lines into stdin")
    number, rest = 0, b""
    while chunk := source.read1(READ_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from _bodies(whole, number)
        number += len(whole)
        if len(rest) > MAX_MESSAGE_SIZE:
            break
    yield from _bodies([rest] if rest else [], number)


def _bodies(found: list[bytes], before: int) -> Iterator[list[bytes]]:
    bodies: list[bytes] = []
    for number, line in enumerate(found, before + 1):
        if len(line) > MAX_MESSAGE_SIZE:
            yield bodies
            raise click.ClickException(
                f"line {number} has more than {MAX_MESSAGE_SIZE} bytes: "
                "the lines before it were sent, it and the rest were not"
            )
        if line:
            bodies.append(line)
        else:
            # RocketMQ rejects empty bodies, and a blank line must not stop the lines after it.
            click.echo(f"line {number} is empty: skipped", err=True)
    yield bodies


def send_bodies(
    namesrv: str,
    pattern: Message,
    groups: Iterable[list[bytes]],
    queue: str | None = None,
    output: str = "table",
) -> None:
    """Send each body as a message like `pattern`; several of a group become batches.

    Raises CongreveError for a queue that the topic lacks, and as SyncProducer.send() does.
    """
    from msgspec.structs import replace

    # A batch has no delay, time or priority, and a message of maximum size does not fit into one.
    alone = bool(pattern.delay_level or pattern.deliver_ms) or pattern.priority is not None
    sent = 0
    # A sync producer, because reading stdin would block the event loop of an async one.
    with (
        topic_hints(namesrv),
        SyncProducer(namesrv, group=COMMAND_GROUP, **connection()) as producer,
    ):
        chosen = None if queue is None else _queue(producer, pattern.topic, queue)
        try:
            for bodies in groups:
                messages = [replace(pattern, body=body) for body in bodies]
                for result in _sent(producer, messages, chosen, alone):
                    sent += result.count
                    if output == "json":
                        print_json(_row(result))
        except BaseException:
            if sent:
                click.echo(f"sent {sent} to {pattern.topic}", err=True)
            raise
        click.echo(f"sent {sent} to {pattern.topic}", err=True)


def _sent(
    producer: SyncProducer, messages: list[Message], queue: MessageQueue | None, alone: bool
) -> Iterator[SendResult]:
    if alone or len(messages) == 1:
        for message in messages:
            yield producer.send(message, queue=queue)
    elif messages:
        yield from producer.send_batch(messages, queue=queue)


def _queue(producer: SyncProducer, topic: str, text: str) -> MessageQueue:
    """The queue that BROKER:ID or ID names. Raises CongreveError if the topic has none."""
    broker, _, number = text.rpartition(":")
    queues = producer.queues(topic)
    for each in queues:
        if str(each.queue_id) == number and broker in ("", each.broker_name):
            return each
    names = ", ".join(f"{each.broker_name}:{each.queue_id}" for each in queues)
    raise CongreveError(f"topic {topic} has no queue {text} to write to: it has {names}")


def _row(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status.name,
        "message_ids": result.message_id.split(","),
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        "count": result.count,
        "recall_handle": result.recall_handle,
    }
