"""A group of members in memory: logs of numbered messages, a network, a coordination service.

The real classes make the decisions; this module only carries them out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from congreve.broker.election.complete_log import CleanStop, CompleteLog
from congreve.broker.election.coordinator import (
    ElectRequest,
    GroupState,
    Master,
    Seat,
    StateChangedError,
)
from congreve.broker.election.in_sync import InSyncSet
from congreve.broker.election.lease import MasterLease
from congreve.broker.election.member import (
    Elect,
    ElectionMember,
    Follow,
    Knowledge,
    Lead,
    Note,
    Release,
)
from congreve.engine.state.epochs import Epochs

TTL_S = 3.0
"""The time of a lease."""
MARGIN_S, MAX_LAG_S = 0.5, 2.0


@dataclass
class Service:
    """A linearizable coordination service with one lease; a change may be carried out late."""

    now: Callable[[], float]
    master: Master | None = None
    epoch: int = 0
    in_sync: frozenset[int] = frozenset()
    ends_at: float = 0.0
    revision: int = 0
    request: ElectRequest | None = None
    seats: dict[int, Seat] = field(default_factory=dict)
    noted: int = 0  # the revision of the seats
    since: int = 0

    def read(self) -> GroupState:
        if self.master is not None and self.now() >= self.ends_at:
            self.master = None
        guard = self.revision, self.noted
        return GroupState(
            *(self.master, self.epoch, self.in_sync, guard, self.request, dict(self.seats)),
            since=self.since,
        )

    def elect(self, seen: GroupState, candidate: Master) -> GroupState:
        if self.read() != seen or seen.master is not None:
            raise StateChangedError("another election")
        self.revision += 1
        self.master, self.epoch = candidate, candidate.epoch
        self.request = None
        made = seen.elected(candidate)
        self.in_sync, self.since = made.in_sync, made.since
        self.ends_at = self.now() + TTL_S
        return self.read()

    def change_set(
        self, master: Master, seen: GroupState, members: frozenset[int], since: int
    ) -> GroupState:
        if self.read().master != master or seen.guard[0] != self.revision:
            raise StateChangedError("another term, or another set")
        self.revision += 1
        self.in_sync, self.since = members, since
        return self.read()

    def note(self, seen: GroupState, member: int, seat: Seat) -> GroupState:
        if self.read() != seen:
            raise StateChangedError("another change")
        self.noted += 1
        self.seats[member] = seat
        return self.read()

    def ask(self, request: ElectRequest) -> None:
        """An operator's request, as Operator makes it."""
        if (self.read().master is None) is request.unclean:
            self.revision += 1
            self.request = request

    def keep_alive(self, master: Master) -> bool:
        if self.read().master != master:
            return False
        self.ends_at = self.now() + TTL_S
        return True

    def release(self, member: int) -> None:
        if (master := self.read().master) is not None and master.member == member:
            self.master = None


@dataclass
class Mark:
    """The mark of a clean stop on a member's disk."""

    left: CleanStop | None = None

    def take(self) -> CleanStop | None:
        mark, self.left = self.left, None
        return mark

    def save(self, mark: CleanStop) -> None:
        self.left = mark


@dataclass
class Request:
    """A pending change: it is carried out at most once, and its answer may be lost."""

    run: Callable[[], GroupState]
    answer: Callable[[GroupState | StateChangedError], None]
    members: frozenset[int] | None = None  # the set that it would make


@dataclass
class Node:
    """The state of one member: on its disk, and in memory while it runs."""

    number: int
    now: Callable[[], float]
    log: list[tuple[int, int]] = field(default_factory=list)  # (epoch, message) each
    epochs: Epochs = field(default_factory=Epochs)
    claimed: int = 0
    store: int = 0  # its id
    mark: Mark = field(default_factory=Mark)
    closed: bool = True  # by the last process
    up: bool = True
    waiting: bool = False  # for the answer to a change
    follows: Master | None = None
    aligned: bool = False  # after the handshake with the master that it follows
    decided: int = 0  # messages that were acknowledged, or never will be
    shown: int = 0  # the number of messages that readers see; its file keeps it

    def __post_init__(self) -> None:
        lease = MasterLease(TTL_S, MARGIN_S, self.now)
        self.member = ElectionMember(self.number, f"a{self.number}", f"h{self.number}", lease)
        self.complete = CompleteLog(self.mark)
        self.complete.load()
        self.open()

    def open(self) -> None:
        """Open the store: what a crash took from the log's end, it takes from the epochs."""
        self.epochs = self.epochs.cut(len(self.log) + 1)
        self.complete.opened(self._ending, found_clean=self.closed)
        self.closed = False

    def close(self) -> None:
        """Close the store, which has everything on its disk then."""
        self.closed = True
        self.complete.closed(self._ending, left_clean=True)

    @property
    def _ending(self) -> CleanStop:
        return CleanStop(f"{self.number}-{self.store}", len(self.log), self.epochs.newest)

    @property
    def term(self) -> InSyncSet | None:
        return self.member.term

    def stop(self, *, cleanly: bool = False) -> None:
        if self.up and cleanly:
            self.close()
            self.complete.save()
        self.up = self.waiting = self.aligned = False
        self.follows = None

    def start(self) -> None:
        self.up = True
        self.__post_init__()

    def lose_end(self, count: int) -> None:
        """Its log is damaged, or was not on the disk, while no process has it open."""
        assert not self.up
        if count:
            del self.log[-count:]
        self.shown = min(self.shown, len(self.log))

    def known(self) -> Knowledge:
        return Knowledge(
            *(self.epochs.newest, self.claimed, bool(self.log), self._ending.store, len(self.log)),
            is_whole=self.complete.is_whole,
            admitted_in=self.complete.admitted_in,
        )


@dataclass
class Consumer:
    """A consumer that reads to the end, of whichever member it asks."""

    read: list[int] = field(default_factory=list)  # message at each offset

    def take(self, node: Node) -> None:
        """Read what is shown, and compare it with what had these offsets before."""
        shown = [message for _, message in node.log[: node.shown]]
        common = min(len(shown), len(self.read))
        assert shown[:common] == self.read[:common], (
            f"member {node.number} shows another message at an offset that was read"
        )
        self.read += shown[common:]


class Group:
    """The members, the service, and the acknowledgements that producers received."""

    def __init__(self, count: int, min_in_sync: int = 1) -> None:
        self.time = 0.0
        self.min_in_sync = min_in_sync
        self.service = Service(self.clock)
        self.nodes = {n: Node(n, self.clock) for n in range(1, count + 1)}
        self.requests: list[Request] = []
        self.acknowledged: set[int] = set()
        self.consumer = Consumer()
        self.messages = 0
        self.terms = 0
        self.unclean = 0

    def ask(self, number: int, *, unclean: bool = False) -> None:
        """Request this member as master, as an operator does."""
        self.service.ask(ElectRequest(number, "operator", unclean))

    def clock(self) -> float:
        return self.time

    def run_without_failures(self) -> None:
        """Run without failures for a while, so that elections, copies and changes of the set
        complete."""
        for node in self.nodes.values():
            if not node.up:
                node.start()
        for _ in range(40):
            self.time += 0.1
            for node in self.nodes.values():
                self.look(node)
                self.renew(node, answered=True)
                self.copy(node, 9, reported=True)
                self.change_set(node)
            while self.requests:
                self.carry_out(0, answered=True)

    # --- a member and the service

    def look(self, node: Node) -> None:
        """The member reads the service's state and takes its next step."""
        if not node.up or node.waiting:
            return
        state = self.service.read()
        step = node.member.next_step(state, node.known())
        if not isinstance(step, Lead | Follow) or step != Follow(node.follows or _NO_MASTER):
            node.follows, node.aligned = None, False
        if isinstance(step, Follow):
            node.follows = step.master
        elif isinstance(step, Release):
            node.member.end_term()
            self.service.release(node.number)
        elif isinstance(step, Note):
            self._note(node, step)
        elif isinstance(step, Elect):
            self._elect(node, step)

    def _note(self, node: Node, step: Note) -> None:
        self._send(
            node,
            lambda: self.service.note(step.seen, node.number, step.seat),
            lambda outcome: None,
        )

    def _elect(self, node: Node, step: Elect) -> None:
        node.claimed = step.candidate.epoch
        sent_at = self.time

        def elected(outcome: GroupState | StateChangedError) -> None:
            if isinstance(outcome, StateChangedError):
                return
            start = len(node.log)
            node.close()
            node.open()
            node.complete.admitted(step.candidate.epoch)
            node.epochs = node.epochs.cut(start).begun(step.candidate.epoch, start)
            term = InSyncSet(outcome, start, max_lag_s=MAX_LAG_S, min_in_sync=self.min_in_sync)
            node.member.begin_term(term, sent_at)
            node.decided = 0
            self.terms += 1
            lost = self.acknowledged - {message for _, message in node.log}
            assert not lost, f"member {node.number} became master without {sorted(lost)}"

        def elect() -> GroupState:
            state = self.service.elect(step.seen, step.candidate)
            if step.seen.request is not None and step.seen.request.unclean:
                self.acknowledged &= {message for _, message in node.log}
                self._forget_shown(node)
                self.unclean += 1
            return state

        self._send(node, elect, elected, step.seen.elected(step.candidate).in_sync)

    def change_set(self, node: Node) -> None:
        """The master proposes the set that it wants, or repeats a proposal whose outcome is
        unknown."""
        term = node.term
        if not node.up or node.waiting or term is None:
            return
        if self._give_seat(node, term):
            return
        members = term.proposed or term.wanted(len(node.log), self.time)
        if members is None:
            return
        term.propose(members)
        seen = term.state

        def changed(outcome: GroupState | StateChangedError) -> None:
            if node.term is not term:
                return
            if not isinstance(outcome, StateChangedError):
                term.committed(outcome)
                return
            # An earlier attempt carried it out, or this term is over.
            state = self.service.read()
            if state.master == term.master and state.in_sync == members:
                term.committed(state)
            else:
                node.member.end_term()

        since = term.since(members)
        change = partial(self.service.change_set, term.master, seen, members, since)
        self._send(node, change, changed, members)

    def _give_seat(self, node: Node, term: InSyncSet) -> bool:
        """The master gives a number to an empty store, as ElectedBroker does; whether it asks."""
        state = self.service.read()
        if state.master != term.master:
            return False
        for number, seat in state.seats.items():
            slave = self.nodes[number]
            if seat.claim is None or number == node.number or slave.follows == term.master:
                continue
            term.vacate(number)
            if number not in term.required:
                given = Seat(seat.claim.store)
                note = partial(self.service.note, state, number, given)
                self._send(node, note, lambda outcome: None)
                return True
        return False

    def _send(
        self,
        node: Node,
        run: Callable[[], GroupState],
        answer: Callable[[GroupState | StateChangedError], None],
        members: frozenset[int] | None = None,
    ) -> None:
        node.waiting = True
        self.requests.append(Request(run, answer_to(node, answer), members))

    def carry_out(self, index: int, *, answered: bool) -> None:
        """One of the pending changes arrives; its answer arrives, too, or is lost."""
        if not self.requests:
            return
        request = self.requests.pop(index % len(self.requests))
        try:
            outcome: GroupState | StateChangedError = request.run()
        except StateChangedError as error:
            outcome = error
        if answered:
            request.answer(outcome)

    def give_up(self, node: Node) -> None:
        """The member stops waiting for its change, which may still be carried out."""
        node.waiting = False

    def renew(self, node: Node, *, answered: bool) -> None:
        term = node.term
        if node.up and term is not None:
            sent_at = self.time
            if self.service.keep_alive(term.master) and answered:
                node.member.lease.renewed(sent_at)

    # --- messages and their copies

    def produce(self, node: Node) -> None:
        if node.up and node.term is not None and node.member.lease.held:
            self.messages += 1
            node.log.append((node.term.master.epoch, self.messages))
            self.acknowledge(node)

    def acknowledge(self, node: Node) -> None:
        """Acknowledge to producers the messages that every required member has."""
        if node.up:
            confirmed = max(node.member.confirmed(len(node.log)), 0)
            self.acknowledged |= {message for _, message in node.log[node.decided : confirmed]}
            node.decided = max(node.decided, confirmed)
            self.show(node, confirmed)

    def show(self, node: Node, confirmed: int) -> None:
        """Show messages up to there to readers; never fewer than before."""
        node.shown = max(node.shown, min(confirmed, len(node.log)))
        self.consumer.take(node)

    def _forget_shown(self, elected: Node) -> None:
        """An unclean election: offsets that the new master lacks are given to other messages."""
        log = [message for _, message in elected.log]
        for node in self.nodes.values():
            common = 0
            for (_, message), other in zip(node.log, log, strict=False):
                if message != other:
                    break
                common += 1
            node.shown = min(node.shown, common)
        read = self.consumer.read
        while read[:] != log[: len(read)]:
            read.pop()

    def copy(self, slave: Node, count: int, *, reported: bool) -> None:
        """The slave gets up to `count` messages from the master that it follows."""
        master = next(
            (
                node
                for node in self.nodes.values()
                if node.up and node.term is not None and node.term.master == slave.follows
            ),
            None,
        )
        if not slave.up or master is None or master.term is None:
            return
        term = master.term
        if not slave.aligned:
            common = slave.epochs.common_end(len(slave.log), master.epochs, len(master.log))
            if slave.log and common is None:
                # Only after an unclean election; an operator removes the store then.
                assert self.unclean, "two logs of one group have nothing in common"
                slave.epochs = Epochs()
            end = common or 0
            if end < len(slave.log):
                del slave.log[end:]
            slave.epochs = slave.epochs.cut(end)
            slave.aligned = True
            term.connected(slave.number, self.time)
            term.begun(slave.number, len(slave.log))
        if not term.admits(slave.number):
            return
        slave.log += master.log[len(slave.log) :][:count]
        slave.epochs = master.epochs.cut(len(slave.log))
        here = master.epochs.at(len(slave.log))
        if here is not None and here.number > slave.epochs.newest:
            slave.epochs = slave.epochs.begun(*here)
        last = master.epochs.last
        if last is not None and len(slave.log) >= last.start:
            slave.complete.admitted(last.number)
        self.show(slave, master.shown)
        if reported:
            term.reported(slave.number, len(slave.log), len(master.log), self.time)
            self.acknowledge(master)

    def disconnect(self, slave: Node) -> None:
        slave.aligned = False
        for node in self.nodes.values():
            if node.term is not None:
                node.term.disconnected(slave.number)

    def crash(self, node: Node) -> None:
        self.disconnect(node)
        node.stop()

    def stop(self, node: Node) -> None:
        """The member's process is asked to stop: it closes its store, and ends its lease."""
        self.disconnect(node)
        node.stop(cleanly=True)
        self.service.release(node.number)

    def may_lose(self, node: Node) -> bool:
        """Whether another member of the set has all that is acknowledged, also of the sets that
        pending changes would make: then this one's damage alone loses nothing."""
        pending = [request.members for request in self.requests if request.members is not None]
        return all(
            any(
                self.acknowledged <= {message for _, message in self.nodes[other].log}
                for other in members - {node.number}
            )
            for members in (self.service.in_sync, *pending)
        )

    def wipe(self, node: Node) -> None:
        """The member comes back with an empty disk."""
        self.crash(node)
        node.log, node.epochs, node.claimed, node.mark.left = [], Epochs(), 0, None
        node.shown = 0
        node.store += 1

    def acting(self) -> list[int]:
        """The members that may acknowledge messages now."""
        return [n for n, node in self.nodes.items() if node.member.lease.held and node.up]


_NO_MASTER = Master(-1, -1, "", "")


def answer_to(
    node: Node, answer: Callable[[GroupState | StateChangedError], None]
) -> Callable[[GroupState | StateChangedError], None]:
    """Deliver the answer only if the process that sent the request still waits for it."""
    member = node.member

    def deliver(outcome: GroupState | StateChangedError) -> None:
        if node.up and node.waiting and node.member is member:
            node.waiting = False
            answer(outcome)

    return deliver
