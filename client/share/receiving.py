"""Receives messages from any queue of a consumer (RocketMQ 5: DefaultMQPushConsumerImpl.popMessage;
SimpleConsumer.receive)."""

import asyncio
import time
from collections import deque

from congreve.base.errors import CongreveError
from congreve.client.message import MessageQueue
from congreve.client.share.in_flight import InFlight
from congreve.client.share.popping import Popped, Popper
from congreve.client.share.settings import POP_MAX
from congreve.client.share.targets import Targets
from congreve.remoting.errors import RemotingError

LOOK_S = 5.0
"""Longest wait for the news of several brokers before all are asked again, in seconds."""
SPIN_S = 0.1
"""Pause after news of a message that another member took, in seconds."""
RETRY_S = 0.5
"""Pause after no broker answered, in seconds."""


class Receiving:
    """Takes messages for a program that asks for them. A pop whose task was cancelled goes on, and
    its messages wait for the next one.

    (RocketMQ 5: SimpleConsumer.receive.)
    """

    def __init__(self, popper: Popper, targets: Targets, in_flight: InFlight) -> None:
        self._popper = popper
        self._targets = targets
        self._in_flight = in_flight
        self._left: deque[Popped] = deque()
        self._turn = 0

    def take_left(self) -> Popped | None:
        """What a cancelled call received."""
        while self._left:
            popped = self._left.popleft()
            receipts = [receipt for receipt in popped.receipts if not receipt.is_over]
            self._in_flight.release(popped.receipts)
            if len(receipts) == len(popped.receipts):
                return popped
        return None

    async def receive(
        self, count: int, wait_s: float, invisible_s: float | None = None
    ) -> Popped | None:
        """Take up to `count` messages of one topic and broker; None when there was none in `wait_s`
        seconds. A broker that does not answer is asked again until then. Raises BrokerError when
        all brokers refuse, RemotingError when they do not answer."""
        deadline = time.monotonic() + wait_s
        was_told = False
        while True:
            if (popped := self.take_left()) is not None:
                return popped
            queues = self._in_turn()
            pause_s = SPIN_S if was_told else 0.0
            try:
                if len(queues) == 1:
                    left_s = max(0.0, deadline - time.monotonic())
                    popped = await self.pop(queues[0], count, left_s, invisible_s)
                else:
                    popped = await self._sweep(queues, count, invisible_s)
            except RemotingError:
                pause_s = RETRY_S
                if time.monotonic() + pause_s >= deadline:
                    raise
            left_s = deadline - time.monotonic()
            if popped is not None or left_s <= 0:
                return popped
            # A pop may find nothing although there was news: another member was faster.
            await asyncio.sleep(min(pause_s, left_s))
            was_told = len(queues) != 1 and await self._await_news(queues, min(left_s, LOOK_S))

    def _in_turn(self) -> list[MessageQueue]:
        queues = self._targets.queues
        self._turn = (self._turn + 1) % max(1, len(queues))
        return queues[self._turn :] + queues[: self._turn]

    async def _sweep(
        self, queues: list[MessageQueue], count: int, invisible_s: float | None
    ) -> Popped | None:
        failure: CongreveError | None = None
        failed = 0
        for queue in queues:
            try:
                popped = await self.pop(queue, count, 0.0, invisible_s)
            except CongreveError as error:
                failure, failed = error, failed + 1
                continue
            if popped is not None:
                return popped
        if failure is not None and failed == len(queues):
            raise failure
        return None

    async def pop(
        self, queue: MessageQueue, count: int, wait_s: float, invisible_s: float | None = None
    ) -> Popped | None:
        """Take messages of one queue, at most as many as there is room for."""
        room = await self._in_flight.reserve(min(count, POP_MAX), time.monotonic() + wait_s)
        if not room:
            return None
        task = asyncio.create_task(self._pop(queue, room, wait_s, invisible_s))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._leave)
            raise

    async def _pop(
        self, queue: MessageQueue, room: int, wait_s: float, invisible_s: float | None
    ) -> Popped | None:
        popped = None
        try:
            popped = await self._popper.pop(queue, room, wait_s, invisible_s)
        finally:
            self._in_flight.add(room, [] if popped is None else popped.receipts)
        return popped

    def _leave(self, task: "asyncio.Task[Popped | None]") -> None:
        if task.cancelled() or task.exception() is not None:
            return
        if (popped := task.result()) is not None:
            self._in_flight.keep(popped.receipts)
            self._left.append(popped)

    async def _await_news(self, queues: list[MessageQueue], wait_s: float) -> bool:
        """Wait until a broker says that it has a message; returns whether one did."""
        asking = [
            asyncio.create_task(self._popper.await_messages(queue, wait_s)) for queue in queues
        ]
        end = time.monotonic() + wait_s
        try:
            for answer in asyncio.as_completed(asking, timeout=wait_s):
                try:
                    if await answer:
                        return True
                except CongreveError:
                    continue  # the next sweep reports it if no broker answers
        except TimeoutError:
            return False
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        await asyncio.sleep(max(0.0, min(RETRY_S, end - time.monotonic())))
        return False
