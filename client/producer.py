"""Sends messages (RocketMQ: DefaultMQProducer, DefaultMQProducerImpl)."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from congreve.client.checks import check_batch, check_group, check_message
from congreve.client.faults import LatencyFaults
from congreve.client.ids import UniqueIds
from congreve.client.instance import ClientInstance
from congreve.client.loopthread import LoopThread
from congreve.client.message import Message, MessageQueue, SendResult
from congreve.client.outgoing import Outgoing, prepare, prepare_batches
from congreve.client.sending import Selector, Sender
from congreve.records.record import string_hash
from congreve.remoting.bodies import ProducerData

DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""The name that RocketMQ keeps for itself."""


def by_key(key: str) -> Selector:
    """A selector that puts all messages with one key into one queue (SelectMessageQueueByHash)."""
    digest = abs(string_hash(key))

    def select(queues: Sequence[MessageQueue]) -> MessageQueue:
        return queues[digest % len(queues)]

    return select


class Producer(ClientInstance):
    """Sends messages: ``async with Producer("host:9876", group="g") as producer``.

    Messages go round the queues of their topic. A send that failed is repeated `retries` times, at
    another broker if there is one, within `send_timeout_s` altogether. Bodies of
    `compress_from` bytes or more are compressed; `max_message_size` is for them before that.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        send_timeout_s: float = 3.0,
        retries: int = 2,
        max_message_size: int = 4 * 1024 * 1024,
        compress_from: int = 4096,
        retry_when_not_stored_ok: bool = False,
        latency_faults: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_group(group, DEFAULT_GROUP)
        super().__init__(namesrv, timeout_s=send_timeout_s)
        self.group = group
        self.max_message_size = max_message_size
        self.compress_from = compress_from
        self._next_id = UniqueIds(self.address, clock=clock)
        self._sender = Sender(
            group,
            self.routes,
            self._remoting,
            retries=retries,
            retry_when_not_stored_ok=retry_when_not_stored_ok,
            faults=LatencyFaults() if latency_faults else None,
            clock=clock,
        )

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        With `queue`, or a `selector` that picks one, there is one attempt at that queue alone.
        Raises InvalidNameError or InvalidMessageError before anything is sent; RouteNotFoundError,
        BrokerError, SendTimeoutError, another ClientError or a RemotingError afterwards.
        """
        seconds = self.timeout_s if timeout_s is None else timeout_s
        return await self._sender.send(self._prepare(message), queue, selector, seconds)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send a message that no broker confirms. Raises as send() before it is on its way."""
        outgoing = self._prepare(message)
        await self._sender.send_oneway(outgoing, queue, selector, self.timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic together: a batch gets consecutive offsets in one queue.

        What is over `max_message_size` goes in several batches, with a result for each. Raises as
        send() does; the batches before the failed one are stored then.
        """
        self.check_running()
        check_batch(messages, self.max_message_size)
        batches = list(prepare_batches(messages, self._next_id, body_max=self.max_message_size))
        seconds = self.timeout_s if timeout_s is None else timeout_s
        return [await self._sender.send(batch, queue, None, seconds) for batch in batches]

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Queues that messages of a topic can go to. Raises RouteNotFoundError."""
        self.check_running()
        route = await self.routes.find(topic, inherit=True)
        return list(route.write_queues)

    def _prepare(self, message: Message) -> Outgoing:
        self.check_running()
        check_message(message, self.max_message_size)
        return prepare(message, self._next_id(), compress_from=self.compress_from)

    def _producer_data(self) -> list[ProducerData]:
        return [ProducerData(group_name=self.group)]


class SyncProducer:
    """A Producer for programs without an event loop; it has one in a thread of its own.

    ``with SyncProducer("host:9876", group="g") as producer``; arguments and errors are Producer's.
    Any thread may send.
    """

    def __init__(self, namesrv: str, **settings: Any) -> None:
        self._thread = LoopThread("producer", lambda: Producer(namesrv, **settings))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """See Producer.send()."""
        run, producer = self._thread.run, self._thread.client
        return run(producer.send(message, queue=queue, selector=selector, timeout_s=timeout_s))

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """See Producer.send_oneway()."""
        run, producer = self._thread.run, self._thread.client
        run(producer.send_oneway(message, queue=queue, selector=selector))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """See Producer.send_batch()."""
        run, producer = self._thread.run, self._thread.client
        return run(producer.send_batch(messages, queue=queue, timeout_s=timeout_s))
