"""Messages that are out, as plain Python keeps them: what the compiled windows must do."""

from __future__ import annotations

from dataclasses import dataclass, field

from congreve.engine.pop.in_flight import InFlight
from congreve.engine.pop.results import Answer

Key = tuple[str, str, int]
State = dict[Key, tuple[int, int, list[list[int]]]]
"""Of each window: begin, next, and rows of what is out."""


@dataclass
class Out:
    pop_ms: int
    invisible_ms: int
    attempts: int = 0
    ordered: bool = False
    given: bool = False

    @property
    def due_ms(self) -> int:
        return self.pop_ms + self.invisible_ms


@dataclass
class Window:
    next: int
    out: dict[int, Out] = field(default_factory=dict)

    @property
    def begin(self) -> int:
        return min(self.out, default=self.next)

    def answer(self, offset: int, pop_ms: int) -> Answer:
        if offset >= self.next:
            return Answer.UNKNOWN
        if offset not in self.out:
            return Answer.REPEATED
        return Answer.DONE if self.out[offset].pop_ms == pop_ms else Answer.STALE

    def rows(self) -> list[list[int]]:
        return [
            [offset, out.pop_ms, out.invisible_ms, out.attempts]
            for offset, out in sorted(self.out.items())
        ]


class Model:
    """The windows of a store."""

    def __init__(self) -> None:
        self.windows: dict[Key, Window] = {}

    def take(
        self,
        key: Key,
        offsets: list[int],
        upto: int,
        pop_ms: int,
        invisible: int,
        ordered: bool = False,
    ) -> None:
        window = self.windows[key]
        window.out |= {offset: Out(pop_ms, invisible, ordered=ordered) for offset in offsets}
        window.next = upto

    def ack(self, key: Key, offset: int, pop_ms: int) -> Answer:
        window = self.windows[key]
        answer = window.answer(offset, pop_ms)
        if answer is Answer.DONE:
            del window.out[offset]
        return answer

    def extend(
        self, key: Key, offset: int, pop_ms: int, new_pop_ms: int, invisible: int, again: bool
    ) -> Answer:
        window = self.windows[key]
        answer = window.answer(offset, pop_ms)
        if answer is Answer.DONE:
            old = window.out[offset]
            window.out[offset] = Out(new_pop_ms, invisible, old.attempts + again, old.ordered)
        return answer

    def reset(self, key: Key, offset: int) -> None:
        self.windows[key] = Window(offset)

    def waiting(self) -> dict[tuple[Key, int], Out]:
        return {
            (key, offset): out
            for key, window in self.windows.items()
            for offset, out in window.out.items()
            if not out.given
        }

    def ordered(self) -> list[bool]:
        """Of all that is out: whether it belongs to an ordered pop; sorted."""
        return sorted(
            out.ordered for window in self.windows.values() for out in window.out.values()
        )

    def state(self) -> State:
        return {
            key: (window.begin, window.next, window.rows()) for key, window in self.windows.items()
        }


def state_of(pops: InFlight) -> State:
    """The state of the compiled windows."""
    return {
        (window.group, window.topic, window.queue_id): (
            window.begin,
            window.next,
            window.messages_out(0, 1 << 40).tolist(),
        )
        for window in pops.all_windows()
    }
