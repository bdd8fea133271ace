"""Finds stored messages by id, key and time, and searches queues with limits (RocketMQ:
MQAdminImpl)."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable

import msgspec

from congreve.client.admin.brokers import TOOLS_GROUP
from congreve.client.admin.client import AdminClient
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.errors import BrokerError
from congreve.client.pull.pulling import PullRequest
from congreve.client.subscription import Subscription
from congreve.client.transport.route import MASTER_ID
from congreve.records.message.message import Record
from congreve.records.message.properties import TAGS
from congreve.records.record import decode_records, parse_offset_message_id
from congreve.remoting.messages.body import MessageQueue
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import (
    OffsetResponseHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    QueueRequestHeader,
    ViewMessageRequestHeader,
)

PULL_COUNT = 32
"""Maximum number of messages in a pull: a 4.9 broker returns no more from memory."""
FOREVER_MS = 2**63 - 1

_PULL_STATES = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)


class Found(msgspec.Struct, frozen=True):
    """A stored message and the name of its broker (RocketMQ: MessageExt)."""

    broker_name: str
    record: Record


class Part(msgspec.Struct):
    """The offsets [offset, end) of one queue that a search still has to read."""

    queue: MessageQueue
    offset: int
    end: int


class SearchResult(msgspec.Struct):
    """Found messages, oldest first; `rest` are the parts that were not searched.

    `searched` and `remaining` count messages, including those that the broker filtered out.
    """

    found: list[Found]
    searched: int
    rest: list[Part]

    @property
    def remaining(self) -> int:
        """Messages that were not searched."""
        return sum(part.end - part.offset for part in self.rest)


class SearchLimits(msgspec.Struct, frozen=True):
    """A search ends after so many results, searched messages or seconds."""

    results: int = 64
    messages: int = 20_000
    seconds: float = 2.0


class MessageLookup:
    """Finds messages in the brokers of a cluster (RocketMQ: MQAdminImpl).

    Every method raises RouteNotFoundError when no broker has the topic, BrokerError when a broker
    refuses a request, RemotingError when there is no answer, RecordError for damaged records.
    """

    def __init__(self, admin: AdminClient, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._monotonic = monotonic

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted."""
        return sorted((await self._admin.routes.find(topic)).read_queues)

    async def by_offset_id(self, message_id: str) -> Found | None:
        """The message with an id of host and log offset (`offsetMsgId`), None without one.

        The request goes only to a registered broker: an id names any address. Raises RecordError
        for a text that is not such an id.
        """
        (host, port), offset = parse_offset_message_id(message_id)
        info = await self._admin.cluster_info()
        for data in info.broker_addr_table.values():
            for address in data.broker_addrs.values():
                if await _leads_to(address, host, port):
                    return await self._view(data.broker_name, address, offset)
        return None

    async def _view(self, broker_name: str, address: str, offset: int) -> Found | None:
        fields = ViewMessageRequestHeader(offset=offset).fields()
        answer = await self._admin.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, fields)
        if answer.code == ResponseCode.SYSTEM_ERROR and "find message" in (answer.remark or ""):
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        records = decode_records(answer.body)
        return Found(broker_name, records[0]) if records else None

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        count: int = 64,
    ) -> list[Found]:
        """Messages with a key, or with `unique` with the id that their producer gave them; oldest
        first. A broker returns at most `count`, or its own limit."""
        route = await self._admin.routes.find(topic)
        fields = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key=unique,
        ).fields()
        read = self._admin.routes.address_to_read
        answers = await asyncio.gather(
            *(self._query(name, read(name, MASTER_ID), fields) for name in route.brokers)
        )
        found = [each for answer in answers for each in answer]
        return sorted(found, key=lambda each: each.record.store_timestamp)

    async def _query(self, name: str, address: str, fields: dict[str, str]) -> list[Found]:
        answer = await self._admin.ask(address, RequestCode.QUERY_MESSAGE, fields)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address)
        return [Found(name, record) for record in decode_records(answer.body)]

    # --- queues

    async def ends(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset of a queue and the one after its last."""
        fields = QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id).fields()
        low, high = await asyncio.gather(
            self._offset(queue, RequestCode.GET_MIN_OFFSET, fields),
            self._offset(queue, RequestCode.GET_MAX_OFFSET, fields),
        )
        return low, high

    async def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at this time or later."""
        return await QueueReader(self._admin, queue, await self._broker(queue)).first_at(time_ms)

    async def _offset(self, queue: MessageQueue, code: RequestCode, fields: dict[str, str]) -> int:
        answer = await self._admin.demand(await self._broker(queue), code, fields)
        return OffsetResponseHeader.read(answer).offset

    async def _broker(self, queue: MessageQueue) -> str:
        await self._admin.routes.find(queue.topic)
        return self._admin.routes.address_to_read(queue.broker_name, MASTER_ID)

    async def newest(self, queues: Iterable[MessageQueue], count: int) -> list[Part]:
        """The last `count` offsets of each queue."""

        async def part(queue: MessageQueue) -> Part:
            low, high = await self.ends(queue)
            return Part(queue, max(low, high - count), high)

        return list(await asyncio.gather(*map(part, queues)))

    async def between(
        self, queues: Iterable[MessageQueue], begin_ms: int, end_ms: int
    ) -> list[Part]:
        """The offsets of messages stored from `begin_ms` to before `end_ms`, for each queue.

        A part may have a message more at its end: the search has to compare store times.
        """

        async def part(queue: MessageQueue) -> Part:
            low, high = await self.ends(queue)
            begin = max(await self.offset_at(queue, begin_ms), low) if begin_ms > 0 else low
            end = min(await self.offset_at(queue, end_ms) + 1, high)
            return Part(queue, begin, max(begin, end))

        return list(await asyncio.gather(*map(part, queues)))

    async def pull(
        self,
        subscription: Subscription,
        queue: MessageQueue,
        offset: int,
        count: int = PULL_COUNT,
        wait_s: float = 0.0,
    ) -> tuple[list[Record], int, int]:
        """Messages from `offset` on that pass the filter, the offset to continue at, and the
        queue's end. With `wait_s` the broker waits for a message at the end of the queue."""
        request = PullRequest(
            group=TOOLS_GROUP,
            queue=queue,
            subscription=subscription,
            count=count,
            wait_s=wait_s,
            version_ms=int(time.time() * 1000),
            carries_subscription=True,
        )
        address = await self._broker(queue)
        answer = await self._admin.ask(
            address,
            RequestCode.PULL_MESSAGE,
            request.fields(offset),
            timeout_s=self._admin.timeout_s + wait_s,
        )
        if answer.code not in _PULL_STATES:
            raise BrokerError(answer.code, answer.remark, address)
        header = PullMessageResponseHeader.read(answer)
        records = decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
        if subscription.tags is not None:  # the broker compares hashes of tags
            records = [each for each in records if each.properties.get(TAGS) in subscription.tags]
        return records, header.next_begin_offset, header.max_offset

    async def search(
        self,
        subscription: Subscription,
        parts: Iterable[Part],
        wanted: Callable[[Record], bool] = lambda record: True,
        limits: SearchLimits | None = None,
    ) -> SearchResult:
        """The messages of these parts that pass the broker's filter and `wanted`, within limits.

        All queues are read at the same time.
        """
        limits = limits or SearchLimits()
        parts = [Part(part.queue, part.offset, part.end) for part in parts]
        result = SearchResult([], 0, [])
        deadline = self._monotonic() + limits.seconds

        async def read(part: Part) -> None:
            while (
                part.offset < part.end
                and len(result.found) < limits.results
                and result.searched < limits.messages
                and self._monotonic() < deadline
            ):
                count = min(PULL_COUNT, part.end - part.offset)
                records, following, _ = await self.pull(
                    subscription, part.queue, part.offset, count
                )
                following = min(max(following, part.offset + 1), part.end)
                result.searched += following - part.offset
                part.offset = following
                result.found += [
                    Found(part.queue.broker_name, record)
                    for record in records
                    if record.queue_offset < part.end and wanted(record)
                ]

        await asyncio.gather(*map(read, parts))
        result.found.sort(key=lambda each: each.record.store_timestamp)
        result.rest = [part for part in parts if part.offset < part.end]
        return result


async def _leads_to(address: str, host: str, port: int) -> bool:
    """Whether a registered address, which may have a name, is that of an id, which has none."""
    name, _, registered = address.rpartition(":")
    if registered != str(port):
        return False
    if name.strip("[]") == host:
        return True
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            name.strip("[]"), port, type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError):
        return False
    return any(each[4][0] == host for each in found)
