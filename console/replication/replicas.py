"""``congreve replicas``: masters and their slaves, and how far these are behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.errors import BrokerError
from congreve.console.connection import asks_cluster
from congreve.console.report import Rows
from congreve.remoting.messages.codes import ResponseCode

if TYPE_CHECKING:
    from congreve.client.admin.reports import BrokerReports
    from congreve.remoting.messages.admin_bodies import HARuntimeInfo

AWAY = "no answer"


@click.command(help="Show masters and slaves: lag in bytes and ms, in-sync set.")
@asks_cluster()
async def replicas(admin: AdminClient) -> Rows:
    """Print a row for each slave of a master, and one for each registered slave."""
    rows: Rows = []
    for name, group in sorted((await admin.cluster_info()).broker_addr_table.items()):
        rows.extend(await _of_group(admin, name, group.broker_addrs))
    return rows


async def _of_group(admin: AdminClient, name: str, addresses: dict[int, str]) -> Rows:
    """The rows of all brokers of a name.

    RocketMQ 4.9 does not know the request: where its broker is the master, the ends of the logs
    show how far slaves are behind.
    """
    from congreve.client.admin.reports import BrokerReports

    rows: Rows = []
    end = None  # of such a master's log
    for number, address in sorted(addresses.items()):
        reports = BrokerReports(admin, address)
        try:
            try:
                found = list(_rows(name, number, address, await reports.ha_status()))
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                found = [_row(name, number, address, "slave" if number else "master")]
                end = await _log_end(reports) if number == 0 else end
            if number and end is not None:
                found[0]["lag_bytes"] = max(0, end - await _log_end(reports))
        except CongreveError:
            found = [_row(name, number, address, AWAY)]
        rows.extend(found)
    return rows


async def _log_end(reports: BrokerReports) -> int:
    return int((await reports.runtime())["commitLogMaxOffset"])


def _rows(name: str, number: int, address: str, status: HARuntimeInfo) -> Iterator[dict[str, Any]]:
    if not status.master:
        following = status.ha_client_runtime_info.master_addr or None
        yield _row(name, number, address, "slave", following)
        return
    slaves = status.ha_connection_info
    for slave in slaves:
        behind = slave.diff, slave.lag_millis, slave.in_sync
        yield _row(name, number, address, "master", slave.addr, *behind)
    if not slaves:
        yield _row(name, number, address, "master")


def _row(
    name: str,
    number: int,
    address: str,
    role: str,
    peer: str | None = None,
    lag_bytes: int | None = None,
    lag_ms: int | None = None,
    in_sync: bool | None = None,
) -> dict[str, Any]:
    return {
        "broker": name,
        "id": number,
        "address": address,
        "role": role,
        "other_end": peer,
        "lag_bytes": lag_bytes,
        "lag_ms": lag_ms,
        "in_sync": in_sync,
    }
