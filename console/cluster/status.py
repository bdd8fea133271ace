"""``congreve cluster status``: what an operator has to know before and after each other verb."""

from __future__ import annotations

from typing import Any

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.brokers import in_turns
from congreve.client.admin.draining import DrainedBroker
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerError
from congreve.client.transport.route import MASTER_ID
from congreve.console.connection import asks_cluster
from congreve.console.report import Rows
from congreve.remoting.messages.bodies import ClusterInfo
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand

ANSWERS, AWAY = "answers", "no answer"


@click.command(help="Show each broker: whether it gets messages, its slaves, its name servers.")
@asks_cluster()
async def status(admin: AdminClient) -> Rows:
    """Print a row for each broker that a name server has."""
    request = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
    answers = await admin.name_servers.ask_each(request)
    infos = [ClusterInfo.decode(answer.body) for answer in answers.values()]
    places = {
        (name, number, address): group.cluster
        for info in infos
        for name, group in info.broker_addr_table.items()
        for number, address in group.broker_addrs.items()
    }

    async def row(item: tuple[tuple[str, int, str], str]) -> dict[str, Any]:
        (name, number, address), cluster = item
        known = sum(_has(info, name, number, address) for info in infos)
        head = {"cluster": cluster, "broker": name, "id": number, "address": address}
        servers = {"registered": known, "name_servers": len(admin.name_servers.addresses)}
        return {**head, **await _figures(admin, name, number, address), **servers}

    return await in_turns(row, sorted(places.items()))


def _has(info: ClusterInfo, name: str, number: int, address: str) -> bool:
    group = info.broker_addr_table.get(name)
    return group is not None and group.broker_addrs.get(number) == address


async def _figures(admin: AdminClient, name: str, number: int, address: str) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("state", "sends", "slaves", "in_sync", "lag_bytes"))
    reports = BrokerReports(admin, address)
    try:
        if number == MASTER_ID:
            found["sends"] = str(await DrainedBroker(admin, name).sends())
        replication = await reports.ha_status()
        if replication.master:
            slaves = replication.ha_connection_info
            found["slaves"] = len(slaves)
            found["in_sync"] = sum(slave.in_sync for slave in slaves)
            found["lag_bytes"] = max((slave.diff for slave in slaves), default=0)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    except CongreveError:
        return {**found, "state": AWAY}
    return {**found, "state": ANSWERS}
