"""Messages and rates of the topics that a page shows."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from congreve.base.errors import CongreveError
from congreve.client.admin.brokers import in_turns
from congreve.client.admin.reports import BrokerReports
from congreve.console.web.snapshot import TopicRow

AGE_S = 10.0
WAIT_S = 1.0
"""A page does not wait longer for them: the next one has those that come later."""
TOPICS_MAX = 2_000


class TopicFigures(msgspec.Struct, frozen=True):
    """Stored messages, and what is sent: messages and bytes a second in the last minute."""

    messages: int = 0
    in_rate: float = 0.0
    in_bytes: float = 0.0

    def plus(self, other: "TopicFigures") -> "TopicFigures":
        """The figures of two brokers together."""
        return TopicFigures(
            self.messages + other.messages,
            self.in_rate + other.in_rate,
            self.in_bytes + other.in_bytes,
        )


class FiguresOfTopics:
    """Asks the masters for the topics of a page, and keeps the answers for AGE_S seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, TopicFigures]] = {}
        self._reading: asyncio.Task[object] | None = None

    async def of(
        self, rows: Iterable[TopicRow], masters: Mapping[str, BrokerReports]
    ) -> dict[str, TopicFigures]:
        """The figures of these topics that are known within WAIT_S seconds."""
        rows = list(rows)
        now = self._monotonic()
        wanted = [
            row
            for row in rows
            if row.name not in self._known or now - self._known[row.name][0] > AGE_S
        ]
        if wanted and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read(wanted, masters))
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=WAIT_S)
        return {row.name: self._known[row.name][1] for row in rows if row.name in self._known}

    async def stop(self) -> None:
        """End what is being read."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    async def _read(self, rows: list[TopicRow], masters: Mapping[str, BrokerReports]) -> None:
        if len(self._known) + len(rows) > TOPICS_MAX:
            self._known.clear()

        async def one(row: TopicRow) -> None:
            total = TopicFigures()
            for broker in row.brokers:
                if broker in masters:
                    total = total.plus(await _figures(masters[broker], row.name))
            self._known[row.name] = self._monotonic(), total

        await in_turns(one, rows)


async def _figures(reports: BrokerReports, topic: str) -> TopicFigures:
    """The figures of a topic on one broker; zero where it does not answer."""
    try:
        messages = await reports.stored(topic)
        if not messages:
            return TopicFigures()
        rate, size = await asyncio.gather(
            reports.rate("TOPIC_PUT_NUMS", topic), reports.rate("TOPIC_PUT_SIZE", topic)
        )
    except CongreveError:
        return TopicFigures()
    return TopicFigures(messages, rate, size)
