"""``congreve cluster`` and ``congreve config``: the brokers of a cluster, and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.reports import BrokerReports
from congreve.console.connection import ask, asks_cluster, cluster_options
from congreve.console.option_types import KeyValue, Pairs
from congreve.console.report import Rows, output_option, show

broker_option = click.option(
    "-b", "--broker", "brokers", multiple=True, metavar="NAME", help="A broker's name; repeatable."
)
"""Which masters, as the argument `brokers`."""


cluster_option = click.option("-c", "--cluster", help="The cluster; without it the only one.")
"""Which cluster, as the argument `cluster`."""


async def chosen_cluster(admin: AdminClient, wanted: str | None) -> str:
    """The cluster of `cluster_option`. Raises CongreveError if there are several, or none."""
    known = sorted((await admin.cluster_info()).cluster_addr_table)
    if wanted is not None:
        return wanted
    if len(known) != 1:
        raise CongreveError(f"name the cluster with -c: {', '.join(known) or 'no broker has one'}")
    return known[0]


@click.command(help="Show all brokers: addresses, versions, rates, disks.")
@asks_cluster()
async def cluster(admin: AdminClient) -> Rows:
    """Print a row for each registered broker (mqadmin: clusterList)."""
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


@click.group(help="Show and change the settings of running brokers.")
def config() -> None:
    """The reference of all keys is `congreve settings`."""


@config.command("show", help="Print settings of brokers, all or those like KEY ('flush*').")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@broker_option
@cluster_options
@output_option
def show_settings(
    keys: tuple[str, ...], brokers: tuple[str, ...], namesrv: str, output: str
) -> None:
    """Print the settings of masters (mqadmin: getBrokerConfig)."""

    async def question(admin: AdminClient) -> Rows:
        rows: Rows = []
        for name, address in (await _masters(admin, brokers)).items():
            found = await BrokerReports(admin, address).settings()
            rows += [
                {"broker": name, "key": key, "value": value}
                for key, value in sorted(found.items())
                if not keys or any(fnmatchcase(key.lower(), each.lower()) for each in keys)
            ]
        return rows

    rows = ask(namesrv, question)
    if not rows:
        raise CongreveError(f"no broker has a setting like {', '.join(keys)}")
    show(rows, output)


@config.command("set", help="Change settings of running brokers, which save them.")
@click.argument("changes", nargs=-1, required=True, type=KeyValue(), metavar="KEY=VALUE...")
@broker_option
@click.option("--all", "every", is_flag=True, help="On every master.")
@cluster_options
@output_option
def set_settings(
    changes: Pairs,
    brokers: tuple[str, ...],
    every: bool,
    namesrv: str,
    output: str,
) -> None:
    """Change settings of masters (mqadmin: updateBrokerConfig)."""
    wanted = {key: value.strip() for key, value in changes}
    for pair in changes:
        if "\n" in "".join(pair):
            raise click.BadParameter(f"{'='.join(pair)!r} has more than one line")

    async def question(admin: AdminClient) -> Rows:
        masters = await _masters(admin, brokers)
        if len(masters) > 1 and not brokers and not every:
            raise CongreveError(f"name the broker with -b, or use --all: {', '.join(masters)}")
        rows: Rows = []
        for name, address in masters.items():
            reports = BrokerReports(admin, address)
            before = await reports.settings()
            remark = await reports.update_settings(wanted)
            after = await reports.settings()
            rows += [
                {
                    "broker": name,
                    "key": key,
                    "before": before.get(key),
                    "after": after.get(key),
                    "remark": remark,
                }
                for key in wanted
            ]
        return rows

    show(ask(namesrv, question), output)


async def _masters(admin: AdminClient, names: Sequence[str]) -> dict[str, str]:
    """The addresses of these masters, or of all. Raises CongreveError for an unknown one."""
    masters = await admin.brokers.masters()
    unknown = [name for name in names if name not in masters]
    if unknown:
        raise CongreveError(f"there is no master {unknown[0]}: {', '.join(sorted(masters))} are")
    return {name: masters[name] for name in names or sorted(masters)}
