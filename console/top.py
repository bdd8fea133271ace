"""``congreve top``: what a broker does now, on one screen."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from congreve.byte_size import readable_size
from congreve.errors import CongreveError

if TYPE_CHECKING:
    from rich.console import RenderableType

URL = "http://127.0.0.1:5557"
TIMEOUT_S = 10.0


class Topic(msgspec.Struct):
    """A topic of /varz; counts in messages and bytes."""

    topic: str
    end: int = 0
    stored: int = 0
    put_size: int = 0


class Group(msgspec.Struct):
    """A group on a topic of /varz; the lag in messages and in ms."""

    group: str
    topic: str
    members: int = 0
    consumed: int = 0
    lag: int = 0
    lag_ms: int = 0


class Varz(msgspec.Struct, rename="camel"):
    """The parts of /varz that the screen shows."""

    broker: str
    address: str
    role: str
    trouble: str | None
    waiting_answers: int
    waiting_pulls: int
    disk_bytes: int
    disk_free_bytes: int
    topics: list[Topic]
    groups: list[Group]
    runtime: dict[str, object]


@click.command(help="Show a broker's rates, lag and disk, live; the broker needs metricsPort.")
@click.option("--url", default=URL, show_default=True, help="The broker's metrics port.")
@click.option("--once", is_flag=True, help="Print one screen as plain text, and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 60),
    default=2.0,
    show_default=True,
    help="Seconds from one screen to the next.",
)
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=15, show_default=True, help="Rows of a table."
)
def top(url: str, once: bool, interval: float, rows: int) -> None:
    """Request /varz repeatedly until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    screens = Screens(lambda: read_varz(url), rows)
    time.sleep(min(interval, 1.0) if once else 0.2)
    if once:
        Console().print(screens.next())
        return
    with Live(screens.next(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(screens.next(), refresh=True)
        except KeyboardInterrupt:
            return


def read_varz(url: str) -> Varz:
    """The broker's figures. Raises CongreveError if the URL does not serve them."""
    if not url.startswith(("http://", "https://")):
        raise CongreveError(f"--url {url}: use http://HOST:PORT")
    try:
        with urllib.request.urlopen(url.rstrip("/") + "/varz", timeout=TIMEOUT_S) as answer:
            return parse_varz(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read(200).decode(errors="replace").strip()
        raise CongreveError(f"{url}: {text or error.reason}") from error
    except OSError as error:
        why = getattr(error, "reason", error)
        raise CongreveError(f"{url}: {why}: is metricsPort set in broker.conf?") from error


def parse_varz(text: bytes) -> Varz:
    """Parse the answer of /varz. Raises CongreveError if it has another form."""
    try:
        return msgspec.json.decode(text, type=Varz)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CongreveError(f"this is not a broker's metrics port: {error}") from error


class Screens:
    """Screens of one broker, with rates since the previous screen; each calls `read()` again."""

    def __init__(
        self,
        read: Callable[[], Varz],
        rows: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._rows = rows
        self._clock = clock
        self._before, self._at = read(), clock()

    def next(self) -> RenderableType:
        """The screen of the figures now."""
        from rich.console import Group as Stack

        before, after = self._before, self._read()
        now = self._clock()
        seconds = max(now - self._at, 1e-3)
        self._before, self._at = after, now
        return Stack(
            _head(after, _rate(before, after, seconds)),
            self._topics(before, after, seconds),
            self._groups(before, after, seconds),
        )

    def _topics(self, before: Varz, after: Varz, seconds: float) -> RenderableType:
        known = {row.topic: row for row in before.topics}
        rows = []
        for row in after.topics:
            old = known.get(row.topic, row)
            rate, size = (row.end - old.end) / seconds, (row.put_size - old.put_size) / seconds
            rows.append((rate, row.end, row.topic, size, row.stored))
        rows.sort(reverse=True)
        shown = [
            (topic, f"{rate:,.0f}", f"{readable_size(size)}/s", f"{stored:,}")
            for rate, _, topic, size, stored in rows[: self._rows]
        ]
        return _table(("topic", "messages/s", "size", "stored"), shown)

    def _groups(self, before: Varz, after: Varz, seconds: float) -> RenderableType:
        known = {(row.group, row.topic): row for row in before.groups}
        shown = []
        for row in sorted(after.groups, key=lambda row: -row.lag)[: self._rows]:
            old = known.get((row.group, row.topic), row)
            rate = (row.consumed - old.consumed) / seconds
            shown.append(
                (
                    row.group,
                    row.topic,
                    f"{row.lag:,}",
                    f"{row.lag_ms / 1000:,.1f} s",
                    f"{rate:,.0f}",
                    str(row.members),
                )
            )
        return _table(("group", "topic", "lag", "lag", "consumed/s", "members"), shown)


def _rate(before: Varz, after: Varz, seconds: float) -> float:
    first, last = (sum(topic.end for topic in varz.topics) for varz in (before, after))
    return (last - first) / seconds


def _head(varz: Varz, rate: float) -> RenderableType:
    from rich.text import Text

    free = varz.disk_free_bytes / varz.disk_bytes if varz.disk_bytes else 0.0
    state = "ready" if varz.trouble is None else f"NOT READY: {varz.trouble}"
    lag = sum(group.lag for group in varz.groups)
    runtime = varz.runtime
    return Text(
        f"{varz.broker} {varz.address} {varz.role}: {state}\n"
        f"{rate:,.0f} messages/s in, p99 of sends {runtime.get('putLatency99')} ms,"
        f" {varz.waiting_answers} wait for the disk, {varz.waiting_pulls} pulls wait\n"
        f"lag {lag:,} messages, disk {readable_size(varz.disk_free_bytes)} free ({free:.0%}),"
        f" backend {runtime.get('ioBackend')}, {runtime.get('connections')} connections\n"
    )


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2))
    words = ("topic", "group")
    for head in heads:
        table.add_column(head, justify="left" if head in words else "right", no_wrap=True)
    for row in rows:
        # As Text, because names that clients choose must not be parsed as markup.
        table.add_row(*(Text(cell) for cell in row))
    return table
