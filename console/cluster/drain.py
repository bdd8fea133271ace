"""``congreve cluster drain``: no new messages for a broker, and what it still has goes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.client.admin.draining import DrainedBroker, Remaining, Sends
from congreve.client.admin.reports import BrokerReports
from congreve.client.transport.route import MASTER_ID, PERM_WRITE
from congreve.console.connection import ask, cluster_options
from congreve.console.option_types import FiniteRange
from congreve.console.report import Rows, done, output_option, show
from congreve.console.topic_kinds import KINDS, kind_of

LOOK_S = 0.5
QUIET_S = 5.0
"""How long no message came before a broker counts as left by its producers."""
SHOWN = 5
"""Names in a sentence."""

route_poll_option = click.option(
    "--route-poll",
    type=FiniteRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds between two polls of routes by clients (pollNameServerInterval).",
)
"""After how many seconds all producers have new routes, as the argument `route_poll`."""
apply_option = click.option(
    "--apply", "is_applied", is_flag=True, help="Do it; without it only say what would be done."
)
"""Whether a verb changes anything, as the argument `is_applied`."""
timeout_option = click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Seconds until it stops to wait; repeat it to continue.",
)
"""How long a verb waits, as the argument `timeout`."""


class Progress:
    """Says on stderr what has changed since the last line."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        """Print the line, unless it is the last one."""
        if text != self._last:
            click.echo(text, err=True)
        self._last = text


@click.command(help="Send producers to other brokers, and wait until this one has nothing left.")
@click.argument("broker")
@click.option("--undo", is_flag=True, help="Let producers send to it again.")
@click.option(
    "--ignore", "ignored", multiple=True, metavar="GROUP", help="Do not wait for it; repeatable."
)
@click.option("--force", is_flag=True, help="Also if a topic has no other broker.")
@apply_option
@route_poll_option
@timeout_option
@cluster_options
@output_option
@click.pass_context
def drain(
    context: click.Context,
    broker: str,
    undo: bool,
    ignored: tuple[str, ...],
    force: bool,
    is_applied: bool,
    route_poll: float,
    timeout: float,
    namesrv: str,
    output: str,
) -> None:
    """Exit code 0: it is drained, or its sends are open again; 1: something remains."""

    async def undone(admin: AdminClient) -> Sends:
        drained = DrainedBroker(admin, broker)
        await drained.allow_sends()
        return await drained.sends()

    async def preview(admin: AdminClient) -> tuple[Sends, Rows]:
        drained = DrainedBroker(admin, broker)
        if not undo:
            _warn(broker, await lone_topics(admin, broker))
        left = await drained.remaining(ignored, with_new_groups=True)
        return await drained.sends(), _rows(broker, left)

    async def wait(admin: AdminClient) -> list[Remaining]:
        if not force:
            check_others(broker, await lone_topics(admin, broker))
        drained = DrainedBroker(admin, broker)
        try:
            async with asyncio.timeout(timeout):
                await left_by_producers(drained, route_poll, Progress())
                await _emptied(drained, ignored, Progress())
        except TimeoutError:
            return await drained.remaining(ignored, with_new_groups=True)
        return []

    if not is_applied:
        sends, rows = ask(namesrv, preview)
        does = "lets producers send to it again" if undo else "sends producers to other brokers"
        title = f"not changed: --apply {does}. {broker}: sends {sends}; remaining"
        show(rows, output, title)
    elif undo:
        sends = ask(namesrv, undone)
        done(output, f"{broker}: sends {sends}", broker=broker, sends=str(sends))
    elif left := ask(namesrv, wait):
        show(_rows(broker, left), output, f"{broker} after {timeout:.0f} s; remaining")
        click.echo("producers stay away: repeat it, or use --undo --apply", err=True)
        context.exit(1)
    else:
        done(output, f"{broker} is drained", broker=broker, sends="draining", remaining=0)


async def left_by_producers(
    drained: DrainedBroker, route_poll_s: float, progress: Progress
) -> None:
    """Send producers to other brokers; return when all have polled their routes, and no message has
    come for some seconds."""
    begun = quiet = time.monotonic()
    sent = -1
    while True:
        is_stopped = await drained.stop_sends()
        before, sent = sent, await drained.sent()
        now = time.monotonic()
        if not is_stopped:
            begun = now
        if sent != before:
            quiet = now
        wait_s = max(begun + route_poll_s, quiet + min(QUIET_S, route_poll_s)) - now
        if wait_s <= 0:
            return
        came = f"; messages that just came: {sent - before}" if sent > before >= 0 else ""
        progress(f"{drained.name}: waits for producers to poll their routes{came}")
        await asyncio.sleep(min(LOOK_S, wait_s))


async def _emptied(drained: DrainedBroker, ignored: Collection[str], progress: Progress) -> None:
    while True:
        await drained.stop_sends()
        left = await drained.remaining(ignored)
        if not left:
            left = await drained.remaining(ignored, with_new_groups=True)
            if not left:
                return
        progress(f"{drained.name}: {remaining_text(left)} remain")
        await asyncio.sleep(LOOK_S)


async def lone_topics(admin: AdminClient, broker: str, opened: Collection[str] = ()) -> list[str]:
    """The users' topics to which no other broker with open sends lets producers write. The sends
    of those in `opened` will be open."""
    info = await admin.cluster_info()
    masters = {
        name: group.broker_addrs[MASTER_ID]
        for name, group in info.broker_addr_table.items()
        if MASTER_ID in group.broker_addrs
    }
    own = info.cluster_addr_table.keys() | masters.keys()
    if broker not in masters:
        await DrainedBroker(admin, broker).addresses()  # raises
    topics = {
        topic
        for topic, of in (await BrokerReports(admin, masters.pop(broker)).topics()).items()
        if of.perm & PERM_WRITE and kind_of(topic, of.perm, own) == KINDS[0]
    }
    for name, address in masters.items():
        if not topics:
            break
        if name in opened or await DrainedBroker(admin, name).sends() is Sends.OPEN:
            found = await BrokerReports(admin, address).topics()
            topics -= {topic for topic, of in found.items() if of.perm & PERM_WRITE}
    return sorted(topics)


def check_others(broker: str, lone: list[str]) -> None:
    """Raises CongreveError if there are lone topics."""
    if lone:
        raise CongreveError(
            f"producers of {_names(lone)} have no other broker than {broker}:"
            f" `congreve cluster spread` adds some, --force stops them"
        )


def _warn(broker: str, lone: list[str]) -> None:
    if lone:
        click.echo(f"producers of {_names(lone)} have no other broker than {broker}", err=True)


def _names(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN)


def remaining_text(left: list[Remaining]) -> str:
    """The kinds and their counts, in a sentence."""
    counts: dict[str, int] = {}
    for each in left:
        counts[each.kind] = counts.get(each.kind, 0) + each.messages
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _rows(broker: str, left: list[Remaining]) -> Rows:
    return [
        {
            "broker": broker,
            "kind": each.kind,
            "group": each.group or None,
            "topic": each.topic or None,
            "messages": each.messages,
        }
        for each in left
    ]
