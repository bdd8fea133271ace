"""What may happen to a group next."""

from __future__ import annotations

from collections.abc import Iterator

from .group import Action
from .state import State

ALONE = ("look", "tend")
"""What depends on one member, the service, and on which masters run."""
CHANGES = ("and the change is lost", "and the change is late")
"""What may happen to the change of the set that a prompt master wants."""


def actions(state: State, *, prompt: bool = False) -> Iterator[Action]:
    """What may happen next; a prompt master wants to change the set at once."""
    for action in _actions(state):
        yield action
        if prompt and state.left.late and action[0] in _MOVE_THE_SET and not state.pending:
            for change in CHANGES:
                yield *action, change


_MOVE_THE_SET = ("report", "produce", "crash", "stop", "tick")


def _actions(state: State) -> Iterator[Action]:
    for number, member in enumerate(state.members, 1):
        if not member.up:
            yield "start", number
            continue
        for name in ALONE:
            if may_act(state, name, number):
                yield name, number
        if member.term and state.left.messages:
            yield "produce", number
        yield from _copying(state, number)
        yield from _failures(state, number)
    yield from _passing(state)


def _copying(state: State, number: int) -> Iterator[Action]:
    """What a slave may get or report, unless its master knows it."""
    member = state.members[number - 1]
    if not member.connected:
        return
    for master in state.members:
        term = master.term
        if term and term.epoch == member.follows:
            if member.connected == 1 or len(member.log) < len(master.log):
                yield "copy", number
            slave = dict(term.slaves)[number]
            if member.connected == 2 and (slave.offset, slave.caught_up_at) != (
                len(member.log),
                0,
            ):
                yield "report", number


def _failures(state: State, number: int) -> Iterator[Action]:
    left, member = state.left, state.members[number - 1]
    if left.stops:
        yield "crash", number
        yield "stop", number
        if left.lost_ends and _is_elsewhere(state, number):
            for lost in range(1, len(member.log) + 1):
                yield "crash", number, lost
    if left.late and not state.pending and (member.term or not state.service.master):
        for answer in ("lost", "late"):
            yield "tend" if member.term else "look", number, answer


def _is_elsewhere(state: State, number: int) -> bool:
    """Whether the loss of this log's end loses nothing: another member of the set has all."""
    sets = [state.service.in_sync, *([state.pending.members] if state.pending else [])]
    has_all = {
        other
        for other, member in enumerate(state.members, 1)
        if other != number and member.log[: len(state.promised)] == state.promised
    }
    return all(has_all.intersection(members) for members in sets if members)


def _passing(state: State) -> Iterator[Action]:
    if state.pending:
        yield ("arrive",)
        if state.pending.waits:
            yield ("give_up",)
    if not may_renew(state):
        yield ("tick",)
        return
    yield "tick", "answered"
    if state.left.lapses:
        yield ("lapse",)
    if state.left.late:
        yield "tick", "lost"


def may_renew(state: State) -> bool:
    """Whether the member that has the lease runs as master."""
    service = state.service
    term = state.members[service.master - 1].term if service.master else ()
    return bool(term) and term.epoch == service.epoch


def may_act(state: State, name: str, number: int) -> bool:
    """Whether the member runs, and does not wait for an answer."""
    member, late = state.members[number - 1], state.pending
    waits = bool(late) and late.waits and late.member == number
    waits &= bool(late) and (name == "tend") is bool(late.members)
    return member.up and not waits and (name == "look" or bool(member.term))
