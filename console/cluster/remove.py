"""``congreve cluster remove``: a drained broker stops, and no name server has it."""

from __future__ import annotations

import asyncio

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.draining import DrainedBroker, Sends
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerNotFoundError
from congreve.console.cluster.drain import (
    LOOK_S,
    Progress,
    apply_option,
    remaining_text,
    timeout_option,
)
from congreve.console.cluster.machine import MachineCommand
from congreve.console.connection import ask, cluster_options
from congreve.console.report import Rows, output_option, show
from congreve.remoting.errors import RemotingError


@click.command(help="Stop a drained broker and its slaves, and wait until no name server has them.")
@click.argument("broker")
@click.option(
    "--stop",
    metavar="COMMAND",
    help="Stops one: $BROKER, $BROKER_ID, $HOST, $PORT. Without it, it waits until you did.",
)
@click.option(
    "--ignore", "ignored", multiple=True, metavar="GROUP", help="It may have a lag; repeatable."
)
@click.option("--force", is_flag=True, help="Also if something remains, or it does not answer.")
@apply_option
@timeout_option
@cluster_options
@output_option
def remove(
    broker: str,
    stop: str | None,
    ignored: tuple[str, ...],
    force: bool,
    is_applied: bool,
    timeout: float,
    namesrv: str,
    output: str,
) -> None:
    """Its store stays as it is: started again, the broker is back."""

    async def question(admin: AdminClient) -> Rows:
        drained = DrainedBroker(admin, broker)
        places = await drained.places()
        if not places:
            click.echo(f"no name server has {broker}", err=True)
        elif not force:
            await _check_drained(drained, ignored)
        if is_applied and places:
            try:
                async with asyncio.timeout(timeout):
                    await _stop(admin, drained, places, stop)
            except TimeoutError:
                raise CongreveError(
                    f"{broker} has not stopped after {timeout:.0f} s: stop it, and repeat"
                ) from None
        state = "removed" if is_applied else "to remove"
        return [
            {"broker": broker, "id": number, "address": address, "state": state}
            for number, address in places
        ]

    title = None if is_applied else "not changed: use --apply"
    show(ask(namesrv, question), output, title)


async def _check_drained(drained: DrainedBroker, ignored: tuple[str, ...]) -> None:
    """Raises CongreveError unless nothing is lost without the broker."""
    name = drained.name
    try:
        sends = await drained.sends()
        left = await drained.remaining(ignored, with_new_groups=True)
    except BrokerNotFoundError:
        return  # slaves without a master: it has stopped already
    except RemotingError as error:
        if await drained.is_left():
            return  # it was drained, and is stopped already
        raise CongreveError(
            f"what {name} still has is unknown, --force removes it: {error}"
        ) from error
    if sends is Sends.OPEN or left:
        has = remaining_text(left) if left else "producers"
        raise CongreveError(
            f"{name} still has {has}: `congreve cluster drain {name} --apply` first"
        )


async def _stop(
    admin: AdminClient, drained: DrainedBroker, places: list[tuple[int, str]], command: str | None
) -> None:
    progress = Progress()
    for number, address in reversed(places):  # slaves first
        if await _answers(admin, address) and command is not None:
            progress(f"stops {drained.name} {number} at {address}")
            await MachineCommand(command).run(drained.name, number, address)
        while await _answers(admin, address):
            progress(f"waits until {drained.name} {number} at {address} has stopped")
            await asyncio.sleep(LOOK_S)
    while left := await drained.places():
        for number, address in left:
            if await _answers(admin, address):
                raise CongreveError(f"{address} is running again: stop it for good, and repeat")
            await drained.unregister(number, address)


async def _answers(admin: AdminClient, address: str) -> bool:
    try:
        await BrokerReports(admin, address).runtime()
    except RemotingError:
        return False
    return True
