"""Sends messages (RocketMQ: DefaultMQProducer, DefaultMQProducerImpl)."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from congreve.client.checks import check_batch, check_group, check_message
from congreve.client.errors import (
    BrokerError,
    BrokerNotFoundError,
    ClientError,
    RouteNotFoundError,
    SendTimeoutError,
)
from congreve.client.ids import UniqueIds
from congreve.client.instance import ClientInstance
from congreve.client.loopthread import LoopThread
from congreve.client.message import Message, MessageQueue, SendResult, SendStatus
from congreve.client.outgoing import Outgoing, prepare, prepare_batches
from congreve.client.route import CREATE_TOPIC_KEY, DEFAULT_TOPIC_QUEUES, TopicRoute
from congreve.records.record import string_hash
from congreve.remoting.bodies import ProducerData
from congreve.remoting.codes import RequestCode, ResponseCode
from congreve.remoting.command import RemotingCommand
from congreve.remoting.errors import HeaderError, RemotingError
from congreve.remoting.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader

logger = logging.getLogger(__name__)

DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""The name that RocketMQ keeps for itself."""

RETRYABLE = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""What a broker may answer that another broker may not."""

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]


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
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_group(group, DEFAULT_GROUP)
        super().__init__(namesrv, timeout_s=send_timeout_s)
        self.group = group
        self.retries = retries
        self.max_message_size = max_message_size
        self.compress_from = compress_from
        self.retry_when_not_stored_ok = retry_when_not_stored_ok
        self._clock = clock
        self._next_id = UniqueIds(self.address, clock=clock)
        self._turn = random.randrange(1 << 16)

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
        return await self._send(self._prepare(message), queue, selector, timeout_s)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send a message that no broker confirms. Raises as send() before it is on its way."""
        outgoing = self._prepare(message)
        route = await self.routes.find(message.topic, inherit=True)
        chosen = queue or self._choose(route, selector, None)
        code, fields = self._request(outgoing, chosen)
        address = self.routes.address(chosen.broker_name)
        await self.tell(address, code, fields, outgoing.body)

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
        return [await self._send(batch, queue, None, timeout_s) for batch in batches]

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Queues that messages of a topic can go to. Raises RouteNotFoundError."""
        self.check_running()
        route = await self.routes.find(topic, inherit=True)
        return list(route.write_queues)

    def _prepare(self, message: Message) -> Outgoing:
        self.check_running()
        check_message(message, self.max_message_size)
        return prepare(message, self._next_id(), compress_from=self.compress_from)

    async def _send(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
    ) -> SendResult:
        seconds = self.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(seconds):
                return await self._send_until_stored(outgoing, queue, selector, seconds)
        except TimeoutError as error:
            raise SendTimeoutError(
                f"message {outgoing.message_id[:32]} to {outgoing.topic} not confirmed within "
                f"{seconds:g} s"
            ) from error

    async def _send_until_stored(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float,
    ) -> SendResult:
        route = await self.routes.find(outgoing.topic, inherit=True)
        attempts = 1 if queue is not None or selector is not None else 1 + max(0, self.retries)
        last_broker: str | None = None
        while True:
            attempts -= 1
            chosen = queue or self._choose(route, selector, last_broker)
            last_broker = chosen.broker_name
            try:
                result = await self._send_to(outgoing, chosen, timeout_s)
            except (BrokerError, BrokerNotFoundError, RemotingError) as error:
                if not attempts or not _is_retryable(error):
                    raise
                logger.info("sending to %s again, %d left: %s", route.topic, attempts, error)
                continue
            stored_ok = result.status == SendStatus.SEND_OK or not self.retry_when_not_stored_ok
            if stored_ok or not attempts:
                return result

    async def _send_to(
        self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float
    ) -> SendResult:
        address = self.routes.address(queue.broker_name)
        code, fields = self._request(outgoing, queue)
        answer = await self.ask(address, code, fields, outgoing.body, timeout_s=timeout_s)
        return _result(answer, address, outgoing, queue)

    def _choose(
        self, route: TopicRoute, selector: Selector | None, last_broker: str | None
    ) -> MessageQueue:
        """The next queue in turn, of another broker than the last one if there is another."""
        queues = route.write_queues
        if not queues:
            raise RouteNotFoundError(f"topic {route.topic} has no queue that may be written to")
        if selector is not None:
            return selector(queues)
        for _ in queues:
            self._turn += 1
            queue = queues[self._turn % len(queues)]
            if queue.broker_name != last_broker:
                return queue
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> tuple[int, dict[str, str]]:
        header = SendMessageRequestHeaderV2(
            producer_group=self.group,
            topic=outgoing.topic,
            default_topic=CREATE_TOPIC_KEY,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=int(self._clock() * 1000),
            flag=outgoing.flag,
            properties=outgoing.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=outgoing.is_batch,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
        return code, header.fields()

    def _producer_data(self) -> list[ProducerData]:
        return [ProducerData(group_name=self.group)]


def _is_retryable(error: ClientError | RemotingError) -> bool:
    return not isinstance(error, BrokerError) or error.code in RETRYABLE


def _result(
    answer: RemotingCommand, address: str, outgoing: Outgoing, queue: MessageQueue
) -> SendResult:
    try:
        status = SendStatus(answer.code)
    except ValueError as error:
        raise BrokerError(answer.code, answer.remark, address) from error
    try:
        header = SendMessageResponseHeader.read(answer)
    except HeaderError as error:
        raise BrokerError(answer.code, str(error), address) from error
    return SendResult(
        status=status,
        message_id=outgoing.message_id,
        offset_message_id=header.msg_id,
        queue=MessageQueue(
            topic=queue.topic, broker_name=queue.broker_name, queue_id=header.queue_id
        ),
        queue_offset=header.queue_offset,
    )


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
