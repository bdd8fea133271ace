"""Message trace: records about messages, which are sent as messages too (RocketMQ:
AsyncTraceDispatcher, TraceDataEncoder, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl)."""

import asyncio
import logging
import secrets
from collections.abc import Iterable
from enum import IntEnum
from typing import Unpack

from congreve.base.errors import CongreveError
from congreve.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeOutcome,
    EndContext,
    SendContext,
    SendHook,
)
from congreve.client.logs import Log
from congreve.client.message import Message, ReceivedMessage
from congreve.client.producer.producer import Producer
from congreve.client.transport.options import ConnectionOptions, check_options
from congreve.records.message.flags import SysFlag
from congreve.records.message.properties import KEY_SEPARATOR, MSG_REGION, TRACE_SWITCH
from congreve.records.message.topics import TRACE_TOPIC
from congreve.remoting.loop.background import BackgroundTask

log = Log(__name__)
logger = logging.getLogger(__name__)

GROUP_PREFIX = "_INNER_TRACE_PRODUCER"
SEND_TIMEOUT_S = 5.0
QUEUE_MAX = 1024
"""Maximum number of queued records; further ones are dropped."""
FLUSH_BYTES = 118_000
FLUSH_S = 0.5

DEFAULT_REGION = "DefaultRegion"

_STATE_NAMES = {0: "UNKNOW", 8: "COMMIT_MESSAGE", 12: "ROLLBACK_MESSAGE"}
FIELD_SEPARATOR, RECORD_SEPARATOR = "\x01", "\x02"


class TraceMessageType(IntEnum):
    """Kind of the traced message (RocketMQ: MessageType)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


def trace_record(*fields: object) -> str:
    """Encode one record; None becomes "null", as in the reference."""
    return FIELD_SEPARATOR.join(_text(field) for field in fields) + RECORD_SEPARATOR


def _text(field: object) -> str:
    if isinstance(field, bool):
        return "true" if field else "false"
    return "null" if field is None else str(field)


class TraceDispatcher:
    """Collects records and sends them in the background with a producer of its own (RocketMQ:
    AsyncTraceDispatcher).

    `kind` is PRODUCE or CONSUME; `connection` holds ClientInstance's options.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        kind: str,
        *,
        topic: str = TRACE_TOPIC,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        self.topic = topic
        self.dropped = 0
        self._waiting: list[tuple[str, tuple[str, ...]]] = []
        self._bytes = 0
        self._due = asyncio.Event()
        self._task: BackgroundTask | None = None
        self._producer = Producer(
            namesrv,
            group=f"{GROUP_PREFIX}-{group}-{kind}-{secrets.token_hex(4)}",
            send_timeout_s=SEND_TIMEOUT_S,
            **connection,
        )

    def add(self, record: str, keys: Iterable[str]) -> None:
        """Queue a record with the keys to find it by; it is dropped when too many are queued."""
        if len(self._waiting) >= QUEUE_MAX:
            self.dropped += 1
            return
        self._waiting.append((record, tuple(keys)))
        self._bytes += len(record)
        if self._bytes >= FLUSH_BYTES:
            self._due.set()

    async def start(self) -> None:
        """Start to send."""
        await self._producer.start()
        self._task = BackgroundTask(f"{self.topic}: sending traces", self._run, logger)
        self._task.start()

    async def stop(self) -> None:
        """Send the queued records and stop."""
        if self._task is not None:
            await self._task.stop()
            await self.flush()
        await self._producer.stop()

    async def flush(self) -> None:
        """Send the queued records; records that cannot be sent are dropped and logged."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self._due.clear()
        while waiting:
            size, count = 0, 0
            while count < len(waiting) and (not count or size < FLUSH_BYTES):
                size += len(waiting[count][0])
                count += 1
            chunk, waiting = waiting[:count], waiting[count:]
            keys = dict.fromkeys(key for _, names in chunk for key in names)
            body = "".join(record for record, _ in chunk).encode()
            message = Message(topic=self.topic, body=body, keys=KEY_SEPARATOR.join(keys))
            try:
                await self._producer.send(message)
            except CongreveError as error:
                self.dropped += count
                log.warning("trace records dropped", count=count, error=error)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FLUSH_S):
                    await self._due.wait()
            except TimeoutError:
                pass
            if self._waiting:
                await self.flush()


class TraceHook(SendHook):
    """Traces sends: ``Producer(namesrv, group=g, hooks=[TraceHook(namesrv, g)])`` (RocketMQ:
    SendMessageTraceHookImpl).

    As in the reference, only stored messages are traced, unless the broker disables it.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        *,
        topic: str = TRACE_TOPIC,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        check_options(self, connection, ConnectionOptions)
        self._connection = connection
        self._topic = topic
        self._namesrv = namesrv
        self._group = group
        self._dispatcher: TraceDispatcher | None = None

    async def start(self) -> None:
        """Start the dispatcher."""
        self._dispatcher = TraceDispatcher(
            self._namesrv, self._group, "PRODUCE", topic=self._topic, **self._connection
        )
        await self._dispatcher.start()

    async def stop(self) -> None:
        """Stop the dispatcher."""
        if self._dispatcher is not None:
            await self._dispatcher.stop()

    def after_send(self, context: SendContext) -> None:
        """Trace a stored message."""
        result, outgoing = context.result, context.outgoing
        if result is None or context.region is None or not context.trace_on:
            return
        message = None if outgoing.is_batch else outgoing.messages[0]
        kind = TraceMessageType.NORMAL
        if outgoing.sys_flag & SysFlag.TRANSACTION_PREPARED:
            kind = TraceMessageType.TRANSACTION_HALF
        elif message is not None and message.delay_level:
            kind = TraceMessageType.DELAY
        self._add(
            outgoing.message_id,
            message,
            "Pub",
            int(context.began_at * 1000),
            context.region,
            context.group,
            outgoing.topic,
            outgoing.message_id,
            message and message.tags,
            message and message.keys,
            context.address,
            len(outgoing.body),
            int(context.seconds * 1000),
            int(kind),
            result.offset_message_id,
            True,
        )

    def after_end(self, context: EndContext) -> None:
        """Trace the end of a transaction."""
        message, sent = context.message, context.sent
        self._add(
            sent.message_id,
            message,
            "EndTransaction",
            int(context.began_at * 1000),
            DEFAULT_REGION,
            context.group,
            message.topic,
            sent.message_id,
            message.tags,
            message.keys,
            context.address,
            int(TraceMessageType.TRANSACTION_COMMIT),
            sent.transaction_id or sent.message_id,
            _STATE_NAMES[context.state],
            False,
        )

    def _add(self, message_ids: str, message: Message | None, *fields: object) -> None:
        keys = message_ids.split(",")
        if message is not None and message.keys:
            keys += message.keys.split(KEY_SEPARATOR)
        if self._dispatcher is not None:
            self._dispatcher.add(trace_record(*fields), keys)


class ConsumeTraceHook(ConsumeHook):
    """Traces listener calls: ``PushConsumer(..., hooks=[ConsumeTraceHook(namesrv, group)])``
    (RocketMQ: ConsumeMessageTraceHookImpl).

    Arguments are those of TraceHook. Messages whose broker disables the trace are left out.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        *,
        topic: str = TRACE_TOPIC,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        check_options(self, connection, ConnectionOptions)
        self._connection = connection
        self._topic = topic
        self._namesrv = namesrv
        self._group = group
        self._dispatcher: TraceDispatcher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start the dispatcher."""
        self._loop = asyncio.get_running_loop()
        self._dispatcher = TraceDispatcher(
            self._namesrv, self._group, "CONSUME", topic=self._topic, **self._connection
        )
        await self._dispatcher.start()

    async def stop(self) -> None:
        """Stop the dispatcher."""
        if self._dispatcher is not None:
            # After the calls that threads have scheduled.
            await asyncio.sleep(0)
            await self._dispatcher.stop()

    def before_consume(self, context: ConsumeContext) -> None:
        """Trace the messages before the call."""
        request_id = context.notes[self] = secrets.token_hex(16).upper()
        for message in self._traced(context):
            self._add(
                message,
                "SubBefore",
                int(context.began_at * 1000),
                message.properties.get(MSG_REGION),
                context.group,
                request_id,
                message.message_id,
                message.reconsume_times,
                message.keys,
            )

    def after_consume(self, context: ConsumeContext) -> None:
        """Trace the call's outcome."""
        if context.outcome is None:
            return
        for message in self._traced(context):
            self._add(
                message,
                "SubAfter",
                context.notes[self],
                message.message_id,
                int(context.seconds * 1000 / len(context.messages)),
                context.outcome is ConsumeOutcome.SUCCESS,
                message.keys,
                int(context.outcome),
                int((context.began_at + context.seconds) * 1000),
                context.group,
            )

    def _traced(self, context: ConsumeContext) -> list[ReceivedMessage]:
        return [
            message
            for message in context.messages
            if message.properties.get(TRACE_SWITCH) != "false"
        ]

    def _add(self, message: ReceivedMessage, *fields: object) -> None:
        """Queue a record; may be called from any thread."""
        if self._loop is not None and self._dispatcher is not None:
            keys = [message.message_id, *(message.keys or "").split()]
            self._loop.call_soon_threadsafe(self._dispatcher.add, trace_record(*fields), keys)
