"""What clients take from lite topics (RocketMQ 5.5: PopLiteMessageProcessor)."""

import asyncio

import msgspec
import numpy
from numpy import int64

from congreve.base.clock import Clock
from congreve.broker.figures.stats import BrokerStats
from congreve.broker.lite.lite_topics import LiteTopics
from congreve.broker.lite.starts import LiteStarts
from congreve.broker.lite.subscriptions import LiteClient, LiteSubscriptions
from congreve.broker.pop.service import Pops
from congreve.engine.errors import PopFullError
from congreve.engine.lite.lite_queue import LiteQueue
from congreve.engine.pop.in_flight import PopWindow
from congreve.records.message.message import Record
from congreve.records.message.topics import light_topic, lite_of

_NONE = numpy.empty((0, 4), int64)
WAITING_MAX = 64
"""Receives of one client that wait for messages."""


class LiteAsked(msgspec.Struct, frozen=True):
    """How many messages a client wants, for how long, in ms; and its attempt's id.

    (RocketMQ 5.5: PopLiteMessageRequestHeader.)
    """

    most: int
    invisible_ms: int
    attempt_id: str | None = None


class LiteTaken(msgspec.Struct):
    """A message that a client took, of which window, at which ms since 1970, and how often the
    group had it before.

    (RocketMQ 5.5: PopLiteMessageProcessor.)
    """

    window: PopWindow
    record: Record
    pop_ms: int
    attempts: int


class LiteTaking:
    """Takes messages of lite topics for clients; one event loop owns it.

    The messages of a lite topic come in their order: none while an earlier one of the group is out.
    One that is not acknowledged comes again, in place. (RocketMQ 5.5: PopLiteMessageProcessor.)
    """

    def __init__(
        self,
        topics: LiteTopics,
        subscriptions: LiteSubscriptions,
        starts: LiteStarts,
        pops: Pops,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._starts = starts
        self._pops = pops
        self._stats = stats
        self._clock = clock
        pops.wake_light = self._wake

    def _wake(self, window: PopWindow) -> None:
        """A window has messages that are due, or none that are out."""
        lite = lite_of(window.topic)
        if lite is not None:
            self._subscriptions.wake(window.group, *lite)

    async def receive(self, client: LiteClient, asked: LiteAsked, wait_s: float) -> list[LiteTaken]:
        """Take messages of a client's lite topics; wait for some. Raises PopFullError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            taken = self.take(client, asked)
            while not taken and client.ready:  # the first ones have become dead letters
                await asyncio.sleep(0)
                taken = self.take(client, asked)
            left_s = until - loop.time()
            self._subscriptions.wake_next(client)
            if taken or left_s <= 0:
                return taken
            if len(client.waiting) >= WAITING_MAX:
                raise PopFullError(f"{WAITING_MAX} receives of client {client.client_id} wait")
            arrived = loop.create_future()
            client.waiting.add(arrived)
            try:
                async with asyncio.timeout(left_s):
                    await arrived
            except TimeoutError:
                return []
            finally:
                client.waiting.discard(arrived)

    def take(self, client: LiteClient, asked: LiteAsked) -> list[LiteTaken]:
        """Take what is there. Raises PopFullError if too many messages are out."""
        now, taken = self._clock.now(), list[LiteTaken]()
        for name in list(client.ready):
            if len(taken) >= asked.most:
                break
            del client.ready[name]
            for queue in self._topics.queues(client.parent):
                if len(taken) < asked.most:
                    taken += self._take_from(
                        client, name, queue, asked, asked.most - len(taken), now
                    )
                else:
                    client.ready[name] = None
        client.holding |= {each.window: None for each in taken}
        if taken:
            self._pops.changed()
            counter = self._stats.pull_counter(client.group, client.parent)
            counter.add(len(taken), sum(len(each.record.body) for each in taken))
        return taken

    def held(self, client: LiteClient) -> int:
        """How many messages a client has whose time is not over."""
        now, held = self._clock.now(), 0
        for window in list(client.holding):
            rows = window.messages_out(window.begin, window.out) if window.out else _NONE
            due_later = int((rows[:, 1] + rows[:, 2] > now).sum())
            if not due_later:
                del client.holding[window]
            held += due_later
        return held

    def _take_from(
        self,
        client: LiteClient,
        name: str,
        queue: LiteQueue,
        asked: LiteAsked,
        most: int,
        now: int,
    ) -> list[LiteTaken]:
        light = light_topic(client.parent, name)
        queue_id = queue.queue.queue_id
        window = self._pops.in_flight.find(client.group, light, queue_id)
        if window is None:
            begin = self._starts.first(queue, name)
            if begin is None:
                return []
            window = self._pops.light_window(client.group, light, queue_id, begin)
        if window.out:
            return self._take_again(window, queue, asked, most, now)
        return self._take_new(window, name, queue, asked, most, now)

    def _take_new(
        self,
        window: PopWindow,
        name: str,
        queue: LiteQueue,
        asked: LiteAsked,
        most: int,
        now: int,
    ) -> list[LiteTaken]:
        offsets = queue.offsets(name, window.next, min(most, window.room))
        if not offsets or not self._pops.is_place_readable(
            queue.queue, offsets[0], lambda: self._wake(window)
        ):
            return []
        records = [self._stored(queue, offset) for offset in offsets]
        window.take(numpy.array(offsets, int64), offsets[-1] + 1, now, asked.invisible_ms, True)
        self._pops.ordered.begin(window, asked.attempt_id)
        taken = []
        for offset, record in zip(offsets, records, strict=True):
            if record is None:
                window.settle(offset, now)
            else:
                taken.append(LiteTaken(window, record, now, 0))
        if not taken:
            self._wake(window)
        return taken

    def _take_again(
        self, window: PopWindow, queue: LiteQueue, asked: LiteAsked, most: int, now: int
    ) -> list[LiteTaken]:
        """The messages that are out, if their time is over or their receiver asks again."""
        ordered, redelivery = self._pops.ordered, self._pops.redelivery
        repeats = ordered.is_attempt(window, asked.attempt_id)
        rows = window.messages_out(window.begin, window.out)
        if not repeats and bool((rows[:, 1] + rows[:, 2] > now).any()):
            return []
        taken = []
        for offset, popped_ms, _, attempts in rows[:most].tolist():
            held = ordered.is_held(window, offset)
            if repeats and held:
                continue
            record = self._stored(queue, offset)
            last = not repeats and attempts >= redelivery.attempts(window.group)
            if record is None or (last and held):
                window.settle(offset, popped_ms)
            elif last:
                redelivery.bury(window, record, popped_ms)
            else:
                change = window.extend if repeats else window.take_again
                change(offset, popped_ms, now, asked.invisible_ms)
                taken.append(LiteTaken(window, record, now, attempts + (not repeats)))
        if not repeats:
            ordered.begin(window, asked.attempt_id)
        if not window.out:  # all have become dead letters: what follows can come
            self._pops.settled(window, ordered=True)
        return taken

    def _stored(self, queue: LiteQueue, offset: int) -> Record | None:
        return self._pops.redelivery.stored(queue.queue.topic, queue.queue.queue_id, offset)

    def give_back(self, taken: list[LiteTaken], invisible_ms: int) -> None:
        """Let messages come again soon whose receiver is gone."""
        for each in taken:
            offset = each.record.queue_offset
            each.window.extend(offset, each.pop_ms, each.pop_ms, invisible_ms)
        self._pops.changed()
