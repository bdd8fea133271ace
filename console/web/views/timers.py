"""Messages that wait for their time, and half messages that wait for the end of a transaction."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from congreve.base.errors import CongreveError
from congreve.client.admin.lookup import Part
from congreve.client.errors import BrokerError
from congreve.client.subscription import Subscription
from congreve.console.web.cluster import Cluster, number
from congreve.console.web.pages import Visit
from congreve.console.web.shown_message import ShownMessage, shown
from congreve.records.filter.kinds import ALL, TAG
from congreve.records.message.topics import (
    SCHEDULE_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.remoting.messages.admin_bodies import DelayedCounts, DelayedMessages
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import ResponseCode

LEVEL_FIGURE = "scheduleMessageOffset_"
HALF_SHOWN = 50
UPCOMING = 100
HOUR_MS = 3_600_000
BARS_MAX = 48


class Level(msgspec.Struct, order=True):
    """A delay level of all brokers: `waiting` messages, which come `delay` after they were sent."""

    level: int
    delay: str
    waiting: int


class Halves(msgspec.Struct):
    """The half messages of a broker from its first open one on; some of them may have ended."""

    broker_name: str
    count: int
    shown: list[ShownMessage]


class Bar(msgspec.Struct, frozen=True):
    """The messages that are due in a span from `begin_ms` on; `height` is 1 for the largest."""

    begin_ms: int
    count: int
    height: float


class Histogram(msgspec.Struct):
    """What is due, in hours or days; `is_complete` is false where a broker has more."""

    bars: list[Bar]
    span_ms: int
    total: int
    is_complete: bool


async def timers(visit: Visit) -> Response:
    """Pending messages by due time, delay levels and half messages."""
    topic = visit.query("topic")
    halves, due = await asyncio.gather(read_halves(visit), _due(visit.cluster, topic))
    levels = await read_levels(visit.cluster, None if due is None else due[0])
    return visit.page(
        "timers.html",
        levels=levels,
        most=max((each.waiting for each in levels), default=0),
        waiting=sum(each.waiting for each in levels),
        halves=halves,
        half_count=sum(each.count for each in halves),
        schedule_topic=SCHEDULE_TOPIC,
        half_topic=TRANS_HALF_TOPIC,
        half_shown=HALF_SHOWN,
        due=None if due is None else histogram(due[0]),
        upcoming=None if due is None else due[1],
        topic=topic,
        now_ms=int(time.time() * 1000),
    )


async def recall(visit: Visit) -> Response:
    """Take a message back that is not delivered yet."""
    await visit.cluster.admin.timers.recall(visit.field("handle"))
    what = f"{visit.field('message_id')[:100]} to {visit.field('topic')[:200]}"
    return visit.done("took back message", what, "/timers")


async def _due(cluster: Cluster, topic: str) -> tuple[DelayedCounts, DelayedMessages] | None:
    """What is due by hour and the next messages, None if the brokers cannot tell."""
    admin = cluster.admin.timers
    try:
        counts, messages = await asyncio.gather(
            admin.count_by_hour(), admin.upcoming(count=UPCOMING, topic=topic or None)
        )
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        raise
    return counts, messages


def histogram(counts: DelayedCounts) -> Histogram:
    """Bars of hours, or of days if there are more than BARS_MAX hours; the last has the rest."""
    by_hour: Counter[int] = Counter()
    for row in counts.counts:
        by_hour[row.hour_ms] += row.count
    if not by_hour:
        return Histogram([], HOUR_MS, 0, counts.is_complete)
    first = min(by_hour)
    hours = (max(by_hour) - first) // HOUR_MS + 1
    span_ms = HOUR_MS if hours <= BARS_MAX else 24 * HOUR_MS
    numbers = [0] * min(-(-hours * HOUR_MS // span_ms), BARS_MAX)
    for hour_ms, count in by_hour.items():
        numbers[min((hour_ms - first) // span_ms, len(numbers) - 1)] += count
    bars = [
        Bar(first + index * span_ms, count, count / max(numbers))
        for index, count in enumerate(numbers)
    ]
    return Histogram(bars, span_ms, sum(numbers), counts.is_complete)


async def read_levels(cluster: Cluster, due: DelayedCounts | None) -> list[Level]:
    """The delay levels of all masters together.

    Without `due` the counts come from the brokers' figures, which show a level only after it has
    delivered a message.
    """
    waiting: Counter[int] = Counter()
    if due is None:
        for status in await cluster.statuses():
            if status.broker.is_master:
                waiting.update(_of_figures(status.figures))
    else:
        for row in due.counts:
            waiting[row.level] += row.count if row.level else 0
    delays = await _delays(cluster)
    return [
        Level(level, delays[level - 1] if level <= len(delays) else "?", count)
        for level, count in sorted(waiting.items())
        if level > 0
    ]


def _of_figures(figures: Mapping[str, str]) -> dict[int, int]:
    """The waiting messages of each level, from `scheduleMessageOffset_1` = `offset,end`."""
    found = {}
    for name, text in figures.items():
        if name.startswith(LEVEL_FIGURE):
            offset, _, end = text.partition(",")
            found[number(name.removeprefix(LEVEL_FIGURE))] = max(number(end) - number(offset), 0)
    return found


async def _delays(cluster: Cluster) -> list[str]:
    for reports in (await cluster.masters()).values():
        return (await reports.settings()).get("messageDelayLevel", "").split()
    return []


async def read_halves(visit: Visit) -> list[Halves]:
    """The half messages of each master."""
    try:
        progress = await visit.cluster.admin.groups.lag(TRANS_GROUP, TRANS_HALF_TOPIC)
    except CongreveError:
        return []  # no broker has had a transaction
    rows = (row for row in progress if row.queue_id == TRANS_QUEUE_ID and row.lag)
    return [
        Halves(
            row.broker_name,
            row.lag,
            await _half_messages(visit, row.broker_name, row.consumer_offset, row.broker_offset),
        )
        for row in rows
    ]


async def _half_messages(
    visit: Visit, broker_name: str, first: int, end: int
) -> list[ShownMessage]:
    queue = MessageQueue(TRANS_HALF_TOPIC, broker_name, TRANS_QUEUE_ID)
    part = Part(queue, first, min(end, first + HALF_SHOWN))
    try:
        result = await visit.cluster.lookup.search(Subscription(queue.topic, ALL, TAG), [part])
    except CongreveError:
        return []
    return [shown(found, with_body=visit.sees_bodies) for found in result.found]
