"""The live tail of a topic: new messages as they are stored."""

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.responses import Response

from congreve.base.errors import CongreveError
from congreve.client.admin.lookup import Found
from congreve.client.subscription import Sql, Subscription, subscribe
from congreve.console.web.live import STREAM_S, event, event_stream
from congreve.console.web.pages import Visit
from congreve.console.web.shown_message import body_contains, shown
from congreve.console.web.views.messages import QUEUES_MAX
from congreve.remoting.messages.body import MessageQueue

WAITING_MAX = 200
"""Messages that wait for the browser; further ones are counted, not shown."""
WAIT_S = 10.0
"""The broker holds a pull at the end of a queue for this time."""
PAUSE_S = 0.25
"""One event has the messages of this time."""


async def tail(visit: Visit) -> Response:
    """The page, which is empty at first."""
    topic = visit.query("topic")
    queues = await visit.cluster.lookup.queues(topic)
    return visit.page(
        "tail/tail.html",
        topic=topic,
        tags=visit.query("tags"),
        sql=visit.query("sql"),
        text=visit.query("text"),
        queues=len(queues),
        queues_max=QUEUES_MAX,
    )


async def tail_events(visit: Visit) -> Response:
    """New messages, as events with table rows."""
    topic = visit.query("topic")
    if visit.query("text"):
        visit.check_sees_bodies()
    sql = visit.query("sql")
    subscription = subscribe(topic, Sql(sql) if sql else visit.query("tags") or "*")
    queues = (await visit.cluster.lookup.queues(topic))[:QUEUES_MAX]
    return event_stream(Tail(visit, subscription, visit.query("text")).events(queues))


class Tail:
    """Pulls all queues of a topic, and gives what arrives to one stream of events."""

    def __init__(self, visit: Visit, subscription: Subscription, text: str) -> None:
        self._visit = visit
        self._subscription = subscription
        self._text = text
        self._waiting: list[Found] = []
        self._skipped = 0
        self._error: str | None = None

    async def events(self, queues: list[MessageQueue]) -> AsyncIterator[str]:
        """Events until the time is over or a broker refuses a pull."""
        ends = time.monotonic() + STREAM_S
        tasks = [asyncio.create_task(self._follow(queue)) for queue in queues]
        try:
            yield event("", "begin")
            while time.monotonic() < ends and not self._visit.stopping.is_set():
                await asyncio.sleep(PAUSE_S)
                if self._waiting or self._skipped:
                    yield event(self._rows())
                if self._error is not None:
                    yield event(self._visit.text("live_error.html", text=self._error), "failure")
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _rows(self) -> str:
        waiting, skipped = self._waiting, self._skipped
        self._waiting, self._skipped = [], 0
        waiting.sort(key=lambda found: -found.record.store_timestamp)
        rows = [shown(found, with_body=self._visit.sees_bodies) for found in waiting]
        return self._visit.text("tail/tail_rows.html", rows=rows, skipped=skipped)

    async def _follow(self, queue: MessageQueue) -> None:
        lookup = self._visit.cluster.lookup
        try:
            _, offset = await lookup.ends(queue)
            while True:
                records, offset, _ = await lookup.pull(
                    self._subscription, queue, offset, wait_s=WAIT_S
                )
                for record in records:
                    self._add(Found(queue.broker_name, record))
                if not records:  # a broker without long polling answers at once
                    await asyncio.sleep(PAUSE_S)
        except CongreveError as error:
            self._error = str(error)

    def _add(self, found: Found) -> None:
        if self._text and not body_contains(found, self._text):
            return
        if len(self._waiting) >= WAITING_MAX:
            self._skipped += 1
        else:
            self._waiting.append(found)
