"""``congreve send`` and ``congreve cat``: send and print messages in a terminal, as kcat does."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator

import click

from congreve.client.consumer.consumer import PullConsumer
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.producer.producer import MAX_MESSAGE_SIZE
from congreve.client.producer.sync_producer import SyncProducer
from congreve.console.connection import cluster_options, connection

READ_BYTES = 64 * 1024
GROUP = "CONGREVE_CLI"


@click.command(help="Send one message, or each line of stdin as a message.")
@click.option("-t", "--topic", required=True)
@click.option("-m", "--message", help="The body; without it, each line of stdin is a message.")
@click.option("--tags", help="Tag of each message.")
@click.option("--keys", help="Keys of each message, separated by spaces.")
@cluster_options
def send(topic: str, message: str | None, tags: str | None, keys: str | None, namesrv: str) -> None:
    """Send `message`, or each line of stdin."""
    # fsencode restores the bytes of the argument as the shell passed them.
    _send(namesrv, topic, _lines() if message is None else [[os.fsencode(message)]], tags, keys)


def _stdin() -> io.BufferedReader | None:
    """The process's stdin, or None if it is closed."""
    buffer = getattr(sys.stdin, "buffer", None)
    return buffer if isinstance(buffer, io.BufferedReader) else None


def _lines() -> Iterator[list[bytes]]:
    """The lines of stdin, one group per read, so that lines of a slow pipe do not wait."""
    stdin = _stdin()
    if stdin is None:
        raise click.UsageError("stdin is closed: pass the body with -m, or pipe lines into stdin")
    number, rest = 0, b""
    while chunk := stdin.read1(READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from _bodies(lines, number)
        number += len(lines)
        if len(rest) > MAX_MESSAGE_SIZE:
            break
    yield from _bodies([rest] if rest else [], number)


def _bodies(lines: list[bytes], before: int) -> Iterator[list[bytes]]:
    bodies: list[bytes] = []
    for number, line in enumerate(lines, before + 1):
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


def _send(
    namesrv: str,
    topic: str,
    groups: Iterable[list[bytes]],
    tags: str | None = None,
    keys: str | None = None,
) -> None:
    # A sync producer, because reading stdin would block the event loop of an async one.
    sent = 0
    with SyncProducer(namesrv, group=GROUP, **connection()) as producer:
        try:
            for bodies in groups:
                messages = [Message(topic=topic, body=b, tags=tags, keys=keys) for b in bodies]
                if len(messages) == 1:  # a message of maximum size does not fit into a batch
                    producer.send(messages[0])
                elif messages:
                    producer.send_batch(messages)
                sent += len(messages)
        finally:
            click.echo(f"sent {sent} to {topic}", err=True)


@click.command(
    help="Print a topic's messages. If stdin has lines and no printing option (-C, -q, -o, -c, -e, "
    "-J) is given, send those lines instead."
)
@click.option("-t", "--topic", required=True)
@click.option("-C", "--consume", is_flag=True, help="Print, even if stdin has lines.")
@click.option("-P", "--produce", is_flag=True, help="Send stdin's lines, even from a terminal.")
@click.option("-q", "--queue", type=int, help="Print only the queue with this id.")
@click.option(
    "-o",
    "--offset",
    show_default="beginning",
    help="beginning, end, N (of each queue), or -N: the last N of each queue.",
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of all queues.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@cluster_options
def cat(
    topic: str,
    consume: bool,
    produce: bool,
    queue: int | None,
    offset: str | None,
    count: int | None,
    exit_at_end: bool,
    as_json: bool,
    namesrv: str,
) -> None:
    """Print the messages of a topic, or send the lines of stdin to it."""
    given = (queue, offset, count, exit_at_end or None, as_json or None)
    consume = consume or any(option is not None for option in given)
    if consume and produce:
        raise click.UsageError("-P sends, but -C, -q, -o, -c, -e and -J are for printing")
    if produce or (not consume and _has_input()):
        _send(namesrv, topic, _lines())
        return
    start = _start(offset or "beginning")
    asyncio.run(_print(namesrv, topic, queue, start, count, exit_at_end, as_json))


def _has_input() -> bool:
    # A pipe or a file has lines to send; /dev/null, the stdin of services, has none.
    stdin = _stdin()
    return stdin is not None and not stdin.isatty() and bool(stdin.peek(1))


class Start:
    """The start in each queue: at offset `fixed`, or `back` messages before the end."""

    def __init__(self, fixed: int | None = None, back: int | None = None) -> None:
        self.fixed = fixed
        self.back = back

    def of(self, least: int, most: int) -> int:
        """The first offset to print of a queue that holds [least, most)."""
        wanted = most - self.back if self.back is not None else self.fixed or 0
        return min(max(wanted, least), most)


def _start(offset: str) -> Start:
    if offset == "beginning":
        return Start(fixed=0)
    if offset == "end":
        return Start(back=0)
    try:
        number = int(offset)
    except ValueError:
        raise click.BadParameter(
            f"{offset!r} is not beginning, end, N or -N", param_hint="--offset"
        ) from None
    return Start(back=-number) if offset.startswith("-") else Start(fixed=number)


async def _print(
    namesrv: str,
    topic: str,
    queue_id: int | None,
    start: Start,
    count: int | None,
    exit_at_end: bool,
    as_json: bool,
) -> None:
    printed = 0
    async with PullConsumer(namesrv, group=GROUP, **connection()) as consumer:
        async for message in _messages(consumer, topic, queue_id, start, exit_at_end):
            _show(message, as_json)
            printed += 1
            if printed == count:
                return


async def _messages(
    consumer: PullConsumer, topic: str, queue_id: int | None, start: Start, exit_at_end: bool
) -> AsyncIterator[ReceivedMessage]:
    """Messages of the chosen queues in turn; `exit_at_end` stops at the end of each queue."""
    positions: dict[MessageQueue, int] = {}
    for queue in await consumer.queues(topic):
        if queue_id is None or queue.queue_id == queue_id:
            least, most = await consumer.min_offset(queue), await consumer.max_offset(queue)
            positions[queue] = start.of(least, most)
    if not positions:
        raise click.ClickException(f"topic {topic} has no queue {queue_id}")
    while positions:
        idle = True
        for queue, position in list(positions.items()):
            pulled = await consumer.pull(queue, position)
            positions[queue] = pulled.next_offset
            idle = idle and not pulled.messages
            for message in pulled.messages:
                yield message
            if exit_at_end and pulled.next_offset >= pulled.max_offset:
                # Other programs may keep writing; the queue has been read to its end once.
                del positions[queue]
        if idle and positions:
            await asyncio.sleep(0.2)


def _show(message: ReceivedMessage, as_json: bool) -> None:
    if not as_json:
        click.echo(message.body)
        return
    import msgspec

    row = {
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tags": message.tags,
        "keys": message.keys,
        "born": message.born_timestamp,
        "stored": message.store_timestamp,
        "properties": message.properties,
        "body": message.body.decode(errors="replace"),
    }
    click.echo(msgspec.json.encode(row).decode())
