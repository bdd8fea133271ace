"""``congreve dlq``: dead letters of consumer groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.resend import ResendReport
from congreve.client.errors import RouteNotFoundError
from congreve.console.connection import ask, asks_cluster, cluster_options
from congreve.console.option_types import FiniteRange, Time
from congreve.console.report import Rows, body_fields, output_option, show, shown_time

T = TypeVar("T")


@click.group(help="List, count and resend dead letters.")
def dlq() -> None:
    """Each subcommand finds the brokers through the name server."""


@dlq.command("groups", help="Print the groups that have dead letters.")
@asks_cluster()
async def list_groups(admin: AdminClient) -> Rows:
    """Print the groups and the number of their dead letters."""
    return [
        {"group": one.group, "dead_letters": one.count} for one in await admin.dead_letters.groups()
    ]


@dlq.command(help="Count a group's dead letters by topic, reason and age.")
@click.argument("group")
@cluster_options
@output_option
def count(group: str, namesrv: str, output: str) -> None:
    """Count dead letters."""

    async def question(admin: AdminClient) -> tuple[Rows, str | None]:
        found = await admin.dead_letters.count(group)
        title = None if found.is_complete else f"only the newest {found.scanned} were counted"
        return [
            {
                "topic": row.topic,
                "reason": row.reason,
                "younger_than": row.age,
                "count": row.count,
                "resent": row.resent,
            }
            for row in found.rows
        ], title

    rows, title = _ask(namesrv, group, question)
    show(rows, output, title)


@dlq.command("list", help="Print a group's newest dead letters.")
@click.argument("group")
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--begin", type=Time(), default=0, help="Only those that died at or after this.")
@click.option("--end", type=Time(), help="Only those that died before this time.")
@cluster_options
@output_option
def list_letters(
    group: str, count: int, begin: int, end: int | None, namesrv: str, output: str
) -> None:
    """Print dead letters, the newest first."""

    async def question(admin: AdminClient) -> Rows:
        letters = await admin.dead_letters.newest(group, count=count, begin_ms=begin, end_ms=end)
        return [
            {
                "broker": letter.position.broker_name,
                "offset": letter.position.queue_offset,
                "topic": letter.topic,
                "died_ms": letter.dead_ms,
                "retries": letter.reconsume_times,
                "resent": letter.is_resent,
                "keys": letter.message.keys,
                **body_fields(partial(getattr, letter.message, "body"), output),
            }
            for letter in letters
        ]

    show(_ask(namesrv, group, question), output, expand=True, shown={"died_ms": shown_time})


@dlq.command(help="Send a group's dead letters again, each once.")
@click.argument("group")
@click.option("--to-group", is_flag=True, help="To this group only, not to the topic.")
@click.option("--topic", help="For letters whose sender may not write to the topic they name.")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="Messages a second.")
@click.option("--begin", type=Time(), default=0, help="Only those that died at or after this.")
@click.option("--end", type=Time(), help="Only those that died before this time.")
@cluster_options
@output_option
@click.pass_context
def resend(
    context: click.Context,
    group: str,
    to_group: bool,
    topic: str | None,
    rate: float | None,
    begin: int,
    end: int | None,
    namesrv: str,
    output: str,
) -> None:
    """Resend dead letters; exits with 1 unless all were stored, now or before."""

    async def question(admin: AdminClient) -> ResendReport:
        return await admin.dead_letters.resend(
            group, to_group=to_group, topic=topic, rate=rate, begin_ms=begin, end_ms=end
        )

    report = _ask(namesrv, group, question)
    totals = {
        "sent": report.sent,
        "sent_before": report.already_sent,
        "refused": len(report.failures),
        "in_doubt": report.in_doubt,
    }
    show([totals], output)
    for failure in report.failures[:10]:
        click.echo(f"{failure.broker_name} {failure.queue_offset}: {failure.reason}", err=True)
    if report.in_doubt:
        click.echo("no answer for those in doubt: the next resend looks for them", err=True)
    if report.failures or report.in_doubt:
        context.exit(1)


def _ask(namesrv: str, group: str, question: Callable[[AdminClient], Awaitable[T]]) -> T:
    """ask() about a group. Raises CongreveError if the group never had dead letters."""
    try:
        return ask(namesrv, question)
    except RouteNotFoundError as error:
        raise CongreveError(f"group {group} has no dead letters: {error}") from error
