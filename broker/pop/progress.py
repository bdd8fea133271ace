"""How far the pops of a group are."""

from typing import NamedTuple

from congreve.engine.pop.in_flight import PopWindow
from congreve.engine.store import MessageStore


class PopProgress(NamedTuple):
    """How far the pops of a group are in a queue; counts are of messages (RocketMQ: OffsetWrapper).

    `without_order`: the topic's messages have an order that the group's pops do not ask for.

    The last two are since the start of the broker.
    """

    next_offset: int
    out: int
    oldest_ms: int | None
    without_order: bool
    came_again: int
    dead_letters: int


def age_of_oldest(window: PopWindow, store: MessageStore) -> int | None:
    """The time in ms since the oldest message that is out was stored, None if none is out.

    For one that is not in memory: since it was popped.
    """
    for offset, popped_ms, *_ in window.messages_out(window.begin, 1).tolist():
        stored_ms, _ = store.store_time_in_memory(window.topic, window.queue_id, offset)
        return max(store.clock.now() - (stored_ms if stored_ms >= 0 else int(popped_ms)), 0)
    return None
