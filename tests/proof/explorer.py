"""Every state that a group can reach, nearest first, and the shortest way to a broken promise."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from congreve.base.errors import CongreveError

from .actions import actions
from .going_on import GoingOn
from .group import Action, Bound, BrokenInvariantError
from .state import State
from .steps import Steps


class Found(NamedTuple):
    """What an exploration has seen; `trace` leads to the broken invariant, if one is."""

    states: int
    steps: int
    depth: int
    seconds: float
    broken: str = ""
    trace: tuple[str, ...] = ()
    is_all: bool = False

    def __str__(self) -> str:
        counts = (
            f"{self.states:,} states, {self.steps:,} steps, {self.depth} deep, in"
            f" {self.seconds:.0f} s of CPU: {self.states / max(self.seconds, 1e-9):,.0f} a second"
        )
        return "\n".join((counts, *([self.broken, *self.trace] if self.broken else ())))


class _BrokenAt(NamedTuple):
    state: State
    action: Action | None
    why: str


def explore(bound: Bound, begin: State, most: int | None = None) -> Found:
    """All states that follow `begin`, or until there are `most`; ends at the first broken one."""
    steps = Steps(bound)
    begin, _ = steps.canonical(begin)
    before: dict[State, State | None] = {begin: None}
    level, taken, depth = [begin], 0, 0
    began = time.process_time()
    going_on = GoingOn(steps)
    gc.disable()  # no garbage: millions of tuples that stay
    try:
        while level and (most is None or len(before) < most):
            found: list[State] = []
            for state in level:
                made = dict(_all_after(steps, state))
                taken += len(made)
                for following in made.values():
                    if following not in before:
                        before[following] = state
                        found.append(following)
                going_on.note(state, made)
            level = found
            depth += bool(found)
        if (broken := going_on.first_broken()) is not None:
            raise _BrokenError(_BrokenAt(broken[0], None, broken[1]))
    except _BrokenError as error:
        spent = time.process_time() - began
        trace = tuple(_trace(steps, before, error.at))
        return Found(len(before), taken, depth, spent, error.at.why, trace)
    finally:
        gc.enable()
    return Found(len(before), taken, depth, time.process_time() - began, is_all=not level)


def _all_after(steps: Steps, state: State) -> Iterator[tuple[Action, State]]:
    for action in actions(state, prompt=steps.bound.prompt):
        try:
            following, _ = steps.canonical(steps.after(state, action))
        except (BrokenInvariantError, CongreveError) as error:
            raise _BrokenError(_BrokenAt(state, action, str(error))) from error
        yield action, following


class _BrokenError(Exception):
    def __init__(self, at: _BrokenAt) -> None:
        super().__init__(at.why)
        self.at = at


def _trace(steps: Steps, before: dict[State, State | None], at: _BrokenAt) -> Iterator[str]:
    """The actions from the first state to the last, with each member's number at the beginning."""
    path: list[State] = []
    state: State | None = at.state
    while state is not None:
        path.append(state)
        state = before[state]
    path.reverse()
    names = list(range(1, steps.bound.members + 1))
    for one, following in pairwise(path):
        for action in actions(one, prompt=steps.bound.prompt):
            made, order = steps.canonical(steps.after(one, action))
            if made == following:
                yield _words(action, names)
                names = [names[old] for old in order]
                break
    if at.action is not None:
        yield _words(at.action, names)


def _words(action: Action, names: list[int]) -> str:
    name, *rest = action
    if rest and isinstance(rest[0], int):
        rest[0] = f"member {names[rest[0] - 1]}"
    return " ".join(("   ", name, *map(str, rest)))
