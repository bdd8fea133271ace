"""``congreve why``: what keeps a consumer group back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import click

from congreve.client.admin import AdminClient
from congreve.client.admin.brokers import in_turns
from congreve.client.admin.groups import QueueLag
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import ClientError
from congreve.client.transport.route import PERM_READ
from congreve.console.cluster.causes import GroupState, Member, causes_of
from congreve.console.cluster.group import check_known
from congreve.console.connection import ask, cluster_options
from congreve.console.report import Rows, output_option, print_json, printable
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.admin_bodies import ConsumerConnection

MEMBERS_ASKED = 64
"""Members that are asked for what they do; each answer has some kilobytes."""
BROADCASTING = "BROADCASTING"
Rates = dict[str, tuple[float, float]]


class _AtBroker(NamedTuple):
    """What one broker says about a group."""

    name: str
    reports: BrokerReports
    may_consume: bool
    unreadable: list[str]
    connection: ConsumerConnection | None
    rates: Rates


@click.command(help="Say why a group is behind: what its queues, brokers and members do.")
@click.argument("group")
@cluster_options
@output_option
def why(group: str, namesrv: str, output: str) -> None:
    """Print a sentence for each cause; the first one says how far the group is."""

    async def question(admin: AdminClient) -> Rows:
        await check_known(admin, group)
        state = await _state(admin, group)
        return [
            {"cause": cause.what, "advice": cause.advice}
            for cause in causes_of(state, int(time.time() * 1000))
        ]

    rows = ask(namesrv, question)
    if output == "json":
        print_json(rows)
        return
    for row in rows:
        click.echo(printable(str(row["cause"])))
        if row["advice"] is not None:
            click.echo(f"  {printable(str(row['advice']))}")


async def _state(admin: AdminClient, group: str) -> GroupState:
    """What brokers and members say. Raises what AdminClient's methods raise."""
    masters = await admin.brokers.masters()
    queues = await admin.groups.lag(group)
    reports = [(name, BrokerReports(admin, address)) for name, address in masters.items()]
    asked = await in_turns(partial(_at_broker, group, queues), reports)
    answered = [each for each in asked if each is not None]
    members = {
        each.client_id: (Member(each.client_id, each.protocol or "remoting"), broker.reports)
        for broker in answered
        if broker.connection is not None
        for each in broker.connection.connection_set
    }
    connected = [members[each] for each in sorted(members)]
    await in_turns(partial(_ask, group), connected[:MEMBERS_ASKED])
    connections = {each.name: each.connection for each in answered if each.connection is not None}
    return GroupState(
        group,
        queues,
        [member for member, _ in connected],
        subscriptions={
            name: {topic: data.sub_string or "*" for topic, data in each.subscription_table.items()}
            for name, each in connections.items()
        },
        broadcast=any(each.message_model == BROADCASTING for each in connections.values()),
        disabled_at=[each.name for each in answered if not each.may_consume],
        unreadable=[(topic, each.name) for each in answered for topic in each.unreadable],
        silent=[name for (name, _), each in zip(reports, asked, strict=True) if each is None],
        rates=_sums(each.rates for each in answered),
    )


async def _at_broker(
    group: str, queues: Sequence[QueueLag], broker: tuple[str, BrokerReports]
) -> _AtBroker | None:
    """None if the broker does not answer."""
    name, reports = broker
    try:
        settings = (await reports.groups()).get(group)
        topics = await reports.topics()
        connection = await reports.members(group)
        rates: Rates = {}
        for topic in {queue.topic for queue in queues if queue.lag}:
            came = await reports.rate("TOPIC_PUT_NUMS", topic)
            rates[topic] = came, await reports.rate("GROUP_GET_NUMS", f"{topic}@{group}")
    except (ClientError, RemotingError):
        return None
    own = sorted({queue.topic for queue in queues if queue.broker_name == name})
    return _AtBroker(
        *(name, reports),
        may_consume=settings is None or settings.consume_enable,
        unreadable=[each for each in own if each in topics and not topics[each].perm & PERM_READ],
        connection=connection,
        rates=rates,
    )


async def _ask(group: str, asked: tuple[Member, BrokerReports]) -> None:
    member, reports = asked
    try:
        member.info = await reports.running_info(group, member.client_id)
    except (ClientError, RemotingError):
        member.info = None


def _sums(rates: Iterable[Rates]) -> Rates:
    sums: Rates = {}
    for each in rates:
        for topic, (came, got) in each.items():
            before = sums.get(topic, (0.0, 0.0))
            sums[topic] = before[0] + came, before[1] + got
    return sums
