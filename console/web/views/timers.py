"""Messages that wait for their time, and half messages that wait for the end of a transaction."""

import asyncio

import msgspec
from starlette.responses import Response

from congreve.client.admin.lookup import Part
from congreve.client.consumer.subscription import Subscription
from congreve.console.web.cluster import Cluster, number
from congreve.console.web.pages import Visit
from congreve.console.web.shown_message import ShownMessage, shown
from congreve.errors import CongreveError
from congreve.records.message.topics import (
    SCHEDULE_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_QUEUE_ID,
)
from congreve.remoting.messages.bodies import MessageQueue

LEVEL_FIGURE = "scheduleMessageOffset_"
HALF_SHOWN = 50


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


async def timers(visit: Visit) -> Response:
    """Delay levels and half messages."""
    levels, halves = await asyncio.gather(read_levels(visit.cluster), read_halves(visit.cluster))
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
    )


async def read_levels(cluster: Cluster) -> list[Level]:
    """The delay levels of all masters together, from their figures."""
    delays = await _delays(cluster)
    levels: dict[int, Level] = {}
    for status in await cluster.statuses():
        for name, text in status.figures.items():
            if not status.broker.is_master or not name.startswith(LEVEL_FIGURE):
                continue
            level = number(name.removeprefix(LEVEL_FIGURE))
            offset, _, end = text.partition(",")
            delay = delays[level - 1] if 0 < level <= len(delays) else "?"
            row = levels.setdefault(level, Level(level, delay, 0))
            row.waiting += max(number(end) - number(offset), 0)
    return sorted(levels.values())


async def _delays(cluster: Cluster) -> list[str]:
    for reports in (await cluster.masters()).values():
        return (await reports.settings()).get("messageDelayLevel", "").split()
    return []


async def read_halves(cluster: Cluster) -> list[Halves]:
    """The half messages of each master."""
    try:
        progress = await cluster.admin.groups.lag(TRANS_GROUP, TRANS_HALF_TOPIC)
    except CongreveError:
        return []  # no broker has had a transaction
    rows = (row for row in progress if row.queue_id == TRANS_QUEUE_ID and row.lag)
    return [
        Halves(
            row.broker_name,
            row.lag,
            await _half_messages(cluster, row.broker_name, row.consumer_offset, row.broker_offset),
        )
        for row in rows
    ]


async def _half_messages(
    cluster: Cluster, broker_name: str, first: int, end: int
) -> list[ShownMessage]:
    queue = MessageQueue(TRANS_HALF_TOPIC, broker_name, TRANS_QUEUE_ID)
    part = Part(queue, first, min(end, first + HALF_SHOWN))
    try:
        result = await cluster.lookup.search(Subscription(queue.topic, "*", "TAG"), [part])
    except CongreveError:
        return []
    return [shown(found) for found in result.found]
