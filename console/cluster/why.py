"""``congreve why``: what keeps a consumer group back."""

from __future__ import annotations

import time

import click

from congreve.client.admin import AdminClient
from congreve.client.admin.causes import causes_of
from congreve.console.cluster.group import check_known
from congreve.console.connection import ask, cluster_options
from congreve.console.report import Rows, output_option, print_json, printable


@click.command(help="Say why a group is behind: what its queues, brokers and members do.")
@click.argument("group")
@cluster_options
@output_option
def why(group: str, namesrv: str, output: str) -> None:
    """Print a sentence for each cause; the first one says how far the group is."""

    async def question(admin: AdminClient) -> Rows:
        await check_known(admin, group)
        state = await admin.states.read(group)
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
