"""Whether a group that has enough members acknowledges messages again, once nothing fails."""

from __future__ import annotations

from collections.abc import Mapping

from .actions import actions, may_renew
from .group import Action
from .member import read
from .state import Left, State
from .steps import Steps


def next_action(state: State, min_in_sync: int) -> Action:
    """What happens when no member has anything to do and nothing fails; at rest that is a tick that
    changes nothing. Members that are away come back only if the group needs them."""
    if state.pending:
        return ("arrive",)
    if not _has_enough(state, min_in_sync):
        return "start", next(number for number, each in enumerate(state.members, 1) if not each.up)
    return ("tick", "answered") if may_renew(state) else ("tick",)


WITHOUT_FAILURE = ("look", "copy", "report", "tend")
"""Steps that a group takes before time passes."""


def _has_enough(state: State, min_in_sync: int) -> bool:
    """Whether the members that run can go on: one of the in-sync set has all that is acknowledged
    for sure, or all of the set run and can compare their logs."""
    running = {number for number, member in enumerate(state.members, 1) if member.up}
    group = read(state.service)
    complete = any(
        state.members[number - 1].is_whole
        or state.members[number - 1].admitted_in >= group.set_epoch
        for number in running & group.in_sync
    )
    return len(running) >= min_in_sync and (complete or group.in_sync <= running)


class GoingOn:
    """Follows each explored state through steps without a failure, to a group at rest."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._after: dict[State, State] = {}
        self._judged: dict[State, str] = {}

    def note(self, state: State, made: Mapping[Action, State]) -> None:
        """Take what comes next without failures from the states that actions make of this one."""
        for (name, *rest), following in made.items():
            if name in WITHOUT_FAILURE and len(rest) == 1 and following != state:
                self._after[state] = following
                return
        self._after[state] = made[next_action(state, self._steps.bound.min_in_sync)]

    def first_broken(self) -> tuple[State, str] | None:
        """The nearest state whose group acknowledges nothing more, and why."""
        for state in self._after:
            if why := self._judge(state):
                return state, why
        return None

    def _judge(self, state: State) -> str:
        path: dict[State, None] = {}
        while state not in self._judged and state not in path and state in self._after:
            path[state] = None
            state = self._after[state]
        if state in self._judged:
            why = self._judged[state]
        else:  # at rest only reports come again; a limited exploration does not know
            why = self._acknowledges(state) if state in path else ""
        self._judged.update(dict.fromkeys(path, why))
        return why

    def _acknowledges(self, state: State) -> str:
        """Why a group at rest does not acknowledge another message; empty if it does."""
        masters = [number for number, member in enumerate(state.members, 1) if member.lease]
        if not masters:
            return "the group stays without a master"
        promised = len(state.promised)
        state = state._replace(left=Left(messages=1))
        state = self._steps.after(state, ("produce", masters[0]))
        for _ in range(3):
            for name in WITHOUT_FAILURE:
                for number in range(1, len(state.members) + 1):
                    if (name, number) in actions(state):
                        state = self._steps.after(state, (name, number))
            if len(state.promised) > promised:
                return ""
            state = self._steps.after(state, ("tick", "answered"))
        return "the master acknowledges nothing"


def at_rest(steps: Steps, state: State) -> State:
    """A group without failures, once nothing changes any more."""
    last = None
    state, _ = steps.canonical(state)
    while state != last:
        last = state
        for name in WITHOUT_FAILURE:
            for number in range(1, len(state.members) + 1):
                if (name, number) in actions(state):
                    state = steps.after(state, (name, number))
        state = steps.after(state, next_action(state, steps.bound.min_in_sync))
        state, _ = steps.canonical(state)
    return state
