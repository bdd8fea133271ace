"""``congreve config``: the settings of running brokers, and options that name brokers."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.reports import BrokerReports
from congreve.console.connection import ask, cluster_options, did_you_mean
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
        known: set[str] = set()
        for name, address in (await _masters(admin, brokers)).items():
            found = await BrokerReports(admin, address).settings()
            known.update(found)
            rows += [
                {"broker": name, "key": key, "value": value}
                for key, value in sorted(found.items())
                if not keys or any(fnmatchcase(key.lower(), each.lower()) for each in keys)
            ]
        if not rows:
            hint = did_you_mean(keys[0], sorted(known)) if len(keys) == 1 else ""
            raise CongreveError(f"no broker has a setting like {', '.join(keys)}{hint}")
        return rows

    show(ask(namesrv, question), output)


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
        raise CongreveError(
            f"there is no master {unknown[0]}: the masters are {', '.join(sorted(masters))}"
        )
    return {name: masters[name] for name in names or sorted(masters)}
