"""Producers for programs without an event loop (RocketMQ: DefaultMQProducer)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Unpack

from congreve.client.errors import InvalidSettingError
from congreve.client.message import Message, MessageQueue, ReceivedMessage
from congreve.client.producer.producer import Producer, ProducerOptions
from congreve.client.producer.sending import Selector
from congreve.client.producer.transaction import (
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from congreve.client.results import SendResult
from congreve.client.transport.client_thread import ClientThread, SyncClient, SyncPart, blocking
from congreve.client.transport.options import check_options

SyncExecute = Callable[[Message, SendResult], TransactionState]
SyncCheck = Callable[[ReceivedMessage], TransactionState]


class SyncProducer(SyncClient[Producer]):
    """A Producer for programs without an event loop.

    ``with SyncProducer("host:9876", group="g") as producer``; arguments, options and errors are
    those of Producer. Any thread may send. (RocketMQ: DefaultMQProducer.)
    """

    def __init__(self, namesrv: str, *, group: str, **options: Unpack[ProducerOptions]) -> None:
        check_options(self, options, ProducerOptions)
        super().__init__("producer", lambda: Producer(namesrv, group=group, **options))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """See Producer.send().

        Once the route of the topic is cached, the calling thread sends the request itself, unless
        the producer has hooks, which run in the event loop.
        """
        producer = self._part
        if self._sends_itself(message):
            return producer.send_blocking(
                message, queue=queue, selector=selector, timeout_s=timeout_s
            )
        return self._thread.run(
            producer.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
        )

    def _sends_itself(self, message: Message) -> bool:
        producer = self._part
        return (
            self._thread.is_running
            and not producer.hooks
            and isinstance(message, Message)
            and producer.has_route(message.topic)
        )

    def send_soon(
        self,
        message: Message,
        callback: Callable[[Future[SendResult]], None] | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Future[SendResult]:
        """Send without waiting for the answer; `callback` gets the future when it is done, in the
        loop's thread. While `max_in_flight` futures are not done, this call waits, up to the send's
        timeout.

        The callback must not block. Options and errors are those of send(); an error is set on the
        future.
        """
        taken = self._take_slot(timeout_s)
        try:
            future = self._thread.submit(
                self._part.send(message, queue=queue, selector=selector, timeout_s=timeout_s)
            )
        except BaseException:
            if taken:
                self._part.in_flight.for_threads.release()
            raise
        if taken:
            future.add_done_callback(lambda _: self._part.in_flight.for_threads.release())
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _take_slot(self, timeout_s: float | None) -> bool:
        """Wait for a slot; False when none is free in time, or without waiting in a callback: the
        loop's thread frees them. The send itself waits then."""
        if self._thread.is_current:
            return self._part.in_flight.for_threads.acquire(blocking=False)
        try:
            seconds = self._part.seconds(timeout_s)
        except InvalidSettingError:  # the send raises it, on its future
            seconds = 0.0
        return self._part.in_flight.for_threads.acquire(timeout=seconds)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """See Producer.send_oneway()."""
        producer = self._part
        if self._sends_itself(message):
            producer.send_oneway_blocking(message, queue=queue, selector=selector)
        else:
            self._thread.run(producer.send_oneway(message, queue=queue, selector=selector))

    queues = blocking(Producer.queues)
    send_batch = blocking(Producer.send_batch)
    send_many = blocking(Producer.send_many)
    request = blocking(Producer.request)
    reply = blocking(Producer.reply)


class SyncTransactionProducer(SyncProducer):
    """A TransactionProducer for programs without an event loop.

    `check` and the local work run in threads, `check` for one transaction at a time.
    (RocketMQ: TransactionMQProducer.)
    """

    def __init__(
        self, namesrv: str, *, group: str, check: SyncCheck, **options: Unpack[ProducerOptions]
    ) -> None:
        check_options(self, options, ProducerOptions)

        async def ask(message: ReceivedMessage) -> TransactionState:
            return await asyncio.to_thread(check, message)

        def make() -> TransactionProducer:
            return TransactionProducer(namesrv, group=group, check=ask, **options)

        self._transactions = ClientThread("producer", make)
        SyncPart.__init__(self, self._transactions, self._transactions.client)

    def send_in_transaction(
        self, message: Message, execute: SyncExecute, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """See TransactionProducer.send_in_transaction()."""

        async def run(message: Message, sent: SendResult) -> TransactionState:
            return await asyncio.to_thread(execute, message, sent)

        sending = self._transactions.client.send_in_transaction(message, run, timeout_s=timeout_s)
        return self._transactions.run(sending)
