"""``congreve send`` and ``congreve cat``: messages in and out of the terminal, kcat style."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

import click

from congreve.client.consumer import PullConsumer
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.producer import Producer
from congreve.console.report import namesrv_option

BATCH = 100
GROUP = "CONGREVE_CLI"


@click.command(help="Send one message, or each line of stdin as one.")
@click.option("-t", "--topic", required=True)
@click.option("-m", "--message", help="The body; without it every line of stdin is a message.")
@click.option("--tags", help="Tag of each message.")
@click.option("--keys", help="Keys of each message, separated by spaces.")
@namesrv_option
def send(topic: str, message: str | None, tags: str | None, keys: str | None, namesrv: str) -> None:
    bodies = iter([message.encode()]) if message is not None else _lines()
    sent = asyncio.run(_send(namesrv, topic, bodies, tags, keys))
    click.echo(f"sent {sent} to {topic}", err=True)


def _lines() -> Iterator[bytes]:
    for number, line in enumerate(sys.stdin.buffer, 1):
        body = line.rstrip(b"\n")
        if body:
            yield body
        else:
            # RocketMQ refuses empty bodies; one blank line must not stop the lines behind it.
            click.echo(f"line {number} is empty and not sent", err=True)


async def _send(
    namesrv: str, topic: str, bodies: Iterator[bytes], tags: str | None, keys: str | None
) -> int:
    sent = 0
    async with Producer(namesrv, group=GROUP) as producer:
        batch: list[Message] = []
        for body in bodies:
            batch.append(Message(topic=topic, body=body, tags=tags, keys=keys))
            if len(batch) == BATCH:
                await producer.send_batch(batch)
                sent += len(batch)
                batch = []
        if batch:
            await producer.send_batch(batch)
            sent += len(batch)
    return sent


@click.command(help="Print a topic's messages; with lines on stdin and no -C, send them instead.")
@click.option("-t", "--topic", required=True)
@click.option("-C", "--consume", is_flag=True, help="Print, whatever stdin is.")
@click.option("-P", "--produce", is_flag=True, help="Send stdin's lines, whatever stdin is.")
@click.option("-q", "--queue", type=int, help="Only this queue id.")
@click.option(
    "-o",
    "--offset",
    default="beginning",
    show_default=True,
    help="beginning, end, N (of each queue), or -N: the last N of each queue.",
)
@click.option("-c", "--count", type=int, help="Stop after so many messages.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop when all queues are read up.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object a message.")
@namesrv_option
def cat(
    topic: str,
    consume: bool,
    produce: bool,
    queue: int | None,
    offset: str,
    count: int | None,
    exit_at_end: bool,
    as_json: bool,
    namesrv: str,
) -> None:
    if produce or (not consume and not sys.stdin.isatty() and _has_input()):
        sent = asyncio.run(_send(namesrv, topic, _lines(), None, None))
        click.echo(f"sent {sent} to {topic}", err=True)
        return
    start = _start(offset)
    asyncio.run(_print(namesrv, topic, queue, start, count, exit_at_end, as_json))


def _has_input() -> bool:
    # A pipe or a file says "send these lines"; /dev/null, as services have it, says nothing.
    return bool(sys.stdin.buffer.peek(1)[:1]) if hasattr(sys.stdin.buffer, "peek") else False


class Start:
    """Where to begin in each queue: `fixed` an offset, or `back` so many before the end."""

    def __init__(self, fixed: int | None = None, back: int | None = None) -> None:
        self.fixed = fixed
        self.back = back

    def of(self, least: int, most: int) -> int:
        """The offset to begin at in a queue that holds [least, most)."""
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
    return Start(back=-number) if number < 0 else Start(fixed=number)


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
    async with PullConsumer(namesrv, group=GROUP) as consumer:
        async for message in _messages(consumer, topic, queue_id, start, exit_at_end):
            _show(message, as_json)
            printed += 1
            if printed == count:
                return


async def _messages(
    consumer: PullConsumer, topic: str, queue_id: int | None, start: Start, exit_at_end: bool
) -> AsyncIterator[ReceivedMessage]:
    """Messages of the chosen queues in turn; endless unless `exit_at_end`."""
    positions: dict[MessageQueue, int] = {}
    for queue in await consumer.queues(topic):
        if queue_id is None or queue.queue_id == queue_id:
            least, most = await consumer.min_offset(queue), await consumer.max_offset(queue)
            positions[queue] = start.of(least, most)
    if not positions:
        raise click.ClickException(f"topic {topic} has no queue {queue_id}")
    while True:
        idle = True
        for queue, position in positions.items():
            pulled = await consumer.pull(queue, position)
            positions[queue] = pulled.next_offset
            idle = idle and not pulled.messages
            for message in pulled.messages:
                yield message
        if idle and exit_at_end:
            return
        if idle:
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
