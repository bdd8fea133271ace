"""Consumes messages that brokers hand out one by one (RocketMQ 5: SimpleConsumer,
DefaultMQPushConsumer whose broker balances)."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Unpack

from congreve.base.errors import CongreveError
from congreve.client.checks import check_number, check_seconds
from congreve.client.consumer.listening import BatchListener, Listener, Listening, check_listeners
from congreve.client.consumer.send_back import DEAD_LETTER, SendBack
from congreve.client.errors import BrokerError, ClientStateError, InvalidSettingError
from congreve.client.logs import Log
from congreve.client.message import MessageQueue, ReceivedMessage
from congreve.client.namespace import unwrap
from congreve.client.pull.pulling import HEARTBEAT_MISSED
from congreve.client.receipt import Receipt
from congreve.client.share.columns import ReceivedColumns, to_columns
from congreve.client.share.in_flight import InFlight
from congreve.client.share.member import ShareMember, ShareOptions
from congreve.client.share.orderly import OrderlyWorkers
from congreve.client.share.popping import Popped, Popper
from congreve.client.share.receiving import Receiving
from congreve.client.share.running_info import ShareRunningInfo
from congreve.client.share.settings import INVISIBLE_MAX_S, POP_MAX
from congreve.client.share.settling import Settling
from congreve.client.share.workers import Workers, receipts_of
from congreve.client.subscription import Sql
from congreve.client.transport.client_thread import SyncClient, blocking
from congreve.client.transport.options import check_options

log = Log(__name__)

RECEIVE_S = 20.0
"""How long receive() waits by default, in seconds."""
BATCH_ROWS = 32_768

Received = ReceivedMessage | ReceivedColumns | Iterable[ReceivedMessage]


class ShareConsumer(ShareMember):
    """Gets messages that brokers hand out one by one to the members of a group, and settles each by
    itself: no queue belongs to a member, so members come and go without a rebalance::

        async with ShareConsumer("host:9876", group="g", topics={"T": "*"}) as consumer:
            for message in await consumer.receive():
                ...
                await consumer.ack(message)

    or, with a listener, which settles its message::

        async with ShareConsumer("host:9876", group="g", topics={"T": "A"}, listener=work):
            await asyncio.Event().wait()

    The broker hands out again, to any member, what is not settled in settings.invisible_s seconds.
    A listener's message is extended until the listener ends, at most for
    settings.consume_timeout_s; when it raises or returns ConsumeResult.LATER, the message comes
    again after settings.retry_delays_s, and is a dead letter after settings.max_reconsume_times.
    `topics`, listeners, `hooks` and `metrics` are those of PushConsumer, other options those of
    GroupClient; `consume_from` is FIRST_OFFSET or LAST_OFFSET. Needs Congreve or RocketMQ 5.

    With `orderly` the messages of each queue come in their order, and of what was received of a
    queue all must be settled, or its time be over, before the broker hands out more of it. What is
    not settled comes again in its place. A listener gets the messages of a queue one after another;
    one that it fails on holds the others, is tried again here, and goes to the dead letter queue
    after settings.max_reconsume_times.

    Methods raise BrokerError when a broker refuses, RemotingError when it does not answer; a
    message is not settled then. (RocketMQ 5: SimpleConsumer, DefaultMQPushConsumer.)
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        **options: Unpack[ShareOptions],
    ) -> None:
        check_options(self, options, ShareOptions)
        super().__init__(namesrv, group=group, topics=topics, **options)
        check_listeners(listener, batch_listener)
        self._listener, self._batch_listener = listener, batch_listener
        settings = self.settings
        self._settling = Settling(self)
        self._in_flight = InFlight(
            self._settling,
            limit=settings.max_in_flight,
            invisible_s=settings.invisible_s,
            keep_s=settings.consume_timeout_s,
        )
        self._popper = Popper(
            *(self, self.subscriptions, settings.invisible_s, self.consume_from),
            orderly=self.orderly,
        )
        self._receiving = Receiving(self._popper, self._targets, self._in_flight)
        info = ShareRunningInfo(self, self._in_flight, self._popper.popped_ms)
        self._running_info = info.collect
        self._sending_back = SendBack(self, settings.attempts)
        self._workers: Workers | None = None
        self._pops: dict[MessageQueue, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Join the group and start the listener's workers. Raises as ShareMember.start() does."""
        await super().start()
        self._begin_task("the extension of messages", self._in_flight.keep_all)
        if self._listener is not None or self._batch_listener is not None:
            self._workers = self._make_workers()
            self._workers.start()
            self._queues_changed()

    def _make_workers(self) -> Workers:
        settings = self.settings
        listening = Listening(
            self._listener,
            self._batch_listener,
            batch=settings.consume_batch,
            threads=settings.concurrency,
            hooks=self.hooks,
            group=unwrap(self.namespace, self.group),
            timeout_s=settings.consume_timeout_s,
        )
        kind = OrderlyWorkers if self.orderly else Workers
        return kind(
            settings, listening, self._in_flight, self._settling, self.stats, self.dead_letter
        )

    @property
    def in_flight(self) -> int:
        """How many messages this consumer has received and not settled."""
        return len(self._in_flight)

    # --- receiving

    async def receive(
        self,
        max_count: int = POP_MAX,
        *,
        wait_s: float = RECEIVE_S,
        invisible_s: float | None = None,
    ) -> list[ReceivedMessage]:
        """Return up to `max_count` messages, at most 32, an empty list when none comes in `wait_s`
        seconds.

        They are this consumer's for `invisible_s`, by default settings.invisible_s. While
        settings.max_in_flight messages are not settled, it waits, too. What a cancelled call has
        received is what the next one returns.
        """
        self._check_receiving(max_count, wait_s, invisible_s)
        began = asyncio.get_running_loop().time()
        while True:
            popped = await self._receiving.receive(max_count, wait_s, invisible_s)
            if popped is None:
                return []
            if messages := await self._messages_of(popped):
                self._note_received(messages, began)
                return messages

    async def receive_columns(
        self,
        columns: Iterable[str] | None = None,
        *,
        max_rows: int = BATCH_ROWS,
        wait_s: float = RECEIVE_S,
        invisible_s: float | None = None,
    ) -> ReceivedColumns | None:
        """Return messages as an Arrow record batch, None when there is none for `wait_s` seconds;
        no message becomes a Python object.

        `columns` are names of records.arrow.TYPES, all of them by default. The batch holds messages
        of one topic and broker, about `max_rows` at most, and as many as wait there; for a message
        that comes again queueId and queueOffset are those in the retry topic. ack(), nack() and
        extend() take it as a whole. This needs the extra `arrow`. Raises RecordError when a
        column is unknown or a record is damaged.
        """
        self._check_receiving(max_rows, wait_s, invisible_s)
        first = await self._receiving.receive(max_rows, wait_s, invisible_s)
        if first is None:
            return None
        taken = [first]
        rows = len(first.receipts)
        while rows < max_rows:
            more = await self._receiving.pop(first.queue, max_rows - rows, 0.0, invisible_s)
            if more is None:
                break
            taken.append(more)
            rows += len(more.receipts)
        subscription = self.subscriptions[first.queue.topic]
        return to_columns(taken, columns, subscription, self.namespace)

    def _check_receiving(self, count: int, wait_s: float, invisible_s: float | None) -> None:
        self.check_running()
        if self._workers is not None:
            raise ClientStateError("this consumer has a listener, which gets its messages")
        check_number("max_count", count, 1)
        check_seconds("wait_s", wait_s, above_zero=False)
        if invisible_s is not None:
            _check_invisible(invisible_s)

    async def _messages_of(self, popped: Popped) -> list[ReceivedMessage]:
        subscription = self.subscriptions[popped.queue.topic]
        messages, others = popped.messages(subscription, self.namespace)
        if others:
            await self._ack(others)
        return messages

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over arriving messages. A message is acknowledged when the program requests the
        next one, and extended until then; what it leaves comes again."""
        messages: list[ReceivedMessage] = []
        try:
            while True:
                messages = await self.receive()
                self._in_flight.keep(receipts_of(messages))
                while messages:
                    yield messages[0]
                    await self.ack(messages.pop(0))
        finally:
            await self._give_back(messages)

    async def _give_back(self, messages: list[ReceivedMessage]) -> None:
        """Let messages that an iteration left come again at once."""
        try:
            await self.nack(messages)
        except CongreveError as error:
            log.info("messages come again later", messages=messages, error=error)
            self._in_flight.release(receipts_of(messages))

    # --- settling

    async def ack(self, received: Received) -> None:
        """Acknowledge a message, several, or columns: the group does not get them again.

        Idempotent. Acknowledgements of concurrent tasks share requests.
        """
        await self._ack(_receipts(received))

    async def _ack(self, receipts: list[Receipt]) -> None:
        self.check_running()
        await self._settling.ack(receipts)
        self._in_flight.discard(receipts)

    async def nack(self, received: Received, *, delay_s: float = 0.0) -> None:
        """Let messages come again after `delay_s` seconds, to any member; here they are settled."""
        check_seconds("delay_s", delay_s, above_zero=False)
        receipts = _receipts(received)
        self.check_running()
        await self._settling.extend_all(receipts, delay_s, settles=True)
        self._in_flight.discard(receipts)

    async def extend(self, received: Received, *, invisible_s: float | None = None) -> None:
        """Keep messages for `invisible_s` seconds from now on, by default
        settings.invisible_s."""
        if invisible_s is None:
            invisible_s = self.settings.invisible_s
        _check_invisible(invisible_s)
        self.check_running()
        await self._settling.extend_all(_receipts(received), invisible_s)

    async def dead_letter(self, message: ReceivedMessage) -> None:
        """Send a message to the dead letter queue of its group; here it is settled."""
        self.check_running()
        await self._sending_back.send(message, DEAD_LETTER)
        await self.ack(message)

    # --- the listener

    def _queues_changed(self) -> None:
        self._popper.keep_only(self.queues)
        if self._workers is None:
            return
        wanted = set(self._targets.queues)
        for queue in set(self._pops) - wanted:
            self._pops.pop(queue).cancel()
        for queue in wanted - set(self._pops):
            self._pops[queue] = asyncio.create_task(self._pop_queue(queue, self._workers))

    async def _pop_queue(self, queue: MessageQueue, workers: Workers) -> None:
        while True:
            try:
                await self._pop_once(queue, workers)
            except Exception:
                log.exception("pop failed", group=self.group, queue=queue)
                await asyncio.sleep(self.settings.pause_after_error_s)

    async def _pop_once(self, queue: MessageQueue, workers: Workers) -> None:
        loop, settings = asyncio.get_running_loop(), self.settings
        await workers.wait_for_room()
        began = loop.time()
        try:
            popped = await self._receiving.pop(queue, POP_MAX, settings.wait_s)
            messages = [] if popped is None else await self._messages_of(popped)
        except CongreveError as error:
            log.warning("pop failed", group=self.group, queue=queue, error=error)
            if isinstance(error, BrokerError) and error.code in HEARTBEAT_MISSED:
                # A restarted broker has no clients until they send a heartbeat.
                await self.heartbeat()
            self.routes.note_error(error)
            await asyncio.sleep(settings.pause_after_error_s)
            return
        self.stats.pulled(queue.topic, len(messages), loop.time() - began)
        if messages:
            await workers.deliver(messages)

    async def _leave(self) -> None:
        pops, self._pops = list(self._pops.values()), {}
        for task in pops:
            task.cancel()
        await asyncio.gather(*pops, return_exceptions=True)
        if self._workers is not None:
            await self._workers.stop()
        await super()._leave()


def _check_invisible(seconds: float) -> None:
    check_seconds("invisible_s", seconds)
    if seconds > INVISIBLE_MAX_S:
        raise InvalidSettingError(
            f"invisible_s is {seconds!r}: at most {INVISIBLE_MAX_S:.0f} is expected"
        )


def _receipts(received: Received) -> list[Receipt]:
    """Raises ClientStateError when a message does not come from a share consumer."""
    if isinstance(received, ReceivedColumns):
        return received.receipts
    messages = [received] if isinstance(received, ReceivedMessage) else list(received)
    receipts = receipts_of(messages)
    if len(receipts) < len(messages):
        raise ClientStateError("only what a ShareConsumer received can be settled")
    return receipts


class SyncShareConsumer(SyncClient[ShareConsumer]):
    """A ShareConsumer for programs without an event loop: listeners run in threads.

    ``with SyncShareConsumer("host:9876", group="g", topics={"T": "*"}) as consumer``; arguments,
    results and errors are those of ShareConsumer. (RocketMQ 5: SimpleConsumer.)
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str,
        topics: Mapping[str, str | Sql],
        listener: Listener | None = None,
        batch_listener: BatchListener | None = None,
        **options: Unpack[ShareOptions],
    ) -> None:
        check_options(self, options, ShareOptions)

        def make() -> ShareConsumer:
            return ShareConsumer(
                namesrv,
                group=group,
                topics=topics,
                listener=listener,
                batch_listener=batch_listener,
                **options,
            )

        super().__init__("share consumer", make)

    receive = blocking(ShareConsumer.receive)
    receive_columns = blocking(ShareConsumer.receive_columns)
    ack = blocking(ShareConsumer.ack)
    nack = blocking(ShareConsumer.nack)
    extend = blocking(ShareConsumer.extend)
    dead_letter = blocking(ShareConsumer.dead_letter)
