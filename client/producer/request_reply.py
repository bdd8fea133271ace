"""Request-reply through a broker (RocketMQ: RequestFutureHolder, MessageUtil,
ClientRemotingProcessor)."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from congreve.client.compression import decompress
from congreve.client.errors import ClientError, InvalidMessageError, RequestReplyTimeoutError
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.records.message.flags import SysFlag
from congreve.records.message.message import Host
from congreve.records.message.properties import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY_MESSAGE_ARRIVE_TIME,
    REPLY_TO_CLIENT,
    REPLY_TTL,
)
from congreve.records.message.property_codec import decode_properties
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import ReplyMessageRequestHeader

REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"
REPLY = "reply"


class PendingRequest:
    """A request that waits for its reply; `properties` make the message a request (RocketMQ:
    RequestResponseFuture)."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties
        self.future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()

    async def reply(self, deadline: float) -> ReceivedMessage:
        """Wait for the reply until the loop's time is `deadline`. Raises
        RequestReplyTimeoutError when none arrives."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self.future
        except TimeoutError:
            raise RequestReplyTimeoutError(
                f"no reply to request {self.properties[CORRELATION_ID]} in time; it was sent"
            ) from None


class Requests:
    """The pending requests of one producer (RocketMQ: RequestFutureHolder). `clock` returns
    seconds since 1970."""

    def __init__(self, client_id: str, *, clock: Callable[[], float] = time.time) -> None:
        self._client_id = client_id
        self._clock = clock
        self._pending: dict[str, PendingRequest] = {}
        self._topics: set[str] = set()

    def is_first(self, topic: str) -> bool:
        """Whether this is the first request to the topic: its brokers may not have a heartbeat of
        this client yet."""
        first = topic not in self._topics
        self._topics.add(topic)
        return first

    @contextmanager
    def expect(self, ttl_s: float) -> Iterator[PendingRequest]:
        """Register a request with a new correlation id; its reply is accepted within the block."""
        correlation_id = str(uuid.uuid4())
        pending = PendingRequest(
            {
                CORRELATION_ID: correlation_id,
                REPLY_TO_CLIENT: self._client_id,
                REPLY_TTL: str(int(ttl_s * 1000)),
            }
        )
        self._pending[correlation_id] = pending
        try:
            yield pending
        finally:
            del self._pending[correlation_id]

    def arrived(self, request: RemotingCommand) -> RemotingCommand:
        """Accept a reply that a broker pushes; a reply without a pending request is dropped."""
        header = ReplyMessageRequestHeader.read(request)
        properties = decode_properties((header.properties or "").encode())
        properties[REPLY_MESSAGE_ARRIVE_TIME] = str(int(self._clock() * 1000))
        pending = self._pending.get(properties.get(CORRELATION_ID, ""))
        if pending is not None and not pending.future.done():
            try:
                pending.future.set_result(_message(request.body, header, properties))
            except ClientError as error:
                pending.future.set_exception(error)
        return request.reply(ResponseCode.SUCCESS)


def reply_message(request: ReceivedMessage, body: bytes, tags: str | None = None) -> Message:
    """Build the reply to a request. Raises InvalidMessageError when the message is not a
    request."""
    if not isinstance(request, ReceivedMessage):
        raise InvalidMessageError(
            f"a reply to a {type(request).__name__}: a ReceivedMessage is expected"
        )
    missing = [
        name
        for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT)
        if name not in request.properties
    ]
    if missing:
        raise InvalidMessageError(
            f"message {request.message_id} is not a request: it lacks {', '.join(missing)}"
        )
    return Message(
        topic=f"{request.properties[CLUSTER]}_{REPLY_TOPIC_SUFFIX}", body=body, tags=tags
    )


def reply_properties(request: ReceivedMessage) -> dict[str, str]:
    """The properties that route a reply to the client that sent the request."""
    copied = {
        name: request.properties[name]
        for name in (CORRELATION_ID, REPLY_TO_CLIENT, REPLY_TTL)
        if name in request.properties
    }
    return {MESSAGE_TYPE: REPLY, **copied}


def _message(
    body: bytes, header: ReplyMessageRequestHeader, properties: dict[str, str]
) -> ReceivedMessage:
    return ReceivedMessage(
        topic=header.topic,
        body=decompress(body, header.sys_flag),
        properties=properties,
        queue=MessageQueue(topic=header.topic, broker_name="", queue_id=header.queue_id),
        queue_offset=0,
        physical_offset=0,
        born_timestamp=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        flag=header.flag,
        sys_flag=header.sys_flag & ~SysFlag.COMPRESSED,
    )


def _host(text: str) -> Host:
    """Parse ``ip:port``, with or without the leading ``/`` that Java prints."""
    address, _, port = text.rpartition("/")[2].rpartition(":")
    return address.strip("[]"), int(port) if port.isdecimal() else 0
