"""Dead letters of consumer groups: list, count, resend (RocketMQ: DlqMessageController of its
dashboard)."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from congreve.base.fields import Fields
from congreve.client.admin.brokers import Brokers, in_turns
from congreve.client.admin.groups import GroupAdmin
from congreve.client.admin.offset_ranges import ranges_of
from congreve.client.admin.queue_reader import QueueReader, readers
from congreve.client.admin.resend import Edit, Resender, ResendReport
from congreve.client.admin.resent import ResentJournal
from congreve.client.errors import InvalidSettingError, RouteNotFoundError
from congreve.client.message import ReceivedMessage
from congreve.client.transport.instance import ClientInstance
from congreve.records.message.properties import RETRY_TOPIC
from congreve.records.message.topics import DLQ_PREFIX, dlq_topic
from congreve.remoting.messages.admin_bodies import TopicList
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

CHUNK = 4096
SCAN_MAX = 1_000_000
"""Maximum number of dead letters that count() reads, the newest ones of each queue."""

HOUR_MS = 3_600_000
AGES = ((HOUR_MS, "1 h"), (24 * HOUR_MS, "1 d"), (72 * HOUR_MS, "3 d"))
"""Age groups: the greatest age in ms and its name."""
OLDER = "older"

RETRIES_USED_UP = "retries used up"
REJECTED = "given up by its consumer"
"""The consumer sent the message back with level -1, or its limit of attempts is below the group's
retryMaxTimes."""


class LetterPosition(NamedTuple):
    """Where a dead letter is."""

    broker_name: str
    queue_id: int
    queue_offset: int


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter (RocketMQ: MessageExt of a %DLQ% topic).

    `topic` is the topic that it was sent to, `dead_ms` when it became a dead letter. `is_resent`:
    it was resent, and will not be again.
    """

    position: LetterPosition
    topic: str
    reason: str
    dead_ms: int
    born_ms: int
    reconsume_times: int
    is_resent: bool
    message: ReceivedMessage


class LetterCount(Fields, msgspec.Struct, frozen=True, order=True):
    """Number of dead letters of a topic, for a reason, in an age group; `age` is "1 h" for those
    younger than an hour, up to "older"."""

    topic: str
    reason: str
    age: str
    count: int
    resent: int


class LetterCounts(Fields, msgspec.Struct, frozen=True):
    """What count() found; `is_complete`: it looked at all dead letters that the brokers have."""

    rows: list[LetterCount]
    scanned: int
    is_complete: bool


class LetterBacklog(Fields, msgspec.Struct, frozen=True, order=True):
    """Number of dead letters of a group that the brokers have, resent ones too."""

    group: str
    count: int


class DeadLetterAdmin:
    """Dead letters of all brokers: ``admin.dead_letters`` of an AdminClient.

    They work with Java brokers too. Errors are those of AdminClient; RouteNotFoundError when the
    group has no dead letters. (RocketMQ: DlqMessageController.)
    """

    def __init__(
        self,
        client: ClientInstance,
        brokers: Brokers,
        groups: GroupAdmin,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._groups = groups
        self._clock = clock

    async def groups(self) -> list[LetterBacklog]:
        """The groups that have dead letters."""
        self._client.check_running()
        request = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        answer = await self._client.name_servers.demand(request)
        topics = TopicList.decode(answer.body).topic_list
        names = sorted(name for name in topics if name.startswith(DLQ_PREFIX))
        found = [
            LetterBacklog(name.removeprefix(DLQ_PREFIX), count)
            for name, count in zip(names, await in_turns(self._backlog, names), strict=True)
        ]
        return [backlog for backlog in found if backlog.count]

    async def newest(
        self,
        group: str,
        *,
        count: int = 100,
        begin_ms: int = 0,
        end_ms: int | None = None,
        skip: int = 0,
    ) -> list[DeadLetter]:
        """The newest `count` dead letters that died in [begin_ms, end_ms), newest first, without
        the `skip` newest of each queue."""
        limit = await self._groups.retry_limit(group)
        letters: list[DeadLetter] = []
        for reader in await self._readers(group):
            first, end = await self._bounds(reader, begin_ms, end_ms)
            end = max(end - skip, first)
            journal = await self._journal(group, reader)
            letters += [
                _letter(message, limit, journal)
                for message in await reader.read(max(first, end - count), end)
            ]
        letters.sort(key=lambda letter: (-letter.dead_ms, -letter.position.queue_offset))
        return letters[:count]

    async def pages(
        self, group: str, *, count: int, page: int
    ) -> AsyncGenerator[list[DeadLetter], None]:
        """The newest `count` dead letters of each queue, newest first, in lists of up to `page`."""
        limit = await self._groups.retry_limit(group)
        for reader in await self._readers(group):
            first, end = await self._bounds(reader, 0, None)
            first = max(first, end - count)
            journal = await self._journal(group, reader)
            while first < end:
                begin = max(first, end - page)
                messages = await reader.read(begin, end)
                yield [_letter(message, limit, journal) for message in reversed(messages)]
                end = begin

    async def get(self, group: str, position: LetterPosition) -> DeadLetter | None:
        """One dead letter, None when it has expired."""
        limit = await self._groups.retry_limit(group)
        for reader in await self._readers(group):
            if _is_of(reader, position):
                offset = position.queue_offset
                journal = await self._journal(group, reader)
                for message in await reader.read(offset, offset + 1):
                    return _letter(message, limit, journal)
        return None

    async def count(self, group: str, *, scan_max: int = SCAN_MAX) -> LetterCounts:
        """Count the dead letters of a group by topic, reason and age."""
        limit, now_ms = await self._groups.retry_limit(group), int(self._clock() * 1000)
        counts: Counter[tuple[str, str, str]] = Counter()
        resent: Counter[tuple[str, str, str]] = Counter()
        is_complete, scanned = True, 0
        for reader in await self._readers(group):
            first, end = await reader.bounds()
            is_complete = is_complete and end - first <= scan_max
            journal = await self._journal(group, reader)
            async for messages in reader.chunks(max(first, end - scan_max), end, CHUNK):
                scanned += len(messages)
                for message in messages:
                    age = _age(now_ms - message.store_timestamp)
                    key = _topic(message), _reason(message, limit), age
                    counts[key] += 1
                    if journal.is_resent(reader.queue.queue_id, message.queue_offset):
                        resent[key] += 1
        rows = [LetterCount(*key, count, resent[key]) for key, count in counts.items()]
        return LetterCounts(rows=sorted(rows), scanned=scanned, is_complete=is_complete)

    async def resend(
        self,
        group: str,
        *,
        to_group: bool = False,
        topic: str | None = None,
        rate: float | None = None,
        begin_ms: int = 0,
        end_ms: int | None = None,
        positions: Sequence[LetterPosition] | None = None,
        edit: Edit | None = None,
    ) -> ResendReport:
        """Send dead letters again: to their topics, where all groups get them, or `to_group`, to
        this group only.

        All that died in [begin_ms, end_ms), or those at `positions`. None is sent twice, even by
        another call or process, or after a kill: the topic RESENT_group records the resends. `rate`
        is in messages a second; `edit` changes each message. A letter whose sender may not write to
        the topic that it names goes to `topic`, and fails without it. Raises ResendConflictError
        when another process resends dead letters of the group.
        """
        if rate is not None and not rate > 0:
            raise InvalidSettingError(f"rate is {rate!r}: more than 0 is expected")
        report = ResendReport()
        for reader in await self._readers(group):
            wanted = ranges_of(
                sorted({one.queue_offset for one in positions or () if _is_of(reader, one)})
            )
            if positions is None:
                first, end = await self._bounds(reader, begin_ms, end_ms)
                wanted = [(first, end - 1)] if first < end else []
            if wanted:
                resender = Resender(
                    self._client,
                    self._brokers,
                    group,
                    reader,
                    to_group=to_group,
                    topic=topic,
                    rate=rate,
                    edit=edit,
                    clock=self._clock,
                )
                await resender.run(wanted, report)
        return report

    async def _readers(self, group: str) -> list[QueueReader]:
        return await readers(self._client, self._brokers, dlq_topic(group))

    async def _journal(self, group: str, reader: QueueReader) -> ResentJournal:
        journal = ResentJournal(self._client, group, reader.queue.broker_name, reader.address)
        await journal.read()
        return journal

    async def _backlog(self, topic: str) -> int:
        try:
            bounds = [
                await reader.bounds()
                for reader in await readers(self._client, self._brokers, topic)
            ]
        except RouteNotFoundError:
            return 0
        return sum(end - first for first, end in bounds)

    async def _bounds(
        self, reader: QueueReader, begin_ms: int, end_ms: int | None
    ) -> tuple[int, int]:
        """Offsets of the letters that died in [begin_ms, end_ms)."""
        first, end = await reader.bounds()
        if begin_ms > 0:
            first = max(first, await reader.first_at(begin_ms))
        if end_ms is not None:
            end = min(end, await reader.first_at(end_ms))
        return first, max(first, end)


def _is_of(reader: QueueReader, position: LetterPosition) -> bool:
    place = (reader.queue.broker_name, reader.queue.queue_id)
    return place == (position.broker_name, position.queue_id)


def _letter(message: ReceivedMessage, limit: int | None, journal: ResentJournal) -> DeadLetter:
    queue, offset = message.queue, message.queue_offset
    return DeadLetter(
        position=LetterPosition(queue.broker_name, queue.queue_id, offset),
        topic=_topic(message),
        reason=_reason(message, limit),
        dead_ms=message.store_timestamp,
        born_ms=message.born_timestamp,
        reconsume_times=message.reconsume_times,
        is_resent=journal.is_resent(queue.queue_id, offset),
        message=message,
    )


def _topic(message: ReceivedMessage) -> str:
    properties: Mapping[str, str] = message.properties
    return properties.get(RETRY_TOPIC, message.topic)


def _reason(message: ReceivedMessage, limit: int | None) -> str:
    """Each send back increases reconsume_times; it exceeds the limit when all retries are used
    up."""
    return RETRIES_USED_UP if message.reconsume_times > (limit or 0) else REJECTED


def _age(milliseconds: int) -> str:
    return next((name for most, name in AGES if milliseconds < most), OLDER)
