"""Sends dead letters again, each once, even after a kill (RocketMQ has no counterpart)."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import msgspec

from congreve.client.admin.brokers import Brokers, in_turns
from congreve.client.admin.one_send import send
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.admin.resent import Begin, ResentJournal, offsets_of
from congreve.client.errors import BrokerError, ClientError, RouteNotFoundError
from congreve.client.ids import month_start
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.producer.outgoing import Outgoing, prepare, prepare_batches
from congreve.client.pull.received import PulledRecords
from congreve.client.transport.instance import ClientInstance
from congreve.errors import CongreveError
from congreve.records.message import properties as names
from congreve.records.message.topics import retry_topic
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import QueryMessageRequestHeader

CHUNK = 8192
"""Dead letters between two records of the journal."""
BATCH_BYTES = 256 << 10
LARGE_BODY = 4096
"""Bodies from this size on are sent alone and compressed, as producers do."""
CLOCKS_DIFFER_MS = 600_000
"""By how much the clock of a broker may be behind that of the process that resends."""
KEPT_OUT = frozenset(
    {
        names.UNIQ_KEY,
        names.WAIT,
        names.DELAY,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.RETRY_TOPIC,
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
"""Properties that described the dead letter's way so far."""

Edit = Callable[[Message], Message]


class ResendFailure(msgspec.Struct, frozen=True):
    """A dead letter that was not stored again, and why."""

    broker_name: str
    queue_id: int
    queue_offset: int
    reason: str


class ResendReport(msgspec.Struct):
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
    this id in the index of the broker. `rate` is in messages a second.
    """

    def __init__(
        self,
        client: ClientInstance,
        brokers: Brokers,
        group: str,
        reader: QueueReader,
        *,
        to_group: bool = False,
        rate: float | None = None,
        edit: Edit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._group = group
        self._reader = reader
        self._to_group = to_group
        self._rate = rate
        self._edit = edit
        self._clock = clock
        self._turn = 0
        queue = reader.queue
        self._journal = ResentJournal(client, group, queue.broker_name, reader.address)

    async def run(self, wanted: Iterable[int], report: ResendReport) -> None:
        """Resend the letters with these ascending offsets that were not resent before.

        Raises ResendConflictError when another process resends letters of the group.
        """
        await self._journal.read()
        await self._settle()
        await self._journal.create()
        chunk: list[int] = []
        size = CHUNK if self._rate is None else max(1, min(CHUNK, int(self._rate)))
        for offset in wanted:
            if self._journal.is_resent(self._reader.queue.queue_id, offset):
                report.already_sent += 1
                continue
            chunk.append(offset)
            if len(chunk) == size:
                await self._paced(chunk, report)
                chunk = []
            if report.in_doubt:
                return
        if chunk:
            await self._paced(chunk, report)

    async def _paced(self, offsets: Sequence[int], report: ResendReport) -> None:
        began = time.monotonic()
        await self._chunk(offsets, report)
        if self._rate is not None:
            await asyncio.sleep(max(0.0, began + len(offsets) / self._rate - time.monotonic()))

    async def _chunk(self, offsets: Sequence[int], report: ResendReport) -> None:
        wanted = set(offsets)
        letters = [
            letter
            for letter in await self._reader.read(offsets[0], offsets[-1] + 1)
            if letter.queue_offset in wanted
        ]
        if not letters:
            return
        at_ms = int(self._clock() * 1000)
        queue = self._reader.queue
        found = [letter.queue_offset for letter in letters]
        begin_id = await self._journal.begin(queue.queue_id, found, self._to_group, at_ms)
        stored: list[int] = []
        doubtful = 0
        ids = LetterIds(self._group, queue, at_ms)
        for outcome in await in_turns(self._send, self._outgoings(letters, ids)):
            stored += outcome.stored
            doubtful += outcome.doubtful
            report.failures += [
                ResendFailure(queue.broker_name, queue.queue_id, offset, outcome.reason)
                for offset in outcome.refused
            ]
        report.sent += len(stored)
        report.in_doubt += doubtful
        if not doubtful:
            await self._journal.end(begin_id, sorted(stored))

    def _outgoings(
        self, letters: Sequence[ReceivedMessage], ids: "LetterIds"
    ) -> list[tuple[Outgoing, list[int]]]:
        """Requests, each with the offsets of its letters."""
        small: dict[str, list[tuple[Message, int]]] = {}
        requests: list[tuple[Outgoing, list[int]]] = []
        for letter in letters:
            message, offset = self._message(letter), letter.queue_offset
            if self._to_group or len(message.body) >= LARGE_BODY:
                outgoing = prepare(message, ids(offset), compress_from=LARGE_BODY)
                requests.append((outgoing, [offset]))
            else:
                small.setdefault(message.topic, []).append((message, offset))
        for messages in small.values():
            offsets = [offset for _, offset in messages]
            at = 0
            for outgoing in prepare_batches(
                [message for message, _ in messages],
                map(ids, offsets).__next__,
                body_max=BATCH_BYTES,
            ):
                requests.append((outgoing, offsets[at : at + outgoing.count]))
                at += outgoing.count
        return requests

    def _message(self, letter: ReceivedMessage) -> Message:
        properties = letter.properties
        topic = properties.get(names.RETRY_TOPIC, letter.topic)
        kept = {name: value for name, value in properties.items() if name not in KEPT_OUT}
        message = Message(topic=topic, body=letter.body, properties=kept, flag=letter.flag)
        if self._edit is not None:
            message = self._edit(message)
        if self._to_group:
            message.properties[names.RETRY_TOPIC] = message.topic
            message.topic = retry_topic(self._group)
        return message

    async def _send(self, request: tuple[Outgoing, list[int]]) -> "_Outcome":
        outgoing, offsets = request
        try:
            address, queue_id = await self._target(outgoing.topic)
            await send(self._client, address, queue_id, outgoing)
        except (BrokerError, RouteNotFoundError) as error:
            return _Outcome(refused=offsets, reason=str(error))
        except CongreveError:
            return _Outcome(doubtful=len(offsets))
        return _Outcome(stored=offsets)

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
        # What a process sent before its kill may still be on its way to the broker.
        await asyncio.sleep(self._client.timeout_s)
        if await self._journal.read():
            raise ClientError("another process resends dead letters now")
        for begin in list(self._journal.open.values()):
            queue = msgspec.structs.replace(self._reader.queue, queue_id=begin.queue_id)
            ids = LetterIds(self._group, queue, begin.at_ms)
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
                begin.id, [one[0] for one, yes in zip(found, stored, strict=True) if yes]
            )

    def _sent_topic(self, letter: ReceivedMessage, begin: Begin) -> str:
        if begin.to_group:
            return retry_topic(self._group)
        return str(letter.properties.get(names.RETRY_TOPIC, letter.topic))

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


class LetterIds:
    """Ids of the messages that one resend makes of the letters in a queue, by queue offset.

    They have the form of all ids, with the time at the same place.
    (RocketMQ: MessageClientIDSetter.)
    """

    def __init__(self, group: str, queue: MessageQueue, at_ms: int) -> None:
        place = f"{group}\n{queue.broker_name}\n{queue.queue_id}".encode()
        self._head = blake2b(place, digest_size=8).hexdigest().upper()
        elapsed = at_ms - int(month_start(at_ms).timestamp() * 1000)
        self._elapsed = f"{elapsed & 0xFFFFFFFF:08X}"

    def __call__(self, offset: int) -> str:
        return f"{self._head}{offset >> 16 & 0xFFFF:04X}{self._elapsed}{offset & 0xFFFF:04X}"


class _Outcome(msgspec.Struct):
    """What became of the letters of one request."""

    stored: list[int] = []
    refused: list[int] = []
    doubtful: int = 0
    reason: str = ""
