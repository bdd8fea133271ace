"""``congreve group``: consumer groups, their lag, members and offsets."""

from __future__ import annotations

from typing import Any

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.groups import OffsetTarget, QueueLag
from congreve.console.cluster.brokers import chosen_cluster, cluster_option
from congreve.console.connection import ask, asks_cluster, cluster_options, did_you_mean
from congreve.console.option_types import Time
from congreve.console.report import Rows, output_option, show, shown_age, system_option
from congreve.records.message.topics import is_system_group


@click.group(help="List and create consumer groups, show their lag, reset their offsets.")
def group() -> None:
    """Each subcommand finds the brokers through the name server."""


@group.command("list", help="Print all groups with members and lag.")
@system_option
@asks_cluster()
async def list_groups(admin: AdminClient, has_system: bool) -> Rows:
    """Print the groups, those with the greatest lag first (mqadmin: consumerProgress)."""
    found = sorted(await admin.groups.summaries(), key=lambda one: (-one.lag, one.group))
    return [
        {"group": one.group, "members": one.members, "topics": one.topics, "lag": one.lag}
        for one in found
        if has_system or not is_system_group(one.group)
    ]


@group.command(help="Create a group, or change its settings, on every master of a cluster.")
@click.argument("name")
@click.option("--retries", type=click.IntRange(0), help="Deliveries before a dead letter.")
@click.option("--retry-queues", type=click.IntRange(0, 65_535), help="Queues of its retry topic.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether it may consume.")
@click.option("--broadcast/--no-broadcast", default=None, help="Whether each member gets all.")
@cluster_option
@asks_cluster()
async def create(admin: AdminClient, name: str, cluster: str | None, **settings: Any) -> Rows:
    """Create or change a group; what is not given stays (mqadmin: updateSubGroup)."""
    chosen = await chosen_cluster(admin, cluster)
    saved = await admin.groups.create(name, cluster=chosen, **settings)
    return [
        {
            "group": name,
            "broker": broker,
            "retries": one.retry_max_times,
            "retry_queues": one.retry_queue_nums,
            "enabled": one.consume_enable,
            "broadcast": one.consume_broadcast_enable,
        }
        for broker, one in sorted(saved.items())
    ]


@group.command(help="Print the lag of a group in each queue, in messages and time.")
@click.argument("name")
@click.option("-t", "--topic", help="Only this topic.")
@asks_cluster(shown={"oldest_ms": shown_age, "in_flight_ms": shown_age})
async def lag(admin: AdminClient, name: str, topic: str | None) -> Rows:
    """Print the lag in each queue (mqadmin: consumerProgress -g)."""
    await check_known(admin, name)
    found = await admin.groups.lag(name, topic)
    no_pops = all(row.in_flight is None for row in found)
    return [
        {
            "topic": row.topic,
            "broker": row.broker_name,
            "queue": row.queue_id,
            "consumed": row.consumer_offset,
            "end": row.broker_offset,
            "lag": row.lag,
            "oldest_ms": row.lag_ms,
            **({} if no_pops else _popped(row)),
        }
        for row in found
    ]


def _popped(row: QueueLag) -> dict[str, int | None]:
    return {
        "in_flight": row.in_flight,
        "in_flight_ms": row.in_flight_ms,
        "ready": row.ready,
        "redelivered": row.redelivered,
        "dead_letters": row.dead_letters,
    }


@group.command(help="Print the clients of a group.")
@click.argument("name")
@asks_cluster()
async def members(admin: AdminClient, name: str) -> Rows:
    """Print the clients of a group (mqadmin: consumerConnection)."""
    await check_known(admin, name)
    return [
        {
            "client": row.client_id,
            "address": row.address,
            "language": row.language,
            "version": row.version,
            "transport": row.transport,
            "broker": row.broker_name,
        }
        for row in await admin.groups.members(name)
    ]


@group.command(help="Set a group's offsets; without --apply, print what would change.")
@click.argument("name")
@click.option("-t", "--topic", required=True)
@click.option("--first", is_flag=True, help="To the oldest message.")
@click.option("--last", is_flag=True, help="To the end: skip what is not consumed.")
@click.option("--time", "time_ms", type=Time(), help="To the messages stored at this time.")
@click.option("--apply", "is_applied", is_flag=True, help="Change the offsets.")
@cluster_options
@output_option
def reset(
    name: str,
    topic: str,
    first: bool,
    last: bool,
    time_ms: int | None,
    is_applied: bool,
    namesrv: str,
    output: str,
) -> None:
    """Preview or reset offsets (mqadmin: resetOffsetByTime, skipAccumulatedMessage)."""
    if first + last + (time_ms is not None) != 1:
        raise click.UsageError("use one of --first, --last and --time")

    target: OffsetTarget = "first" if first else "last"
    if time_ms is not None:
        target = time_ms

    async def question(admin: AdminClient) -> Rows:
        rows = await admin.groups.reset(name, topic, target, preview=not is_applied)
        return [
            {
                "broker": row.broker_name,
                "queue": row.queue_id,
                "before": row.before,
                "after": row.after,
                "changed_by": "members" if row.online else "broker",
            }
            for row in rows
        ]

    show(ask(namesrv, question), output, None if is_applied else "not changed: use --apply")


@group.command(help="Delete a group's settings on every broker.")
@click.argument("name")
@click.option("--with-offsets", is_flag=True, help="Delete its offsets, too.")
@asks_cluster()
async def delete(admin: AdminClient, name: str, with_offsets: bool) -> Rows:
    """Delete a group (mqadmin: deleteSubGroup)."""
    await check_known(admin, name)
    brokers = await admin.groups.delete(name, with_offsets=with_offsets)
    return [{"group": name, "deleted_on": broker} for broker in brokers]


async def check_known(admin: AdminClient, name: str) -> None:
    """Raises CongreveError if no broker has settings or offsets of the group."""
    names = await admin.groups.names()
    if name not in names and not await admin.groups.lag(name):
        hint = did_you_mean(name, names) or ": `congreve group list` shows all"
        raise CongreveError(f"no broker knows a group {name}{hint}")
