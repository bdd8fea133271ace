"""``congreve undeliverable``: messages that brokers set aside, because no topic could hold them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from functools import partial

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.queue_reader import QueueReader, readers
from congreve.client.errors import RouteNotFoundError
from congreve.client.message import Message
from congreve.client.received import ReceivedMessage
from congreve.console.connection import ask, cluster_options, connection
from congreve.console.report import Rows, body_fields, output_option, show, shown_time
from congreve.records.message.properties import NAMES, REAL_QUEUE_ID, REAL_TOPIC
from congreve.records.message.topics import COMMAND_GROUP, UNDELIVERABLE_TOPIC


@click.group(help="Show delayed messages that were set aside, and send them again.")
def undeliverable() -> None:
    """When they were due, their topic could not hold them."""


@undeliverable.command("list", help="Print the newest messages that were set aside.")
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=20, show_default=True)
@cluster_options
@output_option
def list_messages(count: int, namesrv: str, output: str) -> None:
    """Print them, the newest first."""

    async def question(admin: AdminClient) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        for reader in await _readers(admin):
            first, end = await reader.bounds()
            found += await reader.read(max(first, end - count), end)
        return sorted(found, key=lambda each: -each.store_timestamp)[:count]

    rows: Rows = [
        {
            "place": _place(each),
            "topic": each.properties.get(REAL_TOPIC),
            "queue": each.properties.get(REAL_QUEUE_ID),
            "stored_ms": each.store_timestamp,
            "keys": each.keys,
            **body_fields(partial(getattr, each, "body"), output),
        }
        for each in ask(namesrv, question)
    ]
    show(rows, output, expand=True, shown={"stored_ms": shown_time})


@undeliverable.command(help="Send messages that were set aside to a topic, once for each call.")
@click.argument("places", nargs=-1, metavar="[BROKER:OFFSET]...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option("-t", "--topic", required=True, help="The topic that gets them.")
@cluster_options
@output_option
def resend(places: tuple[str, ...], every: bool, topic: str, namesrv: str, output: str) -> None:
    """Send the messages at these places, which `list` prints; they stay where they are."""
    from congreve.client.producer.producer import Producer

    if bool(places) == every:
        raise click.UsageError("name the places of `congreve undeliverable list`, or --all")

    async def question(admin: AdminClient) -> Rows:
        rows: Rows = []
        left = set(places)
        async with Producer(namesrv, group=COMMAND_GROUP, **connection()) as producer:
            for reader in await _readers(admin):
                async for message in _chosen(reader, places):
                    sent = await producer.send(_plain(message, topic))
                    left.discard(_place(message))
                    rows.append(
                        {
                            "place": _place(message),
                            "topic": topic,
                            "message_id": sent.message_id,
                            "status": sent.status.name,
                        }
                    )
        if left:
            raise CongreveError(
                f"{len(rows)} were sent; there is no message {', '.join(sorted(left))}"
            )
        return rows

    show(ask(namesrv, question), output)


async def _readers(admin: AdminClient) -> list[QueueReader]:
    try:
        return await readers(admin, admin.brokers, UNDELIVERABLE_TOPIC)
    except RouteNotFoundError:
        return []


async def _chosen(reader: QueueReader, places: Collection[str]) -> AsyncIterator[ReceivedMessage]:
    """The messages of a queue at these places, or all of them."""
    first, end = await reader.bounds()
    async for messages in reader.chunks(first, end, 32):
        for message in messages:
            if not places or _place(message) in places:
                yield message


def _plain(message: ReceivedMessage, topic: str) -> Message:
    """The message as it was sent, without its delay."""
    kept = {name: value for name, value in message.properties.items() if name not in NAMES}
    return Message(
        topic=topic,
        body=message.body,
        tags=message.tags,
        keys=message.keys,
        properties=kept,
        flag=message.flag,
    )


def _place(message: ReceivedMessage) -> str:
    return f"{message.queue.broker_name}:{message.queue_offset}"
