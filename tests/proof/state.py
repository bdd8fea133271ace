"""What a state of a group is: everything that its members, the coordination service and the network
know, as tuples of small numbers.

Times are relative to now, so that waiting ends in a state that was there before. Empty tuples and
zeros stand for what is missing, so that any two states can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

TICK = 2
"""By how much the time moves at once."""
TTL, MARGIN = 4, 1
"""A lease in the service ends with the second tick, a master stops at it."""
MAX_LAG = 1
"""A slave that was not caught up a tick ago leaves the in-sync set."""
LONG_AGO = -TICK

Numbers = tuple[int, ...]


class Slave(NamedTuple):
    """A slave as InSyncSet sees it."""

    connected: bool
    offset: int
    lost: bool
    caught_up_at: int
    mark: int
    mark_at: int


class Term(NamedTuple):
    """What InSyncSet, Fence and ConfirmOffset of a master hold.

    `fresh` says whether the last set that the master knows is still that of the service.
    """

    epoch: int
    in_sync: Numbers
    since: int
    fresh: bool
    proposed: Numbers
    start: int
    slaves: tuple[tuple[int, Slave], ...]
    joining: Numbers
    away: Numbers
    acknowledged: int
    connections: Numbers
    shown: int
    alone: bool
    settles: bool
    confirmed: int
    usable: bool


class Member(NamedTuple):
    """A member: its disk, then its memory.

    `log` has the epoch of each message, which is what distinguishes two messages at one offset.
    `mark` is the end and epoch of a clean stop, `clean` whether the last process closed the store.
    `lease` is when it ends, `follows` the epoch of a master, `connected` 1 after the handshake and
    2 once the master has admitted the log.
    """

    log: Numbers = ()
    epochs: tuple[tuple[int, int], ...] = ()
    claimed: int = 0
    mark: Numbers = ()
    clean: bool = True
    up: bool = False
    is_whole: bool = False
    admitted_in: int = -1
    lease: int = 0
    follows: int = 0
    connected: int = 0
    term: Term | tuple[()] = ()


class Service(NamedTuple):
    """The coordination service; `ends` is when the lease ends, `log_ends` has a seat's LogEnd."""

    master: int = 0
    epoch: int = 0
    in_sync: Numbers = ()
    since: int = 0
    ends: int = 0
    log_ends: tuple[Numbers, ...] = ()


class Pending(NamedTuple):
    """A change that is late: an election without `members`, or a change of the set to them."""

    member: int
    epoch: int
    members: Numbers
    since: int
    fresh: bool
    age: int
    waits: bool


class Left(NamedTuple):
    """How many messages and failures may still come; at a lapse the lease of a master that
    runs ends."""

    messages: int = 0
    stops: int = 0
    lost_ends: int = 0
    late: int = 0
    lapses: int = 0


class State(NamedTuple):
    """All of a group. `promised` is the longest beginning of a log that a producer got an answer
    for, or a consumer can have read."""

    service: Service
    members: tuple[Member, ...]
    pending: Pending | tuple[()]
    promised: Numbers
    left: Left


def later(at: int) -> int:
    """A time of the past after a tick."""
    return max(at - TICK, LONG_AGO)


# --- the same state in other numbers


def canonical(state: State) -> tuple[State, Sequence[int]]:
    """The one of the states that differ only in the members' numbers; and the place of each of its
    members in `state`."""
    order = sorted(range(len(state.members)), key=lambda index: _content(state, index))
    if order == list(range(len(order))):
        return state, order
    to = {old + 1: new + 1 for new, old in enumerate(order)} | {0: 0}
    service, pending = state.service, state.pending
    return (
        State(
            service._replace(
                master=to[service.master],
                in_sync=_renamed(service.in_sync, to),
                log_ends=tuple(service.log_ends[old] for old in order),
            ),
            tuple(_with_numbers(state.members[old], to) for old in order),
            pending
            and pending._replace(member=to[pending.member], members=_renamed(pending.members, to)),
            state.promised,
            state.left,
        ),
        order,
    )


def _content(state: State, index: int) -> tuple[Any, ...]:
    """What of a member does not depend on numbers."""
    service, member = state.service, state.members[index]
    number = index + 1
    return (
        member[:-1],
        bool(member.term),
        number == service.master,
        number in service.in_sync,
        service.log_ends[index],
        [_seen(other.term, number) for other in state.members if other.term],
    )


def _seen(term: Term | tuple[()], number: int) -> tuple[Any, ...]:
    assert term
    return tuple(slave for other, slave in term.slaves if other == number)


def _renamed(numbers: Iterable[int], to: dict[int, int]) -> Numbers:
    return tuple(sorted(to[number] for number in numbers))


def _with_numbers(member: Member, to: dict[int, int]) -> Member:
    term = member.term
    if not term:
        return member
    return member._replace(
        term=term._replace(
            in_sync=_renamed(term.in_sync, to),
            proposed=_renamed(term.proposed, to),
            slaves=tuple(sorted((to[number], slave) for number, slave in term.slaves)),
            joining=_renamed(term.joining, to),
            away=_renamed(term.away, to),
            connections=_renamed(term.connections, to),
        )
    )


def normal(state: State) -> State:
    """The same state without what no later step depends on."""
    service = state.service
    running = {member.term.epoch for member in state.members if member.term}
    if any(service.log_ends):
        service = service._replace(
            log_ends=tuple(
                log_end and (log_end if log_end[0] == service.epoch else (0, 0, 0))
                for log_end in service.log_ends
            )
        )
    return state._replace(
        service=service,
        members=tuple(_normal(member, service, running) for member in state.members),
    )


def _normal(member: Member, service: Service, running: set[int]) -> Member:
    """Epochs that are over count as 0, also that of a master that has gone."""
    oldest = service.since or service.epoch
    claimed, admitted_in, follows = member.claimed, member.admitted_in, member.follows
    if claimed < service.epoch:
        claimed = 0
    if 0 < admitted_in < oldest:
        admitted_in = 0
    if follows not in running:
        follows = 0
    if (claimed, admitted_in, follows) == (member.claimed, member.admitted_in, member.follows):
        return member
    return member._replace(claimed=claimed, admitted_in=admitted_in, follows=follows)


def with_small_epochs(state: State) -> State:
    """The same state with the smallest epochs in the same order: only their order decides."""
    service, pending = state.service, state.pending
    found = {service.epoch, service.since, *state.promised}
    if pending:
        found |= {pending.epoch, pending.since}
    for member in state.members:
        found |= {member.claimed, member.admitted_in, member.follows, *member.mark[1:]}
        found.update(number for number, _ in member.epochs)
        found.update(member.log)
        if member.term:
            found |= {member.term.epoch, member.term.since}
    for log_end in service.log_ends:
        found.update(log_end[:2])
    ordered = sorted(number for number in found if number > 0)
    to = {number: small for small, number in enumerate(ordered, 1)} | {0: 0, -1: -1}
    return State(
        service._replace(
            epoch=to[service.epoch],
            since=to[service.since],
            log_ends=tuple(
                each and (to[each[0]], to[each[1]], each[2]) for each in service.log_ends
            ),
        ),
        tuple(_with_epochs(member, to) for member in state.members),
        pending and pending._replace(epoch=to[pending.epoch], since=to[pending.since]),
        tuple(to[number] for number in state.promised),
        state.left,
    )


def _with_epochs(member: Member, to: dict[int, int]) -> Member:
    term = member.term
    return member._replace(
        log=tuple(to[number] for number in member.log),
        epochs=tuple((to[number], start) for number, start in member.epochs),
        claimed=to[member.claimed],
        mark=member.mark and (member.mark[0], to[member.mark[1]]),
        admitted_in=to[member.admitted_in],
        follows=to[member.follows],
        term=term and term._replace(epoch=to[term.epoch], since=to[term.since]),
    )
