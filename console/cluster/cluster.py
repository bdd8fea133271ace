"""``congreve cluster``: the brokers of a cluster, and the verbs that change which there are."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.reports import BrokerReports
from congreve.console.cluster.drain import drain
from congreve.console.cluster.remove import remove
from congreve.console.cluster.roll import roll
from congreve.console.cluster.spread import spread
from congreve.console.cluster.status import status
from congreve.console.connection import ask, cluster_options
from congreve.console.report import Rows, output_option, show

OPTIONS = ("namesrv", "context", "tls", "access_key", "output")


@click.group(
    invoke_without_command=True,
    help="Show all brokers: addresses, versions, rates, disks. Or drain one, and more.",
)
@cluster_options
@output_option
@click.pass_context
def cluster(context: click.Context, namesrv: str, output: str) -> None:
    """Without a subcommand print a row for each registered broker (mqadmin: clusterList)."""
    if context.invoked_subcommand is None:
        show(ask(namesrv, _brokers), output)
        return
    for option in OPTIONS:
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            verb = context.invoked_subcommand
            raise click.UsageError(f"give options after the verb: congreve cluster {verb} ...")


cluster.add_command(status)
cluster.add_command(drain)
cluster.add_command(spread)
cluster.add_command(roll)
cluster.add_command(remove)


async def _brokers(admin: AdminClient) -> Rows:
    info = await admin.cluster_info()
    clusters = {name: one for one, names in info.cluster_addr_table.items() for name in names}
    return [
        await _row(admin, clusters.get(name, ""), name, number, address)
        for name, group in sorted(info.broker_addr_table.items())
        for number, address in sorted(group.broker_addrs.items())
    ]


async def _row(
    admin: AdminClient, cluster_name: str, name: str, number: int, address: str
) -> dict[str, Any]:
    figures: dict[str, str] = {}
    state = "answers"
    try:
        figures = await BrokerReports(admin, address).runtime()
    except CongreveError:
        state = "no answer"
    return {
        "cluster": cluster_name,
        "broker": name,
        "id": number,
        "address": address,
        "state": state,
        "version": figures.get("brokerVersionDesc"),
        "in_per_second": _first(figures.get("putTps")),
        "out_per_second": _first(figures.get("getTransferedTps")),
        "disk_used": _number(figures.get("commitLogDiskRatio")),
    }


def _first(text: str | None) -> float | None:
    """The rate of the last ten seconds, of three."""
    return _number(text.split()[0]) if text and text.split() else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else round(float(text), 2)
    except ValueError:
        return None
