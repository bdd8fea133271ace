"""Sends messages (RocketMQ: DefaultMQProducer, DefaultMQProducerImpl)."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, Unpack

import msgspec

from congreve.client.checks import (
    check_group,
    check_message,
    check_number,
    check_queue,
    check_seconds,
    check_topic,
    check_type,
    checked_batch,
)
from congreve.client.compression import CompressionType, check_available
from congreve.client.errors import ClientStateError
from congreve.client.hooks import SendHook
from congreve.client.ids import UniqueIds
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.namespace import unwrap_queue, wrap, wrap_queue
from congreve.client.outgoing import Outgoing, prepare, prepare_batches
from congreve.client.producer.columns import Bodies
from congreve.client.producer.in_flight import InFlight
from congreve.client.producer.many import BATCH_BYTES, IN_FLIGHT, outgoings_of, send_all
from congreve.client.producer.request_reply import Requests, reply_message, reply_properties
from congreve.client.producer.sending import Selector, Sender
from congreve.client.results import SendResult
from congreve.client.transport.faults import LatencyFaults
from congreve.client.transport.instance import ClientInstance
from congreve.client.transport.options import ConnectionOptions, check_options
from congreve.client.user_code import end_each
from congreve.records.message.properties import INSTANCE_ID
from congreve.records.record import string_hash
from congreve.remoting.messages.bodies import ProducerData
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.transport.dispatcher import Handler

T = TypeVar("T")

MAX_IN_FLIGHT = 1000
DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""The group name that RocketMQ reserves for its own producers."""
MAX_MESSAGE_SIZE = 4 * 1024 * 1024
"""Default of a broker's maxMessageSize, in bytes."""


def by_key(key: str) -> Selector:
    """Return a selector that maps all messages with one key to one queue (RocketMQ:
    SelectMessageQueueByHash)."""
    check_type("key", key, str)
    digest = abs(string_hash(key))

    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        """Pick the queue of the key's hash."""
        return queues[digest % len(queues)]

    return select


class ProducerOptions(ConnectionOptions, total=False):
    """Options of every producer; see Producer (RocketMQ: fields of DefaultMQProducer)."""

    send_timeout_s: float
    retries: int
    max_in_flight: int
    max_message_size: int
    compress_from: int
    compression: CompressionType
    retry_when_not_stored_ok: bool
    latency_faults: bool
    vip_channel: bool
    hooks: Sequence[SendHook]
    clock: Callable[[], float]


class Producer(ClientInstance):
    """Sends messages: ``async with Producer("host:9876", group="g") as producer`` (RocketMQ:
    DefaultMQProducer).

    Sends rotate through the queues of their topic. A failed send is repeated up to `retries` times,
    preferably at another broker, within `send_timeout_s` in total. At most `max_in_flight` sends of
    the event loop wait for their answers; further ones wait before that. Bodies of `compress_from`
    bytes or more are compressed; `max_message_size` limits the size before compression. With
    `latency_faults` the producer avoids brokers that were slow or failed for a while. `hooks` are
    called for every send. `connection` holds ClientInstance's options: credentials, ssl,
    namespace.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        send_timeout_s: float = 3.0,
        retries: int = 2,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_message_size: int = MAX_MESSAGE_SIZE,
        compress_from: int = 4096,
        compression: CompressionType = CompressionType.ZLIB,
        retry_when_not_stored_ok: bool = False,
        latency_faults: bool = False,
        vip_channel: bool = False,
        hooks: Sequence[SendHook] = (),
        clock: Callable[[], float] = time.time,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        check_options(self, connection, ProducerOptions)
        check_group(group, DEFAULT_GROUP)
        check_seconds("send_timeout_s", send_timeout_s)
        check_number("retries", retries, 0)
        check_number("max_in_flight", max_in_flight, 1)
        check_number("max_message_size", max_message_size, 1)
        check_number("compress_from", compress_from, 0)
        check_type("compression", compression, CompressionType)
        check_type("retry_when_not_stored_ok", retry_when_not_stored_ok, bool)
        check_type("latency_faults", latency_faults, bool)
        check_type("vip_channel", vip_channel, bool)
        check_type("hooks", hooks, Sequence)
        for hook in hooks:
            check_type("hook", hook, SendHook)
        check_available(compression)
        super().__init__(namesrv, timeout_s=send_timeout_s, **connection)
        self.group = wrap(self.namespace, group)
        check_group(self.group, DEFAULT_GROUP)
        self.in_flight = InFlight(max_in_flight)
        self.max_message_size = max_message_size
        self.compress_from = compress_from
        self.compression = compression
        self.hooks = tuple(hooks)
        self._next_id = UniqueIds(self.address, clock=clock)
        self._system = {INSTANCE_ID: self.namespace} if self.namespace else {}
        self._sends: set[asyncio.Task[SendResult]] = set()
        self._blocking = self._remoting.blocking()
        self._requests = Requests(self.client_id, clock=clock)
        self._sender = Sender(
            self.group,
            self.routes,
            self._remoting,
            retries=retries,
            retry_when_not_stored_ok=retry_when_not_stored_ok,
            faults=LatencyFaults() if latency_faults else None,
            hooks=self.hooks,
            vip_channel=vip_channel,
            clock=clock,
        )
        self._blocking_sender = self._sender.with_client(self._blocking)

    async def start(self) -> None:
        """Start the producer; this contacts no name server or broker. Raises ClientStateError
        when it was started before."""
        await super().start()
        for hook in self.hooks:
            await hook.start()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it. While `max_in_flight` others wait,
        this send does not begin.

        With `queue`, or a `selector` that picks one, there is a single attempt at that queue.
        Raises InvalidNameError or InvalidMessageError before anything is sent; RouteNotFoundError,
        BrokerError, SendTimeoutError, another ClientError or a RemotingError afterwards.
        """
        deadline = time.monotonic() + self.seconds(timeout_s)
        self.check_running()
        await self.in_flight.take(deadline)
        try:
            outgoing = self._prepare(message, queue=queue)
            seconds = deadline - time.monotonic()
            return self._seen(await self._sender.send(outgoing, queue, selector, seconds))
        finally:
            self.in_flight.give_back()

    def has_route(self, topic: str) -> bool:
        """Whether the topic's route is cached. Raises ClientStateError when the producer is not
        running, InvalidNameError when the name is invalid."""
        self.check_running()
        check_topic(topic)
        return self.routes.known(wrap(self.namespace, topic)) is not None

    def send_blocking(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """send() for a thread without an event loop, over a connection that the thread owns until
        the answer arrives.

        The producer must have no hooks, and has_route() must be true for the topic. May be called
        from any thread. Raises as send() does.
        """
        seconds = self.seconds(timeout_s)
        outgoing = self._prepare(message, queue=queue)
        sending = self._blocking_sender.send(outgoing, queue, selector, seconds)
        return self._seen(_without_waiting(sending))

    def send_oneway_blocking(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """send_oneway() for a thread without an event loop; see send_blocking()."""
        outgoing = self._prepare(message, queue=queue)
        _without_waiting(
            self._blocking_sender.send_oneway(outgoing, queue, selector, self.timeout_s)
        )

    def send_soon(
        self,
        message: Message,
        callback: Callable[[asyncio.Task[SendResult]], None] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> asyncio.Task[SendResult]:
        """Send without waiting; `callback` gets the task when it is done, in the current context.
        While `max_in_flight` sends wait for their answers, the task waits: a program that makes
        messages faster than brokers store them should await some tasks.

        Options and errors are those of send(); an error is set on the task.
        """
        sending = self.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        task = asyncio.get_running_loop().create_task(sending)
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)
        if callback is not None:
            task.add_done_callback(callback)
        return task

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send a message without asking the broker for an answer. Raises as send() does until
        the request is written."""
        outgoing = self._prepare(message, queue=queue)
        await self._sender.send_oneway(outgoing, queue, selector, self.timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together: a batch gets consecutive offsets in one queue.

        Messages of more than `max_message_size` bytes together are sent in several batches, with a
        result for each. Raises as send() does; batches before the failed one are then stored.
        """
        self.check_running()
        seconds = self.seconds(timeout_s)
        messages = checked_batch(messages, self.max_message_size)
        self._check_queue(queue, messages[0].topic)
        if self.hooks or self.namespace:
            named = (self._named(message) for message in messages)
            messages = checked_batch(named, self.max_message_size)
        outgoings = list(
            prepare_batches(
                messages, self._next_id, body_max=self.max_message_size, system=self._system
            )
        )
        return [
            self._seen(await self._sender.send(each, queue, None, seconds)) for each in outgoings
        ]

    async def send_many(
        self,
        topic: str,
        bodies: Bodies,
        *,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
        batch_bytes: int | None = None,
        in_flight: int = IN_FLIGHT,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send any number of bodies in batches, several at a time; returns a result for each batch.

        `bodies` is an iterable of bytes, an Arrow array of binary or text, or a numpy array: of
        type ``S``, of objects, or two-dimensional uint8 with a body in each row. All messages get
        the same tags, keys and properties, and each its own id. A batch has up to `batch_bytes`
        bytes, 256 KiB by default. With `queue` all batches go to it, one at a time in order.

        Raises InvalidNameError or InvalidMessageError before anything is sent, SendManyError with
        the results so far afterwards.
        """
        self.check_running()
        like = Message(
            topic=topic, body=b"?", tags=tags, keys=keys, properties=dict(properties or {})
        )
        check_message(like, self.max_message_size)
        self._check_queue(queue, topic)
        if batch_bytes is None:
            batch_bytes = min(BATCH_BYTES, self.max_message_size)
        check_number("batch_bytes", batch_bytes, 1, self.max_message_size)
        check_number("in_flight", in_flight, 1)
        seconds = self.seconds(timeout_s)

        async def send(outgoing: Outgoing) -> SendResult:
            return self._seen(await self._sender.send(outgoing, queue, None, seconds))

        outgoings = outgoings_of(
            like, bodies, self._next_id, batch_bytes, self._system, self._named, self.hooks
        )
        return await send_all(outgoings, send, in_flight=1 if queue is not None else in_flight)

    async def request(self, message: Message, *, timeout_s: float | None = None) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply (RocketMQ: DefaultMQProducer.request).

        Raises as send() does, and RequestReplyTimeoutError when no reply arrives in time.
        """
        seconds = self.seconds(timeout_s)
        deadline = asyncio.get_running_loop().time() + seconds
        self.check_running()
        check_message(message, self.max_message_size)
        topic = wrap(self.namespace, message.topic)
        if self._requests.is_first(topic):
            await self.routes.find(topic, inherit=True)
            await self.heartbeat()
        with self._requests.expect(seconds) as pending:
            outgoing = self._prepare(message, system=pending.properties)
            await self._sender.send(outgoing, None, None, seconds)
            return await pending.reply(deadline)

    async def reply(
        self, request: ReceivedMessage, body: bytes, *, tags: str | None = None
    ) -> SendResult:
        """Reply to a message that was sent with request(). Raises as send() does."""
        message = reply_message(request, body, tags)
        outgoing = self._prepare(message, system=reply_properties(request))
        outgoing.code = RequestCode.SEND_REPLY_MESSAGE_V2
        return await self._sender.send(outgoing, None, None, self.timeout_s)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic can be sent to. Raises RouteNotFoundError when
        there are none."""
        self.check_running()
        check_topic(topic)
        route = await self.routes.find(wrap(self.namespace, topic), inherit=True)
        return [unwrap_queue(self.namespace, queue) for queue in route.write_queues]

    def _prepare(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        system: Mapping[str, str] | None = None,
    ) -> Outgoing:
        self.check_running()
        check_message(message, self.max_message_size)
        self._check_queue(queue, message.topic)
        if self.hooks or self.namespace:
            message = self._named(message)
        return prepare(
            message,
            self._next_id(),
            compress_from=self.compress_from,
            compression=self.compression,
            system=self._system if system is None else {**self._system, **system},
        )

    def seconds(self, timeout_s: float | None) -> float:
        """The timeout of a call, in seconds. Raises InvalidSettingError."""
        if timeout_s is None:
            return self.timeout_s
        check_seconds("timeout_s", timeout_s)
        return timeout_s

    def _check_queue(self, queue: MessageQueue | None, topic: str) -> None:
        if queue is not None:
            check_queue(queue)
            check_queue(wrap_queue(self.namespace, queue), wrap(self.namespace, topic))

    def _named(self, message: Message) -> Message:
        """Apply the hooks and the namespace to a message, then check it."""
        check_message(message, self.max_message_size)
        for hook in self.hooks:
            message = hook.prepare(message)
        topic = wrap(self.namespace, message.topic)
        if topic != message.topic:
            message = msgspec.structs.replace(message, topic=topic)
        check_message(message, self.max_message_size)
        return message

    def _seen(self, result: SendResult) -> SendResult:
        """The result, with the queue's topic as a program of this namespace names it."""
        if not self.namespace:
            return result
        queue = unwrap_queue(self.namespace, result.queue)
        return msgspec.structs.replace(result, queue=queue)

    async def _leave(self) -> None:
        await asyncio.gather(*self._sends, return_exceptions=True)
        self._blocking.close()
        await end_each(hook.stop for hook in self.hooks)

    def _handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: lambda request, connection: (
                self._requests.arrived(request)
            )
        }

    def _producer_data(self) -> list[ProducerData]:
        return [ProducerData(group_name=self.group)]


def _without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses a BlockingClient and never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise ClientStateError("a blocking send tried to wait for the event loop")
