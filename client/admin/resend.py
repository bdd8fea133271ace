"""Sends dead letters again, each once, even after a kill (RocketMQ has no counterpart)."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from hashlib import blake2b

import msgspec

from congreve.base.errors import CongreveError
from congreve.base.fields import Fields
from congreve.client.admin.brokers import Brokers, in_turns
from congreve.client.admin.offset_ranges import (
    OffsetQueue,
    OffsetSet,
    Range,
    count_of,
    offsets_of,
    ranges_of,
)
from congreve.client.admin.one_send import send
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.admin.resent import Begin, ResentJournal
from congreve.client.errors import (
    BrokerError,
    ClientError,
    InvalidMessageError,
    RouteNotFoundError,
)
from congreve.client.ids import month_start
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.outgoing import Outgoing, batch, prepare
from congreve.client.received import PulledRecords
from congreve.client.transport.instance import ClientInstance
from congreve.records.batches.batch import batch_element
from congreve.records.message import properties as names
from congreve.records.message.topics import retry_topic
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import QueryMessageRequestHeader

FIRST_CHUNK, CHUNK = 512, 8192
"""Dead letters in the first chunk, and in the largest one; the journal has a record for each
chunk."""
CHUNK_BYTES = 16 << 20
"""Approximate maximum of bytes in a chunk; two chunks are in memory at a time."""
BATCH_BYTES = 256 << 10
LARGE_BODY = 4096
"""Bodies from this size on are sent alone and compressed, as producers do."""
CLOCKS_DIFFER_MS = 600_000
"""By how much the clock of a broker may be behind that of the process that resends."""
DELIVERY_PROPERTIES = frozenset(
    {
        names.UNIQ_KEY,
        names.WAIT,
        names.DELAY,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.RETRY_TOPIC,
        names.RETRY_TOPIC_UNCHECKED,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.CONSUME_START_TIMESTAMP,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.TRANSACTION_PREPARED,
        names.TIMER_DELIVER_MS,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SEC,
        names.TIMER_OUT_MS,
        names.CLUSTER,
        names.MSG_REGION,
        names.TRACE_SWITCH,
    }
)
"""Properties that describe earlier deliveries: the new message does not get them."""

Edit = Callable[[Message], Message]
Ids = Callable[[int], str]
"""The id of a letter's new message, by the letter's queue offset."""


class ResendFailure(Fields, msgspec.Struct, frozen=True):
    """A dead letter that was not stored again, and why."""

    broker_name: str
    queue_id: int
    queue_offset: int
    reason: str


class ResendReport(Fields, msgspec.Struct):
    """The outcome of a resend, in messages.

    Those `in_doubt` were sent, and no answer came; the next resend finds out which are stored.
    """

    sent: int = 0
    already_sent: int = 0
    in_doubt: int = 0
    failures: list[ResendFailure] = []


class Resender:
    """Resends the dead letters in one queue, a DLQ topic's queue of one broker.

    A message gets the id of its dead letter and time, so that a letter in doubt can be found by
    this id in the index of the broker. `rate` is in messages a second. Letters
    that name no topic, or one that their sender may not write to, go to `topic`.

    Letters go in batches. Large ones, edited ones, and those of a batch that the broker finds
    illegal are sent one by one.
    """

    def __init__(
        self,
        client: ClientInstance,
        brokers: Brokers,
        group: str,
        reader: QueueReader,
        *,
        to_group: bool = False,
        topic: str | None = None,
        rate: float | None = None,
        edit: Edit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._group = group
        self._reader = reader
        self._to_group = to_group
        self._topic = topic
        self._rate = rate
        self._edit = edit
        self._clock = clock
        self._turn = 0
        queue = reader.queue
        self._journal = ResentJournal(client, group, queue.broker_name, reader.address)

    async def run(self, wanted: Sequence[Range], report: ResendReport) -> None:
        """Resend the letters with these offsets that were not resent before.

        Raises ResendConflictError when another process resends letters of the group.
        """
        await self._journal.read()
        await self._settle()
        await self._journal.create()
        missing = self._journal.not_resent(self._reader.queue.queue_id, wanted)
        report.already_sent += count_of(wanted) - count_of(missing)
        async with aclosing(self._read_ahead(OffsetQueue(missing))) as chunks:
            async for ranges, pulls in chunks:
                await self._paced(ranges, pulls, report)
                if report.in_doubt:
                    return

    async def _read_ahead(
        self, left: OffsetQueue
    ) -> AsyncGenerator[tuple[list[Range], list[PulledRecords]], None]:
        """Each chunk with its records; the next one is read while the caller works on it."""
        limit = CHUNK if self._rate is None else max(1, min(CHUNK, int(self._rate)))
        ranges = left.take(min(FIRST_CHUNK, limit))
        reading = asyncio.create_task(self._reader.pulls(ranges))
        try:
            while ranges:
                pulls, chunk = await reading, ranges
                letter_bytes = sum(len(pulled.body) for pulled in pulls) // count_of(chunk)
                ranges = left.take(max(1, min(limit, CHUNK_BYTES // max(1, letter_bytes))))
                reading = asyncio.create_task(self._reader.pulls(ranges))
                yield chunk, pulls
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _paced(
        self, ranges: list[Range], pulls: Sequence[PulledRecords], report: ResendReport
    ) -> None:
        began = time.monotonic()
        await self._chunk(ranges, pulls, report)
        if self._rate is not None:
            due = began + count_of(ranges) / self._rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _chunk(
        self, ranges: list[Range], pulls: Sequence[PulledRecords], report: ResendReport
    ) -> None:
        at_ms = int(self._clock() * 1000)
        queue = self._reader.queue
        ids = resend_ids(self._group, queue, at_ms)
        requests, outcomes = self._alone(_letters(pulls, queue, ranges), ids)
        if self._edit is None:
            requests = in_batches(requests)
        begun = OffsetSet(part for request in requests for part in request.ranges).ranges
        if begun:
            begin_id = await self._journal.begin(queue.queue_id, begun, self._to_group, at_ms)
            sent = await in_turns(self._send, requests)
            illegal = [part for one in sent if one.is_illegal_batch for part in one.ranges]
            alone, refused = self._alone(_letters(pulls, queue, illegal), ids)
            outcomes += [one for one in sent if not one.is_illegal_batch]
            outcomes += [*refused, *await in_turns(self._send, alone)]
        stored = OffsetSet(part for one in outcomes if one.is_stored for part in one.ranges).ranges
        doubtful = sum(count_of(one.ranges) for one in outcomes if one.is_doubtful)
        report.sent += count_of(stored)
        report.in_doubt += doubtful
        report.failures += [
            ResendFailure(queue.broker_name, queue.queue_id, offset, str(one.error))
            for one in outcomes
            if not one.is_stored and not one.is_doubtful
            for offset in offsets_of(one.ranges)
        ]
        if begun and not doubtful:
            await self._journal.end(begin_id, stored)

    def _alone(
        self, letters: Iterable[ReceivedMessage], ids: Ids
    ) -> tuple[list["Request"], list["_Outcome"]]:
        """A request for each letter, and the letters that cannot be sent."""
        requests: list[Request] = []
        refused: list[_Outcome] = []
        for letter in letters:
            ranges = ranges_of([letter.queue_offset])
            try:
                message = self._message(letter)
                outgoing = prepare(message, ids(letter.queue_offset), compress_from=LARGE_BODY)
                requests.append(Request(outgoing, ranges))
            except ClientError as error:
                refused.append(_Outcome(ranges, error))
        return requests, refused

    def _message(self, letter: ReceivedMessage) -> Message:
        message = plain_message(letter, self._topic)
        if self._edit is not None:
            message = self._edit(message)
        if message.topic == self._reader.queue.topic:
            raise InvalidMessageError(
                "the letter names no topic that its sender may write to "
                f"({names.RETRY_TOPIC}={letter.properties.get(names.RETRY_TOPIC)}): say the topic"
            )
        if self._to_group:
            message.properties[names.RETRY_TOPIC] = message.topic
            message.topic = retry_topic(self._group)
        return message

    async def _send(self, request: "Request") -> "_Outcome":
        outgoing = request.outgoing
        try:
            address, queue_id = await self._target(outgoing.topic)
            await send(self._client, address, queue_id, outgoing)
        except CongreveError as error:
            return _Outcome(request.ranges, error, is_batch=outgoing.is_batch)
        return _Outcome(request.ranges)

    async def _target(self, topic: str) -> tuple[str, int]:
        """The broker and the queue for the next request, where possible the letters' broker."""
        route = await self._client.routes.find(topic)
        here = self._reader.queue.broker_name
        queues = [queue for queue in route.write_queues if queue.broker_name == here]
        queues = queues or list(route.write_queues)
        if not queues:
            raise RouteNotFoundError(f"topic {topic} has no writable queue")
        self._turn += 1
        queue = queues[self._turn % len(queues)]
        address = route.master(queue.broker_name)
        if address is None:
            raise RouteNotFoundError(f"topic {topic} has no master of {queue.broker_name}")
        return address, queue.queue_id

    # --- letters in doubt

    async def _settle(self) -> None:
        """Find out which letters of an interrupted resend are stored again, and record them."""
        if not self._journal.open:
            return
        # Requests that a process sent before its kill may still be in flight.
        await asyncio.sleep(self._client.timeout_s)
        if await self._journal.read():
            raise ClientError("another process resends dead letters now")
        for begin in list(self._journal.open.values()):
            queue = msgspec.structs.replace(self._reader.queue, queue_id=begin.queue_id)
            ids = resend_ids(self._group, queue, begin.at_ms)
            offsets = offsets_of(begin.ranges)
            reader = QueueReader(self._client, queue, self._reader.address)
            letters = await reader.read(offsets[0], offsets[-1] + 1)
            wanted = set(offsets)
            found = [
                (letter.queue_offset, self._sent_topic(letter, begin), ids(letter.queue_offset))
                for letter in letters
                if letter.queue_offset in wanted
            ]
            stored = await in_turns(self._is_stored, [(*one, begin.at_ms) for one in found])
            await self._journal.end(
                begin.id, ranges_of(one[0] for one, yes in zip(found, stored, strict=True) if yes)
            )

    def _sent_topic(self, letter: ReceivedMessage, begin: Begin) -> str:
        if begin.to_group:
            return retry_topic(self._group)
        return _topic_of(letter, self._topic)

    async def _is_stored(self, sent: tuple[int, str, str, int]) -> bool:
        """Whether a broker has the message with that topic, id and time."""
        _, topic, message_id, at_ms = sent
        header = QueryMessageRequestHeader(
            topic=topic,
            key=message_id,
            max_num=32,
            begin_timestamp=at_ms - CLOCKS_DIFFER_MS,
            end_timestamp=1 << 62,
            unique_key=True,
        )
        code, accept = RequestCode.QUERY_MESSAGE, (ResponseCode.QUERY_NOT_FOUND,)
        for address in (await self._brokers.masters()).values():
            answer = await self._brokers.ask(address, code, header.fields(), accept=accept)
            if answer is not None and any(
                message.message_id == message_id
                for message in PulledRecords(answer.body).messages(self._reader.queue)
            ):
                return True
        return False


class Request(msgspec.Struct, frozen=True):
    """A message or a batch, and the offsets of its letters."""

    outgoing: Outgoing
    ranges: list[Range]


class _Outcome(msgspec.Struct, frozen=True):
    """The outcome of the letters of one request."""

    ranges: list[Range]
    error: CongreveError | None = None
    is_batch: bool = False

    @property
    def is_stored(self) -> bool:
        return self.error is None

    @property
    def is_doubtful(self) -> bool:
        """Whether a broker may have stored them."""
        refused = isinstance(self.error, BrokerError | RouteNotFoundError | InvalidMessageError)
        return self.error is not None and not refused

    @property
    def is_illegal_batch(self) -> bool:
        """Whether a broker refused the batch for its form: nothing of it is stored."""
        illegal = ResponseCode.MESSAGE_ILLEGAL
        return self.is_batch and isinstance(self.error, BrokerError) and self.error.code == illegal


def in_batches(requests: Iterable[Request]) -> list[Request]:
    """The same letters in batches of one topic, in their order; compressed ones stay alone."""
    found: list[Request] = []
    by_topic: dict[str, list[Request]] = {}
    for request in requests:
        if request.outgoing.sys_flag:
            found.append(request)
        else:
            by_topic.setdefault(request.outgoing.topic, []).append(request)
    for of_topic in by_topic.values():
        packed: list[Request] = []
        elements: list[bytes] = []
        size = 0
        for request in of_topic:
            sent = request.outgoing
            element = batch_element(sent.body, sent.properties.encode(), sent.flag)
            if packed and size + len(element) > BATCH_BYTES:
                found.append(_batch_of(packed, elements))
                packed, elements, size = [], [], 0
            packed.append(request)
            elements.append(element)
            size += len(element)
        found.append(_batch_of(packed, elements))
    return found


def _batch_of(packed: Sequence[Request], elements: Sequence[bytes]) -> Request:
    messages = [message for request in packed for message in request.outgoing.messages]
    ranges = OffsetSet(part for request in packed for part in request.ranges).ranges
    return Request(batch(messages, b"".join(elements), "", len(packed)), ranges)


def resend_ids(group: str, queue: MessageQueue, at_ms: int) -> Ids:
    """Ids of the messages that one resend makes of the letters in a queue, by queue offset.

    They have the form of all ids, with the time at the same place.
    """
    place = f"{group}\n{queue.broker_name}\n{queue.queue_id}".encode()
    elapsed = at_ms - int(month_start(at_ms).timestamp() * 1000)
    head = blake2b(place, digest_size=8).hexdigest().upper()

    def id_of(offset: int) -> str:
        return f"{head}{offset >> 16 & 0xFFFF:04X}{elapsed & 0xFFFFFFFF:08X}{offset & 0xFFFF:04X}"

    return id_of


def plain_message(letter: ReceivedMessage, topic: str | None = None) -> Message:
    """The message that was sent, without the properties that retries added.

    `topic` is for a letter that names none, or one that its sender may not write to.
    """
    properties = letter.properties
    kept = {name: value for name, value in properties.items() if name not in DELIVERY_PROPERTIES}
    return Message(
        topic=_topic_of(letter, topic), body=letter.body, properties=kept, flag=letter.flag
    )


def _topic_of(letter: ReceivedMessage, otherwise: str | None) -> str:
    properties = letter.properties
    is_checked = names.RETRY_TOPIC_UNCHECKED not in properties
    named = properties.get(names.RETRY_TOPIC) if is_checked else None
    return named or otherwise or letter.topic


def _letters(
    pulls: Iterable[PulledRecords], queue: MessageQueue, ranges: Sequence[Range]
) -> list[ReceivedMessage]:
    """The letters with these offsets, each once, in the queue's order."""
    wanted = OffsetSet(ranges)
    if not ranges:
        return []
    found = {
        letter.queue_offset: letter
        for pulled in pulls
        for letter in pulled.messages(queue)
        if letter.queue_offset in wanted
    }
    return list(found.values())
