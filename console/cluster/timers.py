"""``congreve timers``: delayed messages."""

from __future__ import annotations

import click

from congreve.client.admin import AdminClient
from congreve.console.connection import ask, asks_cluster, cluster_options
from congreve.console.option_types import Time
from congreve.console.report import Rows, output_option, show, shown_time

Page = tuple[Rows, str | None]


@click.group(help="Count and list delayed messages, take them back.")
def timers() -> None:
    """Each subcommand finds the brokers through the name server."""


@timers.command(help="Count the delayed messages that are due in each hour.")
@cluster_options
@output_option
def count(namesrv: str, output: str) -> None:
    """Count by hour and delay level."""

    async def question(admin: AdminClient) -> Page:
        found = await admin.timers.count_by_hour()
        rows = [
            {
                "hour_ms": row.hour_ms,
                "level": row.level or None,
                "count": row.count,
            }
            for row in found.counts
        ]
        return rows, None if found.is_complete else "a broker has more messages than it counts"

    rows, title = ask(namesrv, question)
    show(rows, output, title, shown={"hour_ms": shown_time})


@timers.command("list", help="Print the delayed messages that are due next.")
@click.option("-c", "--count", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("-t", "--topic", help="Only those of this topic.")
@click.option("--begin", type=Time(), default=0, help="Only those due at or after this time.")
@cluster_options
@output_option
def list_messages(count: int, topic: str | None, begin: int, namesrv: str, output: str) -> None:
    """Print the next messages with the handles that `recall` takes."""

    async def question(admin: AdminClient) -> Page:
        found = await admin.timers.upcoming(count=count, topic=topic, begin_ms=begin)
        rows = [
            {
                "due_ms": one.due_ms,
                "level": one.level or None,
                "topic": one.topic,
                "keys": one.keys or None,
                "bytes": one.body_size,
                "handle": one.recall_handle,
            }
            for one in found.messages
        ]
        return rows, None if found.is_complete else "there are more"

    rows, title = ask(namesrv, question)
    show(rows, output, title, whole=("handle",), shown={"due_ms": shown_time})


@timers.command(help="Take delayed messages back: they are never delivered.")
@click.argument("handles", nargs=-1, required=True)
@asks_cluster()
async def recall(admin: AdminClient, handles: tuple[str, ...]) -> Rows:
    """Take back the messages with these handles, in order, up to the first that fails."""
    for handle in handles:
        await admin.timers.recall(handle)
    return [{"taken_back": handle} for handle in handles]
