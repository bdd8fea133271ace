"""What ``congreve top`` shows: a broker's figures from its metrics port, with their rates."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import msgspec

from congreve.base.errors import CongreveError
from congreve.console.topic_kinds import KINDS, kind_of
from congreve.records.message.topics import is_system_group

PORT = 5557
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
    cluster: str = ""


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
    """What a screen shows: the topics and the groups, in the order of a column."""

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


def metrics_url(text: str) -> str:
    """The URL of a metrics port that a user wrote as HOST, HOST:PORT or URL.

    Raises CongreveError for what is none of them.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CongreveError(f"--url {text}: {error}: use HOST:PORT or http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CongreveError(f"--url {text}: use HOST:PORT or http://HOST:PORT")
    if port is None and "://" not in text:
        url = f"{url.rstrip('/')}:{PORT}"
    return url.rstrip("/")


def read_varz(url: str) -> Varz:
    """The broker's figures at a metrics_url(). Raises CongreveError if it does not serve them."""
    try:
        with urllib.request.urlopen(url + "/varz", timeout=TIMEOUT_S) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise CongreveError(f"{url}: HTTP status {error.code}: {NOT_METRICS}") from error
    except OSError as error:
        why = getattr(error, "reason", error)
        raise CongreveError(
            f"{url}: {getattr(why, 'strerror', None) or why}: is a broker running, with metricsPort"
            " in its broker.conf, and metricsAddress, which is 127.0.0.1 unless it says otherwise?"
        ) from error
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
        clock: Callable[[], float] = time.monotonic,
        *,
        has_system: bool = False,
    ) -> None:
        self._read = read
        self._has_system = has_system
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
        own = (after.broker, after.cluster)
        for row in after.topics:
            if not (self._has_system or kind_of(row.topic, own_names=own) == KINDS[0]):
                continue
            old = known.get(row.topic, row)
            rate, size = (row.end - old.end) / seconds, (row.put_size - old.put_size) / seconds
            rates.append((rate, row.end, TopicRates(row.topic, rate, size, row.stored)))
        rates.sort(key=lambda each: (-each[0], -each[1], each[2].topic))
        return [each for _, _, each in rates]

    def _groups(self, before: Varz, after: Varz, seconds: float) -> list[GroupRates]:
        known = {(row.group, row.topic): row for row in before.groups}
        found = []
        shown = [
            row
            for row in sorted(after.groups, key=lambda row: -row.lag)
            if self._has_system or not is_system_group(row.group)
        ]
        for row in shown:
            rate = (row.consumed - known.get((row.group, row.topic), row).consumed) / seconds
            found.append(GroupRates(row.group, row.topic, row.lag, row.lag_ms, rate, row.members))
        return found


SORTS: dict[str, tuple[str, bool]] = {
    "messages": ("messages_per_second", True),
    "size": ("bytes_per_second", True),
    "stored": ("stored", True),
    "lag": ("lag", True),
    "oldest": ("lag_ms", True),
    "consumed": ("consumed_per_second", True),
    "members": ("members", True),
    "group": ("group", False),
    "topic": ("topic", False),
}
"""The columns that a user may sort by: the field, and whether the greatest comes first."""


def sort(figures: Figures, column: str) -> None:
    """Sort the tables that have this column of SORTS; the other one stays as it is."""
    field, is_falling = SORTS[column]
    tables: tuple[list[Any], ...] = (figures.topics, figures.groups)
    for rows in tables:
        if rows and hasattr(rows[0], field):
            rows.sort(key=lambda row: getattr(row, field), reverse=is_falling)
