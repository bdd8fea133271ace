"""``congreve replicas``: masters and their slaves, and how far these are behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from congreve.client.admin import AdminClient
from congreve.console.ask import ask
from congreve.console.report import cluster_options, output_option, show
from congreve.errors import CongreveError

if TYPE_CHECKING:
    from congreve.remoting.messages.admin_bodies import HARuntimeInfo

Rows = list[dict[str, Any]]
AWAY = "no answer"


@click.command(help="Show masters and slaves: lag in bytes and ms, in-sync set.")
@cluster_options
@output_option
def replicas(namesrv: str, output: str) -> None:
    """Print a row for each slave of a master, and one for each registered slave."""

    async def question(admin: AdminClient) -> Rows:
        from congreve.client.admin.reports import BrokerReports

        rows = []
        for name, group in sorted((await admin.cluster_info()).broker_addr_table.items()):
            for number, address in sorted(group.broker_addrs.items()):
                try:
                    status = await BrokerReports(admin, address).ha_status()
                except CongreveError:
                    rows.append(_row(name, number, address, AWAY))
                else:
                    rows.extend(_rows(name, number, address, status))
        return rows

    show(ask(namesrv, question), output)


def _rows(name: str, number: int, address: str, status: HARuntimeInfo) -> Iterator[dict[str, Any]]:
    if not status.master:
        following = status.ha_client_runtime_info.master_addr or "none"
        yield _row(name, number, address, "slave", following)
        return
    slaves = status.ha_connection_info
    for slave in slaves:
        behind = slave.diff, slave.lag_millis, slave.in_sync
        yield _row(name, number, address, "master", slave.addr, *behind)
    if not slaves:
        yield _row(name, number, address, "master", "none")


def _row(
    name: str,
    number: int,
    address: str,
    role: str,
    peer: str = "",
    lag_bytes: int | str = "",
    lag_ms: int | str = "",
    in_sync: bool | str = "",
) -> dict[str, Any]:
    return {
        "broker": name,
        "id": number,
        "address": address,
        "role": role,
        "other end": peer,
        "lag bytes": lag_bytes,
        "lag ms": lag_ms,
        "in sync": in_sync,
    }
