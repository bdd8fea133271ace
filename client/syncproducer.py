"""Producers for programs without an event loop (RocketMQ: DefaultMQProducer)."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from congreve.client.loopthread import LoopThread
from congreve.client.message import Message, MessageQueue, ReceivedMessage, SendResult
from congreve.client.producer import Producer
from congreve.client.sending import Selector
from congreve.client.transaction import TransactionProducer, TransactionResult, TransactionState

SyncExecute = Callable[[Message, SendResult], TransactionState]
SyncCheck = Callable[[ReceivedMessage], TransactionState]


class SyncProducer:
    """A Producer with an event loop in a thread of its own.

    ``with SyncProducer("host:9876", group="g") as producer``; arguments, options and errors are
    Producer's. Any thread may send.
    """

    def __init__(self, namesrv: str, **settings: Any) -> None:
        self._thread = LoopThread("producer", lambda: self._make(namesrv, settings))

    def _make(self, namesrv: str, settings: dict[str, Any]) -> Producer:
        return Producer(namesrv, **settings)

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
        """See Producer.send(). This thread itself asks the broker once the topic is known; hooks,
        which belong to the event loop, are left to its thread."""
        producer = self._thread.client
        if self._asks_itself(message):
            return producer.send_blocking(
                message, queue=queue, selector=selector, timeout_s=timeout_s
            )
        return self._thread.run(
            producer.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def _asks_itself(self, message: Message) -> bool:
        producer = self._thread.client
        return (
            self._thread.is_running
            and not producer.hooks
            and isinstance(message, Message)
            and producer.knows(message.topic)
        )

    def send_soon(
        self,
        message: Message,
        callback: Callable[[Future[SendResult]], None] | None = None,
        **options: Any,
    ) -> Future[SendResult]:
        """Send without waiting; `callback` gets the future when it is done, in the loop's thread.

        It must not block. Options and errors are send()'s; an error is the future's.
        """
        future = self._thread.submit(self._thread.client.send(message, **options))
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """See Producer.send_oneway()."""
        producer = self._thread.client
        if self._asks_itself(message):
            producer.send_oneway_blocking(message, queue=queue, selector=selector)
        else:
            self._thread.run(producer.send_oneway(message, queue=queue, selector=selector))

    def send_batch(self, messages: Sequence[Message], **options: Any) -> list[SendResult]:
        """See Producer.send_batch()."""
        return self._thread.run(self._thread.client.send_batch(messages, **options))

    def send_many(self, topic: str, bodies: Any, **options: Any) -> list[SendResult]:
        """See Producer.send_many()."""
        return self._thread.run(self._thread.client.send_many(topic, bodies, **options))

    def request(self, message: Message, **options: Any) -> ReceivedMessage:
        """See Producer.request()."""
        return self._thread.run(self._thread.client.request(message, **options))

    def reply(self, request: ReceivedMessage, body: bytes, **options: Any) -> SendResult:
        """See Producer.reply()."""
        return self._thread.run(self._thread.client.reply(request, body, **options))


class SyncTransactionProducer(SyncProducer):
    """A TransactionProducer with an event loop in a thread of its own.

    `check` and what is executed run in threads, `check` for one question at a time.
    """

    def _make(self, namesrv: str, settings: dict[str, Any]) -> Producer:
        ask: SyncCheck = settings.pop("check")

        async def check(message: ReceivedMessage) -> TransactionState:
            return await asyncio.to_thread(ask, message)

        self._producer = TransactionProducer(namesrv, check=check, **settings)
        return self._producer

    def send_in_transaction(
        self, message: Message, execute: SyncExecute, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """See TransactionProducer.send_in_transaction()."""

        async def run(message: Message, sent: SendResult) -> TransactionState:
            return await asyncio.to_thread(execute, message, sent)

        sending = self._producer.send_in_transaction(message, run, timeout_s=timeout_s)
        return self._thread.run(sending)
