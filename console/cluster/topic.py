"""``congreve topic``: topics, their brokers and their offsets."""

from __future__ import annotations

import click

from congreve.client.admin import AdminClient
from congreve.console.cluster.brokers import chosen_cluster, cluster_option
from congreve.console.connection import asks_cluster
from congreve.console.report import Rows, shown_time, system_option
from congreve.console.topic_kinds import KINDS, kind_of

PERMISSIONS = {"read-write": 6, "read-only": 4, "write-only": 2, "none": 0}
"""RocketMQ's numbers: 4 for reading plus 2 for writing."""


@click.group(help="List, create, delete and inspect topics.")
def topic() -> None:
    """Each subcommand finds the brokers through the name server."""


@topic.command("list", help="Print the names of all topics.")
@system_option
@asks_cluster()
async def list_topics(admin: AdminClient, has_system: bool) -> Rows:
    """Print the topics that brokers registered at the name server (mqadmin: topicList)."""
    names = await admin.topics()
    if not has_system:
        info = await admin.cluster_info()
        own = info.cluster_addr_table.keys() | info.broker_addr_table.keys()
        names = [name for name in names if kind_of(name, own_names=own) == KINDS[0]]
    return [{"topic": name} for name in names]


@topic.command(help="Create a topic, or change its queue counts, on every master of a cluster.")
@click.argument("name")
@click.option("-q", "--queues", default=8, show_default=True, help="Read and write queues.")
@click.option("-a", "--attributes", help="Set and remove them: +message.type=FIFO,-other.")
@cluster_option
@asks_cluster()
async def create(
    admin: AdminClient, name: str, queues: int, attributes: str | None, cluster: str | None
) -> Rows:
    """Create or change a topic (mqadmin: updateTopic)."""
    chosen = await chosen_cluster(admin, cluster)
    brokers = await admin.create_topic(name, queues=queues, cluster=chosen, attributes=attributes)
    return [{"topic": name, "broker": broker, "queues": queues} for broker in brokers]


@topic.command(help="Allow or forbid reading and writing a topic, on every broker that has it.")
@click.argument("name")
@click.argument("permission", type=click.Choice(list(PERMISSIONS)))
@asks_cluster()
async def permission(admin: AdminClient, name: str, permission: str) -> Rows:
    """Change a topic's permission; its queues stay (mqadmin: updateTopicPerm)."""
    before = {row.broker_name: row.perm for row in await admin.topic_route(name)}
    changed = await admin.set_topic_permission(name, PERMISSIONS[permission])
    return [
        {"topic": name, "broker": broker, "before": before.get(broker), "after": perm}
        for broker, perm in changed.items()
    ]


@topic.command(help="Delete a topic on every broker of a cluster and at the name servers.")
@click.argument("name")
@cluster_option
@asks_cluster()
async def delete(admin: AdminClient, name: str, cluster: str | None) -> Rows:
    """Delete a topic (mqadmin: deleteTopic); a topic that does not exist is an error."""
    await admin.topic_route(name)  # brokers report success for topics that do not exist
    chosen = await chosen_cluster(admin, cluster)
    brokers = await admin.delete_topic(name, cluster=chosen)
    return [{"topic": name, "deleted_on": broker} for broker in brokers]


@topic.command(help="Print offsets and last store time of each queue.")
@click.argument("name")
@asks_cluster(shown={"last_stored_ms": shown_time})
async def stats(admin: AdminClient, name: str) -> Rows:
    """Print the offsets of each queue (mqadmin: topicStatus)."""
    return [
        {
            "broker": row.broker_name,
            "queue": row.queue_id,
            "min": row.min_offset,
            "max": row.max_offset,
            "last_stored_ms": row.last_update_ms or None,
        }
        for row in await admin.topic_stats(name)
    ]


@topic.command(help="Print the brokers that serve a topic.")
@click.argument("name")
@asks_cluster()
async def route(admin: AdminClient, name: str) -> Rows:
    """Print the brokers and queue counts of a topic (mqadmin: topicRoute)."""
    return [
        {
            "broker": row.broker_name,
            "addresses": list(row.addresses),
            "read_queues": row.read_queues,
            "write_queues": row.write_queues,
            "perm": row.perm,
        }
        for row in await admin.topic_route(name)
    ]
