"""Records which dead letters were resent, in a topic of the broker that has them."""

import secrets
from collections.abc import Sequence

import msgspec

from congreve.client.admin.offset_ranges import OffsetSet, Range, count_of
from congreve.client.admin.one_send import send
from congreve.client.admin.queue_reader import QueueReader
from congreve.client.errors import ClientError, ResendConflictError
from congreve.client.message import Message, MessageQueue
from congreve.client.outgoing import prepare
from congreve.client.transport.instance import ClientInstance
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, resent_topic
from congreve.remoting.messages.admin_headers import CreateTopicRequestHeader
from congreve.remoting.messages.codes import RequestCode

PERM_READ_WRITE = 6
QUEUE_ID = 0
NEVER_COMPRESS = 1 << 31


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """A resend that is about to send these dead letters of a queue; `at_ms` is in their ids."""

    id: str
    queue_id: int
    ranges: list[Range]
    to_group: bool
    at_ms: int


class End(msgspec.Struct, tag="end", frozen=True):
    """The dead letters of a Begin that are stored again."""

    id: str
    ranges: list[Range]


class ResentJournal:
    """The journal of a group's dead letters on one broker that were resent.

    A Begin is stored before letters are sent, an End after it. A Begin without an End is `open`:
    its letters are in doubt. Only one process may resend at a time: if a Begin does not get the
    offset after the last known record, another process has written records.
    """

    def __init__(self, client: ClientInstance, group: str, broker_name: str, address: str) -> None:
        self._client = client
        self._address = address
        topic = resent_topic(group)
        queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=QUEUE_ID)
        self._reader = QueueReader(client, queue, address)
        self._next = 0
        self._run = secrets.token_hex(8)
        self._count = 0
        self.done: dict[int, OffsetSet] = {}
        """Resent dead letters by queue id."""
        self.open: dict[str, Begin] = {}
        """Begins without an End."""

    def is_resent(self, queue_id: int, offset: int) -> bool:
        """Whether that dead letter was resent."""
        return queue_id in self.done and offset in self.done[queue_id]

    def not_resent(self, queue_id: int, ranges: Sequence[Range]) -> list[Range]:
        """The dead letters in these ranges that were not resent."""
        done = self.done.get(queue_id, OffsetSet())
        return [part for first, last in ranges for part in done.missing(first, last)]

    async def read(self) -> bool:
        """Read the records that were written since the last call, and return whether there were
        any; a topic that does not exist is empty."""
        first, end = await self._reader.bounds()
        start = max(first, self._next)
        for message in await self._reader.read(start, end):
            self._apply(_decode(message.body))
        self._next = end
        return end > start

    async def create(self) -> None:
        """Create the topic if it has no records yet."""
        if self._next:
            return
        header = CreateTopicRequestHeader(
            topic=self._reader.queue.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=1,
            write_queue_nums=1,
            perm=PERM_READ_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        await self._client.demand(self._address, code, header.fields())

    async def begin(self, queue_id: int, ranges: list[Range], to_group: bool, at_ms: int) -> str:
        """Record that these dead letters will be sent; returns the id for end().

        Raises ClientError when another process resends dead letters of the group.
        """
        self._count += 1
        begin = Begin(
            id=f"{self._run}-{self._count}",
            queue_id=queue_id,
            ranges=ranges,
            to_group=to_group,
            at_ms=at_ms,
        )
        if not await self._write(begin) and self._is_taken(begin):
            await self._write(End(id=begin.id, ranges=[]))
            raise ResendConflictError(
                f"another process resends dead letters: {self._reader.queue.topic} has its records"
            )
        return begin.id

    async def end(self, begin_id: str, ranges: list[Range]) -> None:
        """Record which of them are stored again."""
        await self._write(End(id=begin_id, ranges=ranges))

    def _is_taken(self, begin: Begin) -> bool:
        """Whether another process works on dead letters, or has resent one of these."""
        left = self.not_resent(begin.queue_id, begin.ranges)
        return len(self.open) > 1 or count_of(left) < count_of(begin.ranges)

    async def _write(self, record: Begin | End) -> bool:
        """Store a record; returns whether nothing was written since the last read."""
        message = Message(topic=self._reader.queue.topic, body=msgspec.json.encode(record))
        outgoing = prepare(message, secrets.token_hex(16).upper(), compress_from=NEVER_COMPRESS)
        sent = await send(self._client, self._address, QUEUE_ID, outgoing)
        if sent.queue_offset == self._next:
            self._next += 1
            self._apply(record)
            return True
        await self.read()
        return False

    def _apply(self, record: Begin | End) -> None:
        if isinstance(record, Begin):
            self.open[record.id] = record
            return
        begun = self.open.pop(record.id, None)
        if begun is not None:
            done = self.done.setdefault(begun.queue_id, OffsetSet())
            for first, last in record.ranges:
                done.add(first, last)


def _decode(body: bytes) -> Begin | End:
    try:
        return msgspec.json.decode(body, type=Begin | End)
    except msgspec.DecodeError as error:
        raise ClientError(f"the record of resent dead letters cannot be read: {error}") from error
