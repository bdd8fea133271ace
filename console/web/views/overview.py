"""The first page: rates, lag, disks, and what is wrong in words."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, Response

from congreve.base.errors import CongreveError
from congreve.console.topic_kinds import KINDS
from congreve.console.web.live import STREAM_S, event, event_stream, pause
from congreve.console.web.pages import Visit
from congreve.console.web.snapshot import Snapshot
from congreve.console.web.trouble import find_trouble
from congreve.records.message.topics import is_system_group

LIVE_S = 2.0
SLOW_GROUPS = 8


async def overview(visit: Visit) -> Response:
    """The whole page."""
    return visit.page("overview/overview.html", **await _values(visit))


async def live(visit: Visit) -> Response:
    """The figures of the page again and again, as events."""

    async def events() -> AsyncIterator[str]:
        ends = time.monotonic() + STREAM_S
        while time.monotonic() < ends and not await pause(visit.stopping, LIVE_S):
            try:
                html = visit.text("overview/overview_live.html", **await _values(visit))
            except CongreveError as error:
                html = visit.text("live_error.html", text=str(error))
            yield event(html)

    return event_stream(events())


async def rates(visit: Visit) -> Response:
    """The rates of the last minutes, as the columns of a chart."""
    await visit.cluster.statuses()
    samples = list(visit.cluster.history)
    return JSONResponse(
        [
            [sample.at for sample in samples],
            [sample.in_rate for sample in samples],
            [sample.out_rate for sample in samples],
        ]
    )


async def _values(visit: Visit) -> dict[str, Any]:
    statuses, snapshot = await asyncio.gather(visit.cluster.statuses(), _snapshot(visit))
    now_ms = int(time.time() * 1000)
    masters = [each for each in statuses if each.broker.is_master and each.error is None]
    groups = [] if snapshot is None else snapshot.groups.values()
    slow = sorted((group for group in groups if group.lag), key=lambda group: -group.lag)
    return {
        "statuses": statuses,
        "snapshot": snapshot,
        "troubles": find_trouble(statuses, snapshot, now_ms),
        "in_rate": sum(each.in_rate for each in masters),
        "out_rate": sum(each.out_rate for each in masters),
        "slow_groups": slow[:SLOW_GROUPS],
        "slow_count": len(slow),
        **_counts(snapshot),
        "namesrv": visit.cluster.namesrv,
        "now_ms": now_ms,
    }


def _counts(snapshot: Snapshot | None) -> dict[str, Any]:
    """How many topics and groups users have, and whether they have none."""
    if snapshot is None:
        return {"is_empty": False}
    topics = sum(topic.kind == KINDS[0] for topic in snapshot.topics.values())
    groups = sum(not is_system_group(name) for name in snapshot.groups)
    return {"topic_count": topics, "group_count": groups, "is_empty": not topics + groups}


async def _snapshot(visit: Visit) -> Snapshot | None:
    """Topics and groups, None for an account that may not read all of them."""
    try:
        return await visit.cluster.snapshot()
    except CongreveError:
        return None
