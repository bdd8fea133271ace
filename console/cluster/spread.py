"""``congreve cluster spread``: queues of topics on brokers that lack them."""

from __future__ import annotations

import asyncio

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.spread import Share, TopicSpread, TopicTables
from congreve.client.transport.route import PERM_WRITE
from congreve.console.cluster.brokers import chosen_cluster, cluster_option
from congreve.console.cluster.drain import apply_option
from congreve.console.connection import ask, cluster_options
from congreve.console.report import Rows, output_option, show
from congreve.console.topic_kinds import KINDS, kind_of

REGISTERED_S = 60.0


@click.command(help="Give topics queues on all brokers; without a topic show which lack some.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--all", "every", is_flag=True, help="All topics that lack queues.")
@click.option(
    "-q",
    "--queues",
    type=click.IntRange(1, 65_535),
    help="Queues on each broker. [default: as on the broker with the most]",
)
@click.option("--ordered", is_flag=True, help="Also ordered topics: keys move to other queues.")
@apply_option
@cluster_option
@cluster_options
@output_option
def spread(
    topics: tuple[str, ...],
    every: bool,
    queues: int | None,
    ordered: bool,
    is_applied: bool,
    cluster: str | None,
    namesrv: str,
    output: str,
) -> None:
    """No broker loses a queue, and one that is drained gets none."""
    if topics and every:
        raise click.UsageError("name topics, or use --all")
    if is_applied and not topics and not every:
        raise click.UsageError("name the topics, or use --all")

    async def question(admin: AdminClient) -> Rows:
        tables = await TopicTables.read(admin, await chosen_cluster(admin, cluster))
        skewed = await _skewed(admin, tables)
        if not topics and not every:
            return skewed
        rows: Rows = []
        for topic in topics or [row["topic"] for row in skewed]:
            plan = tables.plan(topic, queues)
            if tables.is_ordered(topic) and not ordered:
                why = (
                    f"{topic} is ordered: with more queues keys move, and what came before may be"
                    " read after what comes then; --ordered does it"
                )
                if not every:
                    raise CongreveError(why)
                click.echo(f"left as it is: {why}", err=True)
                continue
            if is_applied:
                await _apply(TopicSpread(admin, tables), plan)
            rows += [dict(share) for share in plan]
        return rows

    title = None
    if not is_applied:
        title = "not changed: use --apply" if topics or every else "topics that lack queues"
    show(ask(namesrv, question), output, title)


async def _apply(spread: TopicSpread, plan: list[Share]) -> None:
    for share in plan:
        if share.after > share.before:
            await spread.apply(share)
            click.echo(f"{share.topic}: {share.after} queues on {share.broker}", err=True)
    try:
        async with asyncio.timeout(REGISTERED_S):
            for share in plan:  # also of one before, which was interrupted
                if share.after:
                    await spread.registered(share)
    except TimeoutError:
        raise CongreveError(
            f"a name server has not all queues after {REGISTERED_S:.0f} s: repeat the command"
        ) from None


async def _skewed(admin: AdminClient, tables: TopicTables) -> Rows:
    """The users' topics whose brokers do not have the same number of queues."""
    info = await admin.cluster_info()
    own = info.cluster_addr_table.keys() | info.broker_addr_table.keys()
    rows: Rows = []
    for topic in tables.names():
        perm = max(config.perm for config in tables.of(topic).values())
        counts = tables.queues(topic)
        usual = kind_of(topic, perm, own) == KINDS[0] and perm & PERM_WRITE
        lacking = {count for name, count in counts.items() if tables.is_open(name)}
        if usual and max(counts.values()) > min(lacking, default=max(counts.values())):
            rows.append({"topic": topic, "ordered": tables.is_ordered(topic), "queues": counts})
    return rows
