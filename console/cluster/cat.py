"""``congreve cat``: prints a topic's messages in a terminal, as kcat does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import click
import msgspec

from congreve.base.errors import CongreveError
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.consumer.consumer import PullConsumer
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.subscription import Sql
from congreve.client.transport.route import MASTER_ID
from congreve.console.cluster.send import lines, send_bodies, stdin
from congreve.console.connection import cluster_options, connection, topic_hints
from congreve.console.option_types import Time
from congreve.console.report import body_fields, output_option, print_json, shown_time
from congreve.records.filter.kinds import ALL
from congreve.records.message.topics import COMMAND_GROUP

IDLE_S = 0.2

Shown = Callable[[ReceivedMessage], bytes]


def _body(message: ReceivedMessage) -> bytes:
    """The body; empty if it cannot be decompressed, which a line on standard error says."""
    try:
        return message.body
    except CongreveError as error:
        click.echo(f"{message.message_id}: {error}", err=True)
        return b""


_FIELDS: dict[str, Shown] = {
    "s": _body,
    "S": lambda message: str(message.body_size).encode(),
    "t": lambda message: message.topic.encode(),
    "b": lambda message: message.queue.broker_name.encode(),
    "q": lambda message: str(message.queue_id).encode(),
    "o": lambda message: str(message.queue_offset).encode(),
    "g": lambda message: (message.tags or "").encode(),
    "k": lambda message: (message.keys or "").encode(),
    "i": lambda message: message.message_id.encode(),
    "h": lambda message: ",".join(
        f"{name}={value}" for name, value in message.properties.items()
    ).encode(),
    "T": lambda message: str(message.store_timestamp).encode(),
    "D": lambda message: shown_time(message.store_timestamp).encode(),
    "%": lambda message: b"%",
}
_ESCAPES = {"n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PART = re.compile(r"%(.?)|\\(.?)", re.DOTALL)


class Wanted(msgspec.Struct, kw_only=True, frozen=True):
    """Which messages to print: of one queue or all, from where, to where, and which of them.

    A queue begins at offset `fixed`, `back` messages before its end, or with the first message that
    was stored at `from_ms`; it ends before the first that was stored at `to_ms`.
    """

    queue_id: int | None = None
    fixed: int | None = None
    back: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    expression: str | Sql = ALL
    count: int | None = None
    is_finite: bool = False


@click.command(
    help="Print a topic's messages. If stdin has lines and no option that says what to print is "
    "given, send those lines instead."
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
@click.option("--from", "from_ms", type=Time(), help="Begin with those stored then: or -15m.")
@click.option("--to", "to_ms", type=Time(), help="Stop before those stored then.")
@click.option("--tag", help="Only messages with this tag, or one of A || B.")
@click.option("--sql", help="Only messages whose properties pass this SQL92 filter.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end of all queues.")
@click.option(
    "-f",
    "--format",
    "form",
    help="What to print: %s body, %S its size, %t topic, %b broker, %q queue, %o offset, %g tag, "
    "%k keys, %i id, %h properties, %T store time in ms, %D as a date, \\n, \\t. [default: %s\\n]",
)
@click.option("--properties", is_flag=True, help=r"The same as --format '%h\t%s\n'.")
@click.option("-J", "--json", "as_json", is_flag=True, help="The same as --output json.")
@cluster_options
@output_option
def cat(topic: str, consume: bool, produce: bool, namesrv: str, **options: Any) -> None:
    """Print the messages of a topic, or send the lines of stdin to it; JSON is a line for each."""
    consume = consume or any(value not in (None, False, "table") for value in options.values())
    if consume and produce:
        raise click.UsageError("-P sends, but the other options but -t and -n are for printing")
    if produce or (not consume and _has_input()):
        send_bodies(namesrv, Message(topic=topic, body=b""), lines())
        return
    wanted = _wanted(**options)
    form = _form(**options)
    with topic_hints(namesrv):
        asyncio.run(_print(namesrv, topic, wanted, form))


def _has_input() -> bool:
    # A pipe or a file has lines to send; /dev/null, the stdin of services, has none.
    source = stdin()
    return source is not None and not source.isatty() and bool(source.peek(1))


def _wanted(
    *,
    queue: int | None,
    offset: str | None,
    from_ms: int | None,
    to_ms: int | None,
    tag: str | None,
    sql: str | None,
    count: int | None,
    exit_at_end: bool,
    **_: object,
) -> Wanted:
    if offset is not None and from_ms is not None:
        raise click.UsageError("use one of --offset and --from")
    if tag is not None and sql is not None:
        raise click.UsageError("use one of --tag and --sql")
    fixed, back = _start("beginning" if offset is None else offset)
    return Wanted(
        queue_id=queue,
        fixed=fixed,
        back=back,
        from_ms=from_ms,
        to_ms=to_ms,
        expression=Sql(sql) if sql is not None else tag or ALL,
        count=count,
        is_finite=exit_at_end or to_ms is not None,
    )


def _start(offset: str) -> tuple[int | None, int | None]:
    """The fixed offset, or how far before the end."""
    if offset == "beginning":
        return 0, None
    if offset == "end":
        return None, 0
    try:
        number = int(offset)
    except ValueError:
        raise click.BadParameter(
            f"{offset!r} is not beginning, end, N or -N", param_hint="--offset"
        ) from None
    return (None, -number) if offset.startswith("-") else (number, None)


def _form(
    *, form: str | None, properties: bool, as_json: bool, output: str, **_: object
) -> Callable[[ReceivedMessage], None]:
    """What prints a message. Raises click.BadParameter."""
    if as_json or output == "json":
        return lambda message: print_json(_row(message))
    parts = _parts(form if form is not None else r"%h\t%s\n" if properties else r"%s\n")

    def write(message: ReceivedMessage) -> None:
        text = b"".join(part if isinstance(part, bytes) else part(message) for part in parts)
        click.echo(text, nl=False)

    return write


def _parts(form: str) -> list[bytes | Shown]:
    parts: list[bytes | Shown] = []
    at = 0
    for found in _PART.finditer(form):
        parts.append(form[at : found.start()].encode())
        at = found.end()
        field, escape = found.groups()
        part = _FIELDS.get(field) if field is not None else _ESCAPES.get(escape)
        if part is None:
            known = " ".join(f"%{name}" for name in _FIELDS)
            raise click.BadParameter(
                f"{found.group()!r} is none of {known} \\n \\t \\0", param_hint="--format"
            )
        parts.append(part)
    parts.append(form[at:].encode())
    return parts


async def _print(
    namesrv: str, topic: str, wanted: Wanted, show: Callable[[ReceivedMessage], None]
) -> None:
    printed = 0
    async with PullConsumer(namesrv, group=COMMAND_GROUP, **connection()) as consumer:
        async for message in _messages(consumer, topic, wanted):
            show(message)
            printed += 1
            if printed == wanted.count:
                return


async def _messages(
    consumer: PullConsumer, topic: str, wanted: Wanted
) -> AsyncIterator[ReceivedMessage]:
    """Messages of the chosen queues in turn; a finite reading ends at the end of each queue."""
    positions: dict[MessageQueue, tuple[int, int | None]] = {}
    for queue in await consumer.queues(topic):
        if wanted.queue_id in (None, queue.queue_id):
            positions[queue] = await _bounds(consumer, queue, wanted)
    if not positions:
        which = "queue to read" if wanted.queue_id is None else f"queue {wanted.queue_id}"
        raise CongreveError(f"topic {topic} has no {which}")
    while positions:
        idle = True
        for queue, (position, stop) in list(positions.items()):
            if stop is not None and position >= stop:
                del positions[queue]
                continue
            pulled = await consumer.pull(queue, position, expression=wanted.expression)
            positions[queue] = pulled.next_offset, stop
            idle = idle and not pulled.messages
            for message in pulled.messages:
                if stop is None or message.queue_offset < stop:
                    yield message
            if wanted.is_finite and pulled.next_offset >= pulled.max_offset:
                # Other programs may keep writing; the queue has been read to its end once.
                positions.pop(queue, None)
        if idle and positions and not wanted.is_finite:
            await asyncio.sleep(IDLE_S)


async def _bounds(
    consumer: PullConsumer, queue: MessageQueue, wanted: Wanted
) -> tuple[int, int | None]:
    """Where to begin in a queue, and where to stop."""
    least, most = await consumer.min_offset(queue), await consumer.max_offset(queue)
    address = consumer.routes.address_to_read(queue.broker_name, MASTER_ID)
    reader = QueueReader(consumer, queue, address)
    if wanted.from_ms is not None:
        start = await reader.first_at(wanted.from_ms)
    elif wanted.back is not None:
        start = most - wanted.back
    else:
        start = wanted.fixed or 0
    stop = None if wanted.to_ms is None else await reader.first_at(wanted.to_ms)
    return min(max(start, least), most), stop


def _row(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_ms": message.born_timestamp,
        "stored_ms": message.store_timestamp,
        "properties": message.properties,
        **body_fields(lambda: message.body, "json"),
    }
