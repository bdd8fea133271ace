"""The batches of ordered pops that are out, one a queue."""

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

    A member that lets a message come again later needs those behind it after that, in their order.
    So what it acknowledges behind a changed message is settled with that, or comes again with it.
    A restart forgets that one was held: it comes again, too.
    """

    def __init__(self) -> None:
        self._batches: dict[Place, Batch] = {}

    def begin(self, window: PopWindow, attempt_id: str | None) -> None:
        """Note who receives a batch."""
        self.end(window)
        if attempt_id is not None:
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
        return answer

    def ack(self, window: PopWindow, offset: int, pop_ms: int) -> Answer:
        """Settle a message, or hold its acknowledgement."""
        batch = self._batches.get(_place(window))
        if batch is None:
            return window.ack(offset, pop_ms)
        before = [changed for changed in batch.changed if changed < offset]
        if before:
            _, invisible_ms = batch.changed[min(before)]
            answer = window.extend(offset, pop_ms, pop_ms, invisible_ms)
            if answer is Answer.DONE:
                batch.held[offset] = pop_ms
            return answer
        answer = window.ack(offset, pop_ms)
        if answer is Answer.DONE and batch.changed.pop(offset, None) is not None:
            first = min(batch.changed, default=window.next)
            for held in [held for held in batch.held if held < first]:
                window.ack(held, batch.held.pop(held))
        return answer


def _place(window: PopWindow) -> Place:
    return window.group, window.topic, window.queue_id
