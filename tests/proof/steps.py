"""Steps from one state to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .actions import ALONE, CHANGES, may_act
from .group import Action, Bound, Group
from .state import State, canonical


class Steps:
    """Takes steps within a bound, and remembers when a look at the service changes nothing.

    Equal members and services are one object in all states that it makes, and it takes no others.
    """

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self._idle: set[tuple[Any, ...]] = set()
        self._one: dict[Any, Any] = {}

    def canonical(self, state: State) -> tuple[State, Sequence[int]]:
        """As the function of this name."""
        state, order = canonical(state)
        return self._shared(state), order

    def _shared(self, state: State) -> State:
        one = self._one
        return State(
            one.setdefault(state.service, state.service),
            tuple([one.setdefault(member, member) for member in state.members]),
            *state[2:],
        )

    def after(self, state: State, action: Action) -> State:
        """The state after this action. Raises BrokenInvariantError."""
        *first, last = action
        if last in CHANGES:
            state = self._changed_set(self._taken(state, tuple(first)), last)
        else:
            state = self._taken(state, action)
        while self.bound.prompt and (following := self._settled(state)) != state:
            state = following
        return state

    def _changed_set(self, state: State, what: str) -> State:
        """After a change of the set that is lost or late, if a master wants one now."""
        for number in range(1, self.bound.members + 1):
            if may_act(state, "tend", number):
                state = self._taken(state, ("tend", number, what.rsplit(maxsplit=1)[-1]))
        return state

    def _taken(self, state: State, action: Action, *, elects: bool = True) -> State:
        name, *rest = action
        if name not in ALONE or len(rest) > 1:
            return self._carried_out(state, name, *rest)
        options = {} if elects else {"elects": False}
        running = tuple(member.term.epoch for member in state.members if member.term)
        number = rest[0]
        key = name, number, elects, id(state.service), id(state.members[number - 1]), running
        if key in self._idle:
            return state
        following = self._carried_out(state, name, number, **options)
        if following == state:
            self._idle.add(key)
        return following

    def _carried_out(self, state: State, name: str, *rest: Any, **options: bool) -> State:
        group = Group(self.bound, state)
        getattr(group, name)(*rest, **options)
        return self._shared(group.state())

    def _settled(self, state: State) -> State:
        """After each member has looked at the service, and each master at its set."""
        for name in ALONE:
            for number in range(1, self.bound.members + 1):
                if may_act(state, name, number):
                    state = self._taken(state, (name, number), elects=name != "look")
        return state
