"""``congreve election``: the members of a group that elects its master, and requests for one."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from congreve.console.connection import access_option, connection, tls_option
from congreve.console.daemon.broker_conf import config_options, read_config
from congreve.console.option_types import FiniteRange, Pairs
from congreve.console.report import done, output_option, show

if TYPE_CHECKING:
    from congreve.broker.config import BrokerConfig
    from congreve.broker.election.coordinator import GroupState, Master, Seat
    from congreve.broker.election.operator import Operator
    from congreve.remoting.messages.admin_bodies import EpochEntryCache, HARuntimeInfo

T = TypeVar("T")
AWAY = "away"

timeout_option = click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds until the request is withdrawn.",
)
"""The option of requests to the group, as the argument `timeout`."""


@click.group(help="Show a group that elects its master, and choose one.")
def election() -> None:
    """Each subcommand reads a member's broker.conf: coordination service, name servers, group."""


@election.command(help="Show all members: role, epoch, lag, in-sync set, lease.")
@config_options
@tls_option
@access_option
@output_option
def status(
    config_file: Path | None, namesrv_addr: str | None, settings: Pairs, output: str
) -> None:
    """Print a row for each member that is registered or in the in-sync set."""
    config = _config_of_member(config_file, namesrv_addr, settings)
    state, rows = asyncio.run(_members(config, connection()))
    master = "none" if state.master is None else f"member {state.master.member}"
    title = f"{config.broker_name}: master {master}, epoch {state.epoch}"
    if state.request is not None:
        kind = "unclean " if state.request.unclean else ""
        title += f", {kind}election of member {state.request.member} asked by {state.request.by}"
    show(rows, output, title)


@election.command(help="Hand the group to another member that has all messages: for upgrades.")
@click.option("--broker-id", type=click.IntRange(1), help="The member; without it any other one.")
@timeout_option
@config_options
@output_option
def transfer(
    broker_id: int | None,
    timeout: float,
    config_file: Path | None,
    namesrv_addr: str | None,
    settings: Pairs,
    output: str,
) -> None:
    """Nothing is lost: first the master waits until its slaves have all messages."""
    config = _config_of_member(config_file, namesrv_addr, settings)
    _run(config, output, timeout, lambda operator: operator.transfer(broker_id))


@election.command(help="Make a member the master that lacks messages: they are lost.")
@click.option("--broker-id", type=click.IntRange(1), required=True, help="The member.")
@click.option("--unclean", is_flag=True, help="I know that acknowledged messages may be lost.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@timeout_option
@config_options
@tls_option
@access_option
@output_option
def elect(
    broker_id: int,
    unclean: bool,
    yes: bool,
    timeout: float,
    config_file: Path | None,
    namesrv_addr: str | None,
    settings: Pairs,
    output: str,
) -> None:
    """The last resort, when no member of the in-sync set comes back."""
    if not unclean:
        raise click.UsageError(
            "members elect a master by themselves as long as one of the in-sync set is running;"
            " `congreve election transfer` chooses among those. --unclean makes one the master"
            " that is not in the set"
        )
    config = _config_of_member(config_file, namesrv_addr, settings)
    state, rows = asyncio.run(_members(config, connection()))
    click.echo(_warning(config, state, rows, broker_id), err=True)
    if not yes:
        click.confirm(f"Make member {broker_id} the master?", abort=True, err=True)
    _run(config, output, timeout, lambda operator: operator.elect_unclean(broker_id))


@election.command(help="Give a member's number to another store that runs with it.")
@click.option("--broker-id", type=click.IntRange(1), required=True, help="The number.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@timeout_option
@config_options
@output_option
def replace(
    broker_id: int,
    yes: bool,
    timeout: float,
    config_file: Path | None,
    namesrv_addr: str | None,
    settings: Pairs,
    output: str,
) -> None:
    """The last store of the number is no member any more; the group loses nothing."""
    config = _config_of_member(config_file, namesrv_addr, settings)
    if not yes:
        click.confirm(
            f"Let the store that waits be member {broker_id}? The other one with this number is"
            " none any more",
            abort=True,
            err=True,
        )
    store = _with_operator(config, timeout, lambda operator: operator.replace(broker_id))
    text = f"member {broker_id} of {config.broker_name} is the store {store} from now on"
    done(output, text, broker=config.broker_name, member=broker_id, store=store)


def _warning(
    config: BrokerConfig, state: GroupState, rows: list[dict[str, Any]], member: int
) -> str:
    row = next((row for row in rows if row["member"] == member), None)
    has = "is not registered at the name servers: it has to run"
    if row is not None and row["role"] != AWAY:
        has = f"has epoch {row['epoch']}, and a log of {row['log_end']} bytes"
    others = sorted(state.in_sync - {member})
    lacks = f"what members {others} have acknowledged, and it lacks," if others else "what it lacks"
    return (
        f"WARNING: an unclean election loses acknowledged messages of {config.broker_name}.\n"
        f"Member {member} {has}; the in-sync set is {sorted(state.in_sync)} in epoch"
        f" {state.epoch}.\n"
        f"Permanently lost is {lacks} and what other members have more is cut from their logs when"
        " they return.\nFirst try to start a member of the in-sync set: then nothing is lost."
    )


def _run(
    config: BrokerConfig,
    output: str,
    timeout_s: float,
    ask: Callable[[Operator], Awaitable[Master]],
) -> None:
    master = _with_operator(config, timeout_s, ask)
    done(
        output,
        f"member {master.member} is the master of {config.broker_name} in epoch"
        f" {master.epoch}, at {master.address}",
        broker=config.broker_name,
        member=master.member,
        epoch=master.epoch,
        address=master.address,
    )


def _with_operator(
    config: BrokerConfig, timeout_s: float, ask: Callable[[Operator], Awaitable[T]]
) -> T:
    from congreve.broker.election.coordinators import coordinator_of
    from congreve.broker.election.operator import Operator

    async def run() -> T:
        coordinator = coordinator_of(config)
        operator = Operator(
            coordinator,
            f"{getpass.getuser()}@{socket.gethostname()}",
            ttl_s=config.election.ha_lease_seconds,
            timeout_s=timeout_s,
        )
        try:
            return await ask(operator)
        finally:
            await coordinator.close()

    return asyncio.run(run())


def _config_of_member(
    config_file: Path | None, namesrv_addr: str | None, settings: Pairs
) -> BrokerConfig:
    """The settings of a member of an elected group. Raises ConfigError, CongreveError."""
    from congreve.base.errors import CongreveError

    config = read_config(config_file, namesrv_addr, settings)
    if config.election.ha_mode == "classic":
        raise CongreveError("haMode=classic elects no master: name a member's broker.conf with -c")
    return config


async def _members(
    config: BrokerConfig, settings: dict[str, Any]
) -> tuple[GroupState, list[dict[str, Any]]]:
    """The group's state, and a row for each member."""
    from congreve.broker.election.coordinators import coordinator_of
    from congreve.client.admin import AdminClient
    from congreve.client.admin.reports import BrokerReports
    from congreve.client.transport.route import MASTER_ID

    coordinator = coordinator_of(config)
    try:
        state = await coordinator.read()
    finally:
        await coordinator.close()
    leader = MASTER_ID if state.master is None else state.master.member
    async with AdminClient(config.namesrv_addr, **settings) as admin:
        group = (await admin.cluster_info()).broker_addr_table.get(config.broker_name)
        addresses = {} if group is None else dict(group.broker_addrs)
        if MASTER_ID in addresses:
            # A registration of the last master counts for no member without a lease.
            addresses[leader] = addresses.pop(MASTER_ID)
        addresses.pop(MASTER_ID, None)
        reports = {number: BrokerReports(admin, address) for number, address in addresses.items()}
        epochs = {number: await _answer(each.epochs) for number, each in reports.items()}
        lags = await _answer(reports[leader].ha_status) if leader in reports else None
    return state, [
        _row(number, addresses.get(number, ""), state, epochs.get(number), lags)
        for number in sorted(addresses.keys() | state.in_sync | _waiting(state))
    ]


def _waiting(state: GroupState) -> set[int]:
    """The numbers with which a store runs that waits."""
    return {number for number, seat in state.seats.items() if _why(state, seat)}


def _why(state: GroupState, seat: Seat | None) -> str:
    """What a member's store waits for; nothing for most."""
    if seat is None:
        return ""
    if seat.claim is not None:
        kind = "the empty store" if seat.claim.is_empty else "the store"
        return f"{kind} {seat.claim.store} wants the number of {seat.store}"
    if state.master is None and seat.log_end is not None and seat.log_end.waits_in == state.epoch:
        return f"stopped uncleanly, log end {seat.log_end.end}: for all of the in-sync set"
    return ""


async def _answer(ask: Callable[[], Awaitable[T]]) -> T | None:
    """The answer; None if the broker does not answer."""
    from congreve.base.errors import CongreveError

    try:
        return await ask()
    except CongreveError:
        return None


def _row(
    number: int,
    address: str,
    state: GroupState,
    epochs: EpochEntryCache | None,
    lags: HARuntimeInfo | None,
) -> dict[str, Any]:
    leads = state.master is not None and state.master.member == number
    slaves = [] if lags is None else lags.ha_connection_info
    mine = next((each for each in slaves if each.broker_id == number), None)
    return {
        "member": number,
        "role": AWAY if epochs is None else "master" if leads else "slave",
        "address": address or None,
        "epoch": epochs.epoch_list[-1].epoch if epochs is not None and epochs.epoch_list else None,
        "log_end": None if epochs is None else epochs.max_offset,
        "lag_bytes": 0 if leads else None if mine is None else mine.diff,
        "lag_ms": 0 if leads else None if mine is None else mine.lag_millis,
        "in_sync": number in state.in_sync,
        "lease_ms": lags.lease_millis if leads and lags is not None else None,
        "waits": _why(state, state.seats.get(number)) or None,
    }
