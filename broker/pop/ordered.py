"""The batches of ordered pops that are out, one a queue."""

from math import inf

import msgspec

from congreve.broker.metadata.offsets import Place
from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.pop.results import Answer
from congreve.records.message.topics import light_topic


class Batch(msgspec.Struct):
    """A batch that is out: who receives it, when changed messages of it are due (pop time and
    invisible time in ms, by offset), and the pop times of those whose acknowledgement is held.

    (RocketMQ: OrderInfo.)
    """

    attempt_id: str | None = None
    changed: dict[int, tuple[int, int]] = {}
    held: dict[int, int] = {}


class OrderedBatches:
    """What ordered pops have taken; the event loop owns it. (RocketMQ: QueueLevelConsumerManager.)

    A message that comes again may need those behind it after that, in their order. So the
    acknowledgement of a message is held while one before it is out: with that it is settled, or
    comes again. A receiver with an attempt id keeps the order of its messages itself: it needs that
    only behind messages that it has changed. A restart forgets batches; what was held comes again.
    """

    def __init__(self) -> None:
        self._batches: dict[Place, Batch] = {}

    def begin(self, window: PopWindow, attempt_id: str | None) -> None:
        """Note who receives a batch."""
        self._batches[_place(window)] = Batch(attempt_id)

    def end(self, window: PopWindow) -> None:
        """Forget the batch of a queue."""
        self._batches.pop(_place(window), None)

    def forget(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Forget a group, or a topic with its lite topics."""
        light = light_topic(topic or "", "")
        for place in list(self._batches):
            if group == place[0] or topic == place[1] or place[1].startswith(light):
                del self._batches[place]

    def is_attempt(self, window: PopWindow, attempt_id: str | None) -> bool:
        """Whether the receiver of the batch that is out asks again."""
        batch = self._batches.get(_place(window))
        return attempt_id is not None and batch is not None and batch.attempt_id == attempt_id

    def is_held(self, window: PopWindow, offset: int) -> bool:
        """Whether the acknowledgement of a message is held."""
        batch = self._batches.get(_place(window))
        return batch is not None and offset in batch.held

    def change(self, window: PopWindow, offset: int, pop_ms: int, invisible_ms: int) -> Answer:
        """Let a message come again at another time; its pop time stays."""
        answer = window.extend(offset, pop_ms, pop_ms, invisible_ms)
        if answer is Answer.DONE:
            batch = self._batches.setdefault(_place(window), Batch())
            batch.changed[offset] = pop_ms, invisible_ms
            batch.held.pop(offset, None)
            for held, held_ms in batch.held.items():
                self._wait_with_changed(window, batch, held, held_ms)
        return answer

    def ack(self, window: PopWindow, offset: int, pop_ms: int) -> Answer:
        """Settle a message and those held behind it, or hold its acknowledgement."""
        batch = self._batches.get(_place(window))
        if batch is None:
            return window.ack(offset, pop_ms)
        out = window.messages_out(window.begin, window.out)[:, :2].tolist()
        if self._first(batch, out) < offset and [offset, pop_ms] in out:
            batch.held[offset] = pop_ms
            batch.changed.pop(offset, None)
            self._wait_with_changed(window, batch, offset, pop_ms)
            return Answer.DONE
        answer = window.ack(offset, pop_ms)
        if answer is Answer.DONE:
            batch.changed.pop(offset, None)
            first = self._first(batch, [each for each in out if each[0] != offset])
            for held in [held for held in batch.held if held < first]:
                window.ack(held, batch.held.pop(held))
        return answer

    def _first(self, batch: Batch, out: list[list[int]]) -> float:
        """The first message that holds the acknowledgements of those behind it."""
        if batch.attempt_id is not None:
            return min(batch.changed, default=inf)
        return next((offset for offset, _ in out if offset not in batch.held), inf)

    def _wait_with_changed(self, window: PopWindow, batch: Batch, offset: int, pop_ms: int) -> None:
        """Let a held message be due with the first changed one before it."""
        before = [changed for changed in batch.changed if changed < offset]
        if before:
            _, invisible_ms = batch.changed[min(before)]
            window.extend(offset, pop_ms, pop_ms, invisible_ms)


def _place(window: PopWindow) -> Place:
    return window.group, window.topic, window.queue_id
