"""``congreve cluster roll``: restarts one broker after the other, for an upgrade."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.draining import DrainedBroker
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerError, ClientError
from congreve.client.transport.route import MASTER_ID
from congreve.console.cluster.brokers import chosen_cluster, cluster_option
from congreve.console.cluster.drain import (
    LOOK_S,
    Progress,
    apply_option,
    check_others,
    left_by_producers,
    lone_topics,
    route_poll_option,
)
from congreve.console.cluster.machine import MachineCommand
from congreve.console.connection import ask, cluster_options
from congreve.console.option_types import FiniteRange, Time
from congreve.console.report import Rows, output_option, show
from congreve.remoting.errors import RemotingError
from congreve.remoting.messages.codes import ResponseCode

DRAINS = "drain, restart, open"
TRANSFERS = "transfer, restart"
"""What happens to a master."""
QUIET_MS = 5_000
"""A broker that hands clients' requests on to the new master restarts when there has been none for
so long."""


class Place(NamedTuple):
    """A broker of a name."""

    broker: str
    id: int
    address: str


@click.command(help="Restart brokers one after the other, slaves first, without a failed send.")
@click.argument("brokers", nargs=-1, metavar="[BROKER]...")
@click.option(
    "--restart",
    required=True,
    metavar="COMMAND",
    help="Restarts one: $BROKER, $BROKER_ID, $HOST, $PORT.",
)
@click.option(
    "--transfer",
    metavar="COMMAND",
    help="Hands an elected group to another member; with the same variables.",
)
@click.option("--since", type=Time(), help="Leave out those that have started after this time.")
@click.option("--force", is_flag=True, help="Also if a topic has no other broker.")
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds for each step of each broker.",
)
@apply_option
@route_poll_option
@cluster_option
@cluster_options
@output_option
def roll(
    brokers: tuple[str, ...],
    restart: str,
    transfer: str | None,
    since: int | None,
    force: bool,
    timeout: float,
    is_applied: bool,
    route_poll: float,
    cluster: str | None,
    namesrv: str,
    output: str,
) -> None:
    """All brokers of the cluster, or these; each one takes messages again before the next."""

    async def question(admin: AdminClient) -> Rows:
        names = brokers or sorted(await admin.masters(await chosen_cluster(admin, cluster)))
        commands = MachineCommand(restart), MachineCommand(transfer) if transfer else None
        rolling = _Roll(admin, *commands, since or 0, route_poll, timeout)
        for name in names if is_applied else ():
            await rolling.due(name)  # one that restarts is waited for
        rows = await rolling.plan(names)
        if is_applied:
            drained = [row["broker"] for row in rows if row["does"] == DRAINS]
            for name in () if force else drained:
                check_others(name, await lone_topics(admin, name, opened=names))
            for name in names:
                await rolling.run(name)
        return rows

    begun_ms = since or int(time.time() * 1000)
    title = None if is_applied else "not changed: use --apply"
    try:
        rows = ask(namesrv, question)
    except (CongreveError, KeyboardInterrupt):
        if is_applied:
            click.echo(f"to go on, repeat it with --since {begun_ms}", err=True)
        raise
    show(rows, output, title)


class _Roll:
    """The steps for one broker name after the other; each of them may be repeated."""

    def __init__(
        self,
        admin: AdminClient,
        command: MachineCommand,
        transfer: MachineCommand | None,
        since_ms: int,
        route_poll_s: float,
        timeout_s: float,
    ) -> None:
        self._admin = admin
        self._command = command
        self._transfer = transfer
        self._since_ms = since_ms
        self._route_poll_s = route_poll_s
        self._timeout_s = timeout_s
        self._progress = Progress()
        self._drained: set[str] = set()

    async def plan(self, names: Sequence[str]) -> Rows:
        """What happens to each broker, in order."""
        rows: list[dict[str, Any]] = []
        for name in names:
            for place in await self._places(name):
                does = "restart"
                if place.id == MASTER_ID:
                    does = TRANSFERS if await self._transfers(place.address) else DRAINS
                if not await self._is_due(place):
                    does = "none: it has started since"
                rows.append({**place._asdict(), "does": does})
        return rows

    async def run(self, name: str) -> None:
        """Restart all brokers of a name that have not started since; then producers send to it.

        Raises CongreveError when a step fails or takes too long.
        """
        drained = DrainedBroker(self._admin, name)
        try:
            await self._restart_all(drained)
            await drained.allow_sends()
        except (CongreveError, asyncio.CancelledError):
            if name in self._drained:
                opens = f"congreve cluster drain {name} --undo --apply"
                self._progress(f"{name} stays drained: repeat the roll, or `{opens}` opens it")
            raise
        self._progress(f"{name}: sends {await drained.sends()}")

    async def _restart_all(self, drained: DrainedBroker) -> None:
        name = drained.name
        done: set[str] = set()
        while due := [each for each in await self.due(name) if each.address not in done]:
            place = due[0]
            await self._all_in_sync(drained)
            if place.id == MASTER_ID and await self._transfers(place.address):
                await self._hand_over(place)
                continue
            if place.id == MASTER_ID:
                self._drained.add(name)
                async with self._step(f"producers still send to {name}"):
                    await left_by_producers(drained, self._route_poll_s, self._progress)
            await self._restart(place)
            done.add(place.address)
        await self._all_in_sync(drained)

    async def _transfers(self, address: str) -> bool:
        """Whether another member becomes the master before this one restarts."""
        return self._transfer is not None and "haMember" in await self._figures(address)

    async def _hand_over(self, place: Place) -> None:
        """Make another member the master; both are registered in their new roles then."""
        assert self._transfer is not None
        self._progress(f"{place.broker}: another member becomes the master")
        await self._run(self._transfer, place)

        async def follows() -> bool:
            addresses = await DrainedBroker(self._admin, place.broker).addresses()
            slaves = {at for number, at in addresses.items() if number != MASTER_ID}
            return MASTER_ID in addresses and place.address in slaves

        await self._until(follows, f"{place.address} is not a slave of {place.broker}")

    async def _left_by_clients(self, place: Place) -> None:
        """Wait until no client sends to a broker that was the master."""
        if "haHandedOn" not in await self._figures(place.address):
            return
        self._progress(f"{place.broker}: clients find the new master")
        await asyncio.sleep(self._route_poll_s)

        async def is_quiet() -> bool:
            figures = await self._figures(place.address)
            return int(figures.get("haQuietMillis", QUIET_MS)) >= QUIET_MS

        await self._until(is_quiet, f"clients send to {place.address}, which is no master now,")

    async def _figures(self, address: str) -> Mapping[str, str]:
        return await BrokerReports(self._admin, address).runtime()

    async def _restart(self, place: Place) -> None:
        name, number, address = place
        await self._left_by_clients(place)
        before = await self._booted_ms(address)
        self._progress(f"{name} {number} at {address}: restarts")
        await self._run(self._command, place)

        async def is_back() -> bool:
            if await self._booted_ms(address) == before:
                return False
            return address in {at for _, at in await DrainedBroker(self._admin, name).common()}

        await self._until(is_back, f"{name} {number} at {address} has not restarted")
        self._progress(f"{name} {number} at {address}: registered")

    async def _run(self, command: MachineCommand, place: Place) -> None:
        does = f"the command for {place.broker} {place.id} at {place.address}"
        async with self._step(f"{does} has not ended, which it must while the broker runs,"):
            await command.run(*place)

    async def _all_in_sync(self, drained: DrainedBroker) -> None:
        async def is_so() -> bool:
            return await slaves_behind(self._admin, await drained.addresses()) == 0

        await self._until(is_so, f"{drained.name} has slaves that are not in sync")

    async def due(self, name: str) -> list[Place]:
        """The brokers of a name that have not started since, slaves first. A broker that does not
        answer is waited for."""
        found: list[Place] = []

        async def answer() -> bool:
            places = await self._places(name)
            found[:] = [each for each in places if await self._is_due(each)]
            return True

        await self._until(answer, f"{name} has no master, or a broker that does not answer,")
        return found

    async def _places(self, name: str) -> list[Place]:
        """Slaves first, the master last."""
        addresses = await DrainedBroker(self._admin, name).addresses()
        return [Place(name, number, at) for number, at in sorted(addresses.items(), reverse=True)]

    async def _is_due(self, place: Place) -> bool:
        booted_ms = await self._booted_ms(place.address)
        return not self._since_ms or booted_ms <= self._since_ms

    async def _booted_ms(self, address: str) -> int:
        return int((await self._figures(address))["bootTimestamp"])

    async def _until(self, condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        """Wait for it; while a broker does not answer, refuses as it starts, or there is no master,
        it is not so."""
        async with self._step(otherwise):
            while True:
                with suppress(RemotingError, ClientError):
                    if await condition():
                        return
                self._progress(f"waits: {otherwise}")
                await asyncio.sleep(LOOK_S)

    @asynccontextmanager
    async def _step(self, otherwise: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            raise CongreveError(f"{otherwise} after {self._timeout_s:.0f} s") from None


async def slaves_behind(admin: AdminClient, addresses: Mapping[int, str]) -> int:
    """How many registered slaves of a master are not in sync. RocketMQ 4.9 does not say that: there
    the ends of the logs count."""
    master = BrokerReports(admin, addresses[MASTER_ID])
    slaves = [at for number, at in addresses.items() if number != MASTER_ID]
    try:
        found = (await master.ha_status()).ha_connection_info
        return len(slaves) - sum(slave.in_sync for slave in found)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
    end = await _log_end(master)
    return sum([await _log_end(BrokerReports(admin, at)) < end for at in slaves])


async def _log_end(reports: BrokerReports) -> int:
    return int((await reports.runtime())["commitLogMaxOffset"])
