"""Bugs seeded into the classes that ship: the explorer has to find each of them."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from congreve.broker.election.complete_log import CompleteLog
from congreve.broker.election.coordinator import GroupState
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.member import ElectionMember
from congreve.engine.state.epochs import Epochs

from .group import Bound

STATES_MAX = 5_000
"""States within which a seeded bug is found."""
CERTAIN = Bound(2, prompt=True, messages=1, late=0)
QUIET = Bound(2, prompt=True, messages=1, stops=1, lost_ends=0, late=0)
LATE = Bound(2, prompt=True, messages=0, stops=1, lost_ends=0, lapses=0)
TWO_MASTERS = Bound(2, prompt=True, messages=2, stops=1, lost_ends=0, late=0)
SLOW = Bound(2, messages=1, lost_ends=0)
DAMAGED = Bound(2, messages=1, late=0, lapses=0)
TRIO = Bound(3, prompt=True, messages=1, late=0, lapses=0)


class Mutant(NamedTuple):
    """A text of one method that becomes another; the bound in which that shows."""

    name: str
    owner: type[Any]
    method: str
    old: str
    new: str
    bound: Bound

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """The class has the bug. Raises ValueError if the text is not there exactly once."""
        original = inspect.getattr_static(self.owner, self.method)
        function: Callable[..., Any] = getattr(original, "fget", original)
        source = textwrap.dedent(inspect.getsource(function))
        if source.count(self.old) != 1:
            raise ValueError(f"{self.owner.__name__}.{self.method} has another text: {self.old}")
        made: dict[str, Any] = {}
        text = source.replace(self.old, self.new)
        exec(text, vars(sys.modules[self.owner.__module__]), made)
        setattr(self.owner, self.method, made[self.method])
        try:
            yield
        finally:
            setattr(self.owner, self.method, original)


MUTANTS = (
    Mutant(
        "a member that lost its log's end is elected, as before it had to catch up",
        *(ElectionMember, "_obstacle"),
        *("is_complete or state", "True or state"),
        CERTAIN,
    ),
    Mutant(
        "a member outside the in-sync set is elected",
        *(ElectionMember, "next_step"),
        *("if state.epoch and self.member not in state.in_sync:", "if False:"),
        CERTAIN,
    ),
    Mutant(
        "an epoch is given twice",
        *(ElectionMember, "next_step"),
        *("self._candidate(state.epoch + 1)", "self._candidate(max(state.epoch, 1))"),
        CERTAIN,
    ),
    Mutant(
        "a shorter log is elected",
        *(ElectionMember, "_obstacle"),
        *("if longest != self.member", "if longest == self.member"),
        CERTAIN,
    ),
    Mutant(
        "a store of the newest epoch counts as one from the future",
        *(ElectionMember, "next_step"),
        *(
            "state.epoch:\n        return Wait(_lost_state(state, known))\n    if state.epoch:",
            "state.epoch - 1:\n        return Wait(_lost_state(state, known))\n    if state.epoch:",
        ),
        QUIET,
    ),
    Mutant(
        "the longest log is elected before all of the set have compared theirs",
        *(ElectionMember, "_obstacle"),
        *(
            "if missing := state.in_sync - ends.keys():",
            "for other in state.in_sync - ends.keys():\n        ends[other] = LogEnd(0, -1, 0)\n"
            "    if missing := frozenset():",
        ),
        CERTAIN,
    ),
    Mutant(
        "one slave is enough for an acknowledgement",
        *(InSyncSet, "confirmed"),
        *("min((own_end, *others))", "min(own_end, max(others, default=own_end))"),
        TRIO,
    ),
    Mutant(
        "slaves that are away need not have what is acknowledged",
        *(InSyncSet, "confirmed"),
        *(
            "for member in self.required - {self.master.member})",
            "for member in self.required - {self.master.member}"
            " if member in self._slaves and self._slaves[member].connected)",
        ),
        SLOW,
    ),
    Mutant(
        "a slave leaves the set before the service says so",
        *(InSyncSet, "_committed_or_proposed"),
        *(
            "self.state.in_sync | (self.proposed or frozenset())",
            "self.proposed or self.state.in_sync",
        ),
        SLOW,
    ),
    Mutant(
        "a slave enters the set without what is acknowledged",
        *(InSyncSet, "wanted"),
        *("self._slaves[member].offset >= needed and ", ""),
        CERTAIN,
    ),
    Mutant(
        "a slave that lost its log's end is not noticed",
        *(InSyncSet, "begun"),
        *("is_member and offset < self.acknowledged", "False"),
        CERTAIN,
    ),
    Mutant(
        "a slave that lost its log's end is given parts of the log",
        *(InSyncSet, "admits"),
        *("not (slave is not None and slave.lost and member in self.required)", "True"),
        DAMAGED,
    ),
    Mutant(
        "a slave's reports outlive its connection",
        *(InSyncSet, "connected"),
        *(
            "self._slaves[member] = _Member(caught_up_at=now)",
            "self._slaves.setdefault(member, _Member()).connected = True",
        ),
        TRIO,
    ),
    Mutant(
        "slaves that are away stay in the set",
        *(InSyncSet, "_is_lost"),
        *("return self._offset(member) < own_end or since is not None", "return False"),
        QUIET,
    ),
    Mutant(
        "a master's lease lasts longer than that of the service",
        *(MasterLease, "renewed"),
        *("self.ttl_s - self._margin_s", "self.ttl_s * 2"),
        SLOW,
    ),
    Mutant(
        "the mark of a clean stop is not compared with the log",
        *(CompleteLog, "opened"),
        *("found_clean and found == self._mark", "self._mark is not None or not found_clean"),
        CERTAIN,
    ),
    Mutant(
        "a log that is not complete leaves the mark of a clean stop",
        *(CompleteLog, "closed"),
        *("complete = self.is_whole or self.admitted_in >= 0", "complete = True"),
        CERTAIN,
    ),
    Mutant(
        "logs are the same up to the shorter one's end",
        *(Epochs, "common_end"),
        *(
            "min(self.end_of(entry, log_end), other.end_of(entry, other_end))",
            "min(log_end, other_end)",
        ),
        TWO_MASTERS,
    ),
    Mutant(
        "an election makes members ineligible that have the epoch before",
        *(GroupState, "elected"),
        *("self.set_epoch if others else candidate.epoch", "candidate.epoch"),
        LATE,
    ),
)
