"""Reads ranges of a queue, many pulls at the same time (RocketMQ: DefaultMQPullConsumer)."""

from collections.abc import AsyncIterator, Iterable

from congreve.client.admin.brokers import TOOLS_GROUP, Brokers, in_turns
from congreve.client.admin.offset_ranges import Range
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.pull.pulling import PullRequest, read_answer
from congreve.client.received import PulledRecords
from congreve.client.subscription import subscribe
from congreve.client.transport.instance import ClientInstance
from congreve.records.filter.kinds import ALL
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
)

PULL_COUNT = 32
"""Maximum number of messages in a pull: brokers return no more by default."""


class QueueReader:
    """Reads one queue from the broker at `address`, its master."""

    def __init__(self, client: ClientInstance, queue: MessageQueue, address: str) -> None:
        self._client = client
        self._subscription = subscribe(queue.topic, ALL)
        self.queue = queue
        self.address = address

    async def bounds(self) -> tuple[int, int]:
        """The queue's first offset, and the offset that its next message will get."""
        fields = QueueRequestHeader(topic=self.queue.topic, queue_id=self.queue.queue_id).fields()
        first = await self._client.demand(self.address, RequestCode.GET_MIN_OFFSET, fields)
        end = await self._client.demand(self.address, RequestCode.GET_MAX_OFFSET, fields)
        return OffsetResponseHeader.read(first).offset, OffsetResponseHeader.read(end).offset

    async def first_at(self, time_ms: int) -> int:
        """The first offset whose message was stored at `time_ms` or later; the end without one.

        A 4.9 broker answers with the message whose time is the nearest
        (SEARCH_OFFSET_BY_TIMESTAMP): it may be before that time, or one of several at it.
        """
        low, high = await self.bounds()
        header = SearchOffsetRequestHeader(
            topic=self.queue.topic, queue_id=self.queue.queue_id, timestamp=time_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = await self._client.demand(self.address, code, header.fields())
        offset = min(max(OffsetResponseHeader.read(answer).offset, low), high)
        while offset < high and not await self._is_at(offset, time_ms):
            offset += 1
        while offset > low and await self._is_at(offset - 1, time_ms):
            offset -= 1
        return offset

    async def _is_at(self, offset: int, time_ms: int) -> bool:
        """Whether this message was stored at the time or later."""
        messages = await self.read(offset, offset + 1)
        return bool(messages) and messages[0].store_timestamp >= time_ms

    async def read(self, start: int, stop: int) -> list[ReceivedMessage]:
        """The messages with offsets in [start, stop); those that have expired are missing."""
        return [
            message
            for pulled in await self.pulls([(start, stop - 1)])
            for message in pulled.messages(self.queue)
            if start <= message.queue_offset < stop
        ]

    async def pulls(self, ranges: Iterable[Range]) -> list[PulledRecords]:
        """The records of pulls of these ranges, in the queue's order; they may have others too."""
        slices = [
            (low, min(low + PULL_COUNT, last + 1))
            for first, last in ranges
            for low in range(first, last + 1, PULL_COUNT)
        ]
        parts = await in_turns(self._slice, slices)
        return [pulled for part in parts for pulled in part]

    async def chunks(
        self, start: int, stop: int, size: int
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield what read() returns, for `size` offsets at a time."""
        for low in range(start, stop, size):
            yield await self.read(low, min(low + size, stop))

    async def _slice(self, bounds: tuple[int, int]) -> list[PulledRecords]:
        offset, stop = bounds
        found: list[PulledRecords] = []
        while offset < stop:
            request = PullRequest(
                group=TOOLS_GROUP,
                queue=self.queue,
                subscription=self._subscription,
                count=stop - offset,
                carries_subscription=True,
            )
            answer = await self._client.ask(
                self.address, RequestCode.PULL_MESSAGE, request.fields(offset)
            )
            pulled = read_answer(answer, self.address, self._subscription)
            if pulled.records is not None:
                found.append(pulled.records)
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
        return found


async def readers(client: ClientInstance, brokers: Brokers, topic: str) -> list[QueueReader]:
    """A reader for each readable queue of a topic. Raises RouteNotFoundError for an unknown one."""
    client.check_running()
    masters = await brokers.masters()
    route = await client.routes.find(topic)
    return [
        QueueReader(client, queue, masters[queue.broker_name])
        for queue in route.read_queues
        if queue.broker_name in masters
    ]
