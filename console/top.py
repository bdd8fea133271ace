"""``congreve top``: the current figures of a broker on one screen."""

from __future__ import annotations

import http.client
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from congreve.base.byte_size import readable_size
from congreve.base.errors import CongreveError
from congreve.console.option_types import FiniteRange
from congreve.console.report import is_terminal, output_option, print_json, shown_age, system_option
from congreve.console.topic_kinds import KINDS, kind_of
from congreve.records.message.topics import is_system_group

if TYPE_CHECKING:
    from rich.console import RenderableType

URL = "http://127.0.0.1:5557"
TIMEOUT_S = 10.0
NOT_METRICS = "this is not a broker's metrics port"


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


class TopicRates(msgspec.Struct):
    """A topic with its rates a second."""

    topic: str
    messages_per_second: float
    bytes_per_second: float
    stored: int


class GroupRates(msgspec.Struct):
    """A group on a topic: its lag in messages and in ms, and what it consumes a second."""

    group: str
    topic: str
    lag: int
    lag_ms: int
    consumed_per_second: float
    members: int


class Figures(msgspec.Struct):
    """What one screen shows: the busiest topics and the groups with the greatest lag."""

    broker: str
    address: str
    role: str
    trouble: str | None
    messages_per_second: float
    put_latency99_ms: object
    waiting_answers: int
    waiting_pulls: int
    lag: int
    disk_bytes: int
    disk_free_bytes: int
    io_backend: object
    connections: object
    topics: list[TopicRates]
    groups: list[GroupRates]


@click.command(
    help="Show a broker's rates, lag and disk, live. The broker needs metricsPort, which"
    " `congreve run` has."
)
@click.option("--url", default=URL, show_default=True, help="The broker's metrics port.")
@click.option("--once", is_flag=True, help="Print one screen as plain text, and exit.")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@click.option(
    "--interval",
    type=FiniteRange(0.2, 60),
    default=2.0,
    show_default=True,
    help="Seconds from one screen to the next.",
)
@click.option(
    "--rows", type=click.IntRange(1, 1000), default=15, show_default=True, help="Rows of a table."
)
@system_option
@output_option
def top(
    url: str,
    once: bool,
    as_json: bool,
    interval: float,
    rows: int,
    has_system: bool,
    output: str,
) -> None:
    """Request /varz repeatedly until Ctrl-C. JSON and a pipe get one screen."""
    as_json = as_json or output == "json"
    once = once or not is_terminal()
    readings = Readings(lambda: read_varz(url), rows, has_system=has_system)
    time.sleep(min(interval, 1.0) if once or as_json else 0.2)
    if as_json:
        print_json(readings.next())
        return
    from rich.console import Console
    from rich.live import Live

    if once:
        Console().print(screen(readings.next()))
        return
    with Live(screen(readings.next()), screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(screen(readings.next()), refresh=True)
        except KeyboardInterrupt:
            return


def read_varz(url: str) -> Varz:
    """The broker's figures. Raises CongreveError if the URL does not serve them."""
    if not url.startswith(("http://", "https://")):
        raise CongreveError(f"--url {url}: use http://HOST:PORT")
    try:
        with urllib.request.urlopen(url.rstrip("/") + "/varz", timeout=TIMEOUT_S) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise CongreveError(f"{url}: HTTP status {error.code}: {NOT_METRICS}") from error
    except OSError as error:
        why = getattr(error, "reason", error)
        raise CongreveError(f"{url}: {why}: is metricsPort set in broker.conf?") from error
    except http.client.HTTPException as error:
        raise CongreveError(f"{url}: no HTTP: {NOT_METRICS}") from error
    try:
        return parse_varz(text)
    except CongreveError as error:
        raise CongreveError(f"{url}: {error}") from error


def parse_varz(text: bytes) -> Varz:
    """Parse the answer of /varz. Raises CongreveError if it has another form."""
    try:
        return msgspec.json.decode(text, type=Varz)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CongreveError(f"{NOT_METRICS} ({error})") from error


class Readings:
    """Figures of one broker, with rates since the previous reading; each calls `read()` again."""

    def __init__(
        self,
        read: Callable[[], Varz],
        rows: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_system: bool = False,
    ) -> None:
        self._read = read
        self._has_system = has_system
        self._rows = rows
        self._clock = clock
        self._before, self._at = read(), clock()

    def next(self) -> Figures:
        """The figures now."""
        before, after = self._before, self._read()
        now = self._clock()
        seconds = max(now - self._at, 1e-3)
        self._before, self._at = after, now
        first, last = (sum(topic.end for topic in varz.topics) for varz in (before, after))
        runtime = after.runtime
        return Figures(
            broker=after.broker,
            address=after.address,
            role=after.role,
            trouble=after.trouble,
            messages_per_second=(last - first) / seconds,
            put_latency99_ms=runtime.get("putLatency99"),
            waiting_answers=after.waiting_answers,
            waiting_pulls=after.waiting_pulls,
            lag=sum(group.lag for group in after.groups),
            disk_bytes=after.disk_bytes,
            disk_free_bytes=after.disk_free_bytes,
            io_backend=runtime.get("ioBackend"),
            connections=runtime.get("connections"),
            topics=self._topics(before, after, seconds),
            groups=self._groups(before, after, seconds),
        )

    def _topics(self, before: Varz, after: Varz, seconds: float) -> list[TopicRates]:
        known = {row.topic: row for row in before.topics}
        rates = []
        for row in after.topics:
            if not (self._has_system or kind_of(row.topic) == KINDS[0]):
                continue
            old = known.get(row.topic, row)
            rate, size = (row.end - old.end) / seconds, (row.put_size - old.put_size) / seconds
            rates.append((rate, row.end, TopicRates(row.topic, rate, size, row.stored)))
        rates.sort(key=lambda each: (-each[0], -each[1], each[2].topic))
        return [each for _, _, each in rates[: self._rows]]

    def _groups(self, before: Varz, after: Varz, seconds: float) -> list[GroupRates]:
        known = {(row.group, row.topic): row for row in before.groups}
        found = []
        shown = [
            row
            for row in sorted(after.groups, key=lambda row: -row.lag)
            if self._has_system or not is_system_group(row.group)
        ]
        for row in shown[: self._rows]:
            rate = (row.consumed - known.get((row.group, row.topic), row).consumed) / seconds
            found.append(GroupRates(row.group, row.topic, row.lag, row.lag_ms, rate, row.members))
        return found


def screen(figures: Figures) -> RenderableType:
    """The figures as a head and two tables."""
    from rich.console import Group as Stack

    topics = [
        (
            row.topic,
            f"{row.messages_per_second:,.0f}",
            f"{readable_size(row.bytes_per_second)}/s",
            f"{row.stored:,}",
        )
        for row in figures.topics
    ]
    groups = [
        (
            row.group,
            row.topic,
            f"{row.lag:,}",
            shown_age(row.lag_ms),
            f"{row.consumed_per_second:,.0f}",
            str(row.members),
        )
        for row in figures.groups
    ]
    return Stack(
        _head(figures),
        _table(("topic", "messages/s", "size", "stored"), topics),
        _table(("group", "topic", "lag", "oldest", "consumed/s", "members"), groups),
    )


def _head(figures: Figures) -> RenderableType:
    from rich.text import Text

    size, free = figures.disk_bytes, figures.disk_free_bytes
    used = math.ceil(100 * (size - free) / size) if size else 0  # as df rounds
    state = "ready" if figures.trouble is None else f"NOT READY: {figures.trouble}"
    return Text(
        f"{figures.broker} {figures.address} {figures.role}: {state}\n"
        f"{figures.messages_per_second:,.0f} messages/s in, p99 of sends"
        f" {figures.put_latency99_ms} ms, {figures.waiting_answers} wait for the disk,"
        f" {figures.waiting_pulls} pulls wait\n"
        f"lag {figures.lag:,} messages, disk {used}% used,"
        f" {readable_size(free)} free, backend {figures.io_backend},"
        f" {figures.connections} connections\n"
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
