"""What may happen to a group next: each step of its members, of the service, of time, and failures.

As in ElectedBroker, ElectedSlave and AutoSwitchConnection, which carry out what the real classes
decide here, too. Between two steps anything else may happen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from congreve.broker.election.coordinator import GroupState
from congreve.broker.election.member import Elect, Follow, Lead, Note, Release

from .member import Life, read
from .state import (
    TICK,
    TTL,
    Left,
    Member,
    Numbers,
    Pending,
    Service,
    State,
    Term,
    later,
    normal,
    with_small_epochs,
)

Action = tuple[str, *tuple[Any, ...]]


class Bound(NamedTuple):
    """How large a group is, and what may happen to it.

    Members are `prompt` if they learn of each change before anything else happens, and masters
    change the set then; else they may be as late as they like.
    """

    members: int
    min_in_sync: int = 1
    prompt: bool = False
    messages: int = 3
    stops: int = 2
    lost_ends: int = 1
    late: int = 1
    lapses: int = 1


class BrokenInvariantError(Exception):
    """A promise does not hold in this state."""


class Group:
    """One state of a group, while one step is taken."""

    def __init__(self, bound: Bound, state: State) -> None:
        self.bound = bound
        self.service, self.members = state.service, list(state.members)
        self.pending = state.pending
        self.promised = state.promised
        self.left = state.left
        self._lives: dict[int, Life] = {}
        self._elected = False

    @classmethod
    def new(cls, bound: Bound) -> State:
        """A group that has never run: all members start on empty disks."""
        service = Service(log_ends=((),) * bound.members)
        members = (Member(),) * bound.members
        left = Left(*bound[3:])
        group = cls(bound, State(service, members, (), (), left))
        for number in range(1, bound.members + 1):
            group.start(number)
        return group.state()

    def state(self) -> State:
        """The next state. Raises BrokenInvariantError."""
        for life in self._lives.values():
            self._look_at(life)
        for number, life in self._lives.items():
            self.members[number - 1] = life.saved()
        state = State(self.service, tuple(self.members), self.pending, self.promised, self.left)
        _one_master_acknowledges(state)
        state = normal(state)
        return with_small_epochs(state) if self._elected else state

    def _spend(self, **spent: int) -> None:
        left = self.left._asdict()
        self.left = Left(**{name: left[name] - spent.get(name, 0) for name in left})

    def _stop_waiting(self, number: int) -> None:
        if self.pending and self.pending.member == number:
            self.pending = self.pending._replace(waits=False)

    def _life(self, number: int) -> Life:
        if number not in self._lives:
            saved = self.members[number - 1]
            self._lives[number] = Life(number, saved, self.bound.min_in_sync)
        return self._lives[number]

    def _master(self, epoch: int) -> Life | None:
        """The member whose Broker runs as master of this epoch."""
        for number, member in enumerate(self.members, 1):
            if member.term and member.term.epoch == epoch:
                life = self._life(number)
                return life if life.fence is not None else None
        return None

    # --- what was promised

    def _look_at(self, life: Life) -> None:
        """Producers get their answers, and consumers read, as soon as they may.

        Slaves show what a master has confirmed, and never more than they have of that.
        """
        if not life.up or life.fence is None:
            return
        end = life.confirmed
        log, promised = tuple(life.log[:end]), self.promised
        if log != promised[:end] and log[: len(promised)] != promised:
            raise BrokenInvariantError(
                f"member {life.number} confirms another message at an offset that has one"
            )
        if end > len(promised):
            self.promised = log

    def _begin(self, number: int, state: GroupState, sent_at: int) -> None:
        life = self._life(number)
        life.begin_term(state, sent_at, len(self.promised))
        self._elected = True
        if tuple(life.log[: len(self.promised)]) != self.promised:
            raise BrokenInvariantError(
                f"member {number} is elected without an acknowledged message"
            )

    # --- a member and the service

    def look(self, number: int, answer: str = "", *, elects: bool = True) -> None:
        """The member reads the state of the service, and takes its next step.

        With an answer that is `lost` or `late` the step is an election, which is left out unless
        the member `elects`.
        """
        life = self._life(number)
        leads = life.member.term is not None
        step = life.member.next_step(read(self.service), life.known())
        if leads and life.member.term is None:
            self._end_term(life)
        if isinstance(step, Lead) or (isinstance(step, Elect) and not elects):
            return
        follows = step.master.epoch if isinstance(step, Follow) else 0
        if follows != life.follows:
            self._disconnect(number)
            life.follows = follows
        if isinstance(step, Follow):
            self._connect(life)
        elif isinstance(step, Release):
            if life.member.term is not None:
                self._end_term(life)
            if self.service.master == number:
                self.service = self.service._replace(master=0, ends=0)
                self._changed()
        elif isinstance(step, Note):
            self._note(number, step)
        elif isinstance(step, Elect):
            self._elect(number, step, answer)

    def _note(self, number: int, step: Note) -> None:
        log_ends = list(self.service.log_ends)
        log_end = step.seat.log_end
        log_ends[number - 1] = (
            () if log_end is None else (log_end.waits_in, log_end.epoch, log_end.end)
        )
        self.service = self.service._replace(log_ends=tuple(log_ends))
        if self.pending and not self.pending.members:
            self.pending = self.pending._replace(fresh=False)

    def _elect(self, number: int, step: Elect, answer: str) -> None:
        epoch = step.candidate.epoch
        self._life(number).claimed = epoch
        if answer:
            self._spend(late=1)
        if answer == "late":
            self.pending = Pending(number, epoch, (), 0, True, 0, True)
            return
        state = self._carry_out_election(number, step.seen, step)
        if not answer:
            self._begin(number, state, 0)

    def _carry_out_election(self, number: int, seen: GroupState, step: Elect) -> GroupState:
        made = seen.elected(step.candidate)
        self._changed()
        self.service = self.service._replace(
            master=number,
            epoch=made.epoch,
            in_sync=tuple(sorted(made.in_sync)),
            since=made.since,
            ends=TTL,
        )
        self._elected = True
        return _as_answer(self.service)

    def _changed(self) -> None:
        """The service's state is another one: changes that expect the last one are refused."""
        if self.pending:
            self.pending = self.pending._replace(fresh=False)
        for number, member in enumerate(self.members, 1):
            if member.term and number not in self._lives:
                self.members[number - 1] = member._replace(term=member.term._replace(fresh=False))
        for life in self._lives.values():
            if life.fence is not None:
                term = life.fence.term
                term.state = _with_guard(term.state, 0)

    def tend(self, number: int, answer: str = "") -> None:
        """The master looks at its lease, and at the in-sync set."""
        life = self._life(number)
        fence = life.fence
        assert fence is not None
        if not life.lease.held:
            self._end_term(life)
            return
        members = fence.proposal()
        if members is None:
            return
        since, epoch = fence.since(members), fence.term.master.epoch
        wanted = tuple(sorted(members))
        fresh = fence.term.state.guard == (1,)
        if answer == "late":
            self._spend(late=1)
            self.pending = Pending(number, epoch, wanted, since, fresh, 0, True)
        elif not fresh or not self._has_lease(number, epoch):
            self._settle(life, wanted)
        else:
            state = self._carry_out_change(wanted, since)
            if answer:
                self._spend(late=1)
            else:
                fence.committed(state)

    def _has_lease(self, number: int, epoch: int) -> bool:
        return (self.service.master, self.service.epoch) == (number, epoch)

    def _carry_out_change(self, members: Numbers, since: int) -> GroupState:
        self._changed()
        self.service = self.service._replace(in_sync=members, since=since)
        return _as_answer(self.service)

    def _settle(self, life: Life, members: Numbers) -> None:
        """The change was refused: an earlier attempt succeeded, or the term is over."""
        fence = life.fence
        assert fence is not None
        if self._has_lease(life.number, fence.term.master.epoch) and (
            self.service.in_sync == members
        ):
            fence.committed(_as_answer(self.service))
        else:
            self._end_term(life)

    def _end_term(self, life: Life) -> None:
        fence = life.fence
        assert fence is not None
        epoch = fence.term.master.epoch
        fence.close()
        self._look_at(life)
        life.end_term()
        self._cut_connections(epoch)

    def _cut_connections(self, epoch: int) -> None:
        for number, member in enumerate(self.members, 1):
            if member.connected and member.follows == epoch:
                self._life(number).connected = 0

    # --- a change that is late

    def arrive(self) -> None:
        """The service carries out the late change; a member that still waits gets the answer."""
        late, self.pending = self.pending, ()
        assert late
        life = self._life(late.member)
        if late.members:
            self._arrive_change(late, life)
            return
        if not late.fresh or self.service.master:
            return
        seen = read(self.service)
        candidate = read(self.service._replace(master=late.member, epoch=late.epoch)).master
        assert candidate is not None
        state = self._carry_out_election(late.member, seen, Elect(seen, candidate))
        if late.waits:
            self._begin(late.member, state, -late.age)

    def _arrive_change(self, late: Pending, life: Life) -> None:
        done = late.fresh and self._has_lease(late.member, late.epoch)
        state = self._carry_out_change(late.members, late.since) if done else None
        fence = life.fence
        if not late.waits or fence is None or fence.term.master.epoch != late.epoch:
            return
        if state is None:
            self._settle(life, late.members)
        else:
            fence.committed(state)

    def give_up(self) -> None:
        """The member waits no longer for the answer to its late change."""
        assert self.pending
        self.pending = self.pending._replace(waits=False)

    # --- time

    def tick(self, renewal: str = "") -> None:
        """Time passes; a master renews its lease then, though its answer may be lost.

        The lease of a member that has gone ends at once: the others see no difference.
        """
        self._pass_time(1)
        if renewal == "lost":
            self._spend(late=1)
        if renewal:
            self.service = self.service._replace(ends=TTL)
        elif not self.pending:
            self._expire()
        if renewal == "answered":
            self._life(self.service.master).lease.renewed(0)

    def lapse(self) -> None:
        """The master renews nothing until its lease ends."""
        self._spend(lapses=1)
        self._pass_time(TTL // TICK)

    def _pass_time(self, ticks: int) -> None:
        for _ in range(ticks):
            self.members = [_a_tick_later(member) for member in self.members]
        if self.pending:
            age = min(self.pending.age + ticks * TICK, TTL)
            self.pending = self.pending._replace(age=age)
        ends = self.service.ends - ticks * TICK
        if ends <= 0:
            self._expire()
        else:
            self.service = self.service._replace(ends=ends)

    def _expire(self) -> None:
        if self.service.master:
            self.service = self.service._replace(master=0, ends=0)
            if self.pending:
                self.pending = self.pending._replace(fresh=False)

    # --- messages and their copies

    def produce(self, number: int) -> None:
        """A producer sends a message to a member that is a master, or has been."""
        life = self._life(number)
        assert life.fence is not None
        self._spend(messages=1)
        life.log.append(life.fence.term.master.epoch)

    def _connect(self, life: Life) -> None:
        """The handshake of a slave with the master that it follows, if that runs."""
        master = self._master(life.follows)
        if life.connected or master is None:
            return
        fence, number = master.fence, life.number
        assert fence is not None
        common = life.epochs.common_end(life.end, master.epochs, master.end)
        if common is None and (life.log or life.epochs.entries):
            raise BrokenInvariantError(f"the log of member {number} has nothing of the master's")
        if common is not None and common < life.end:
            fence.connected(number, number)
            fence.disconnected(number, number)
            life.cut(common)
        fence.connected(number, number)
        fence.begun(number, number, life.end)
        life.connected = 1
        if fence.admits(number):
            self._greet(life, master)

    def _greet(self, life: Life, master: Life) -> None:
        """The slave gets its first header: its epochs are the master's."""
        life.connected = 2
        life.epochs = master.epochs.cut(life.end)
        self._take_epochs(life, master)

    def _take_epochs(self, life: Life, master: Life) -> None:
        here = master.epochs.at(life.end)
        assert here is not None
        for epoch in (*master.epochs.cut(life.end + 1).entries, here):
            if epoch.number > life.epochs.newest:
                life.epochs = life.epochs.begun(*epoch)
        last = master.epochs.last
        assert last is not None and master.fence is not None
        if life.end >= last.start:
            life.complete.admitted(last.number)
        master.fence.confirmed()

    def copy(self, number: int) -> None:
        """A slave gets a header, with the next message if there is one."""
        life = self._life(number)
        master = self._master(life.follows)
        assert master is not None and master.fence is not None
        if life.connected == 1:
            if master.fence.admits(number):
                self._greet(life, master)
            return
        if life.end < master.end:
            life.log.append(master.log[life.end])
        self._take_epochs(life, master)

    def report(self, number: int) -> None:
        """The master gets a slave's report."""
        life = self._life(number)
        master = self._master(life.follows)
        assert master is not None and master.fence is not None
        master.fence.reported(number, number, life.end)

    def _disconnect(self, number: int) -> None:
        life = self._life(number)
        if life.connected:
            master = self._master(life.follows)
            if master is not None and master.fence is not None:
                master.fence.disconnected(number, number)
        life.connected = 0

    # --- members that stop

    def crash(self, number: int, lost: int = 0) -> None:
        """The member's process ends; its log may lose its end meanwhile."""
        life = self._life(number)
        self._spend(stops=1, lost_ends=min(lost, 1))
        self._stop_waiting(number)
        self._look_at(life)
        self._disconnect(number)
        if life.fence is not None:
            self._cut_connections(life.fence.term.master.epoch)
        end = life.end - lost
        self.members[number - 1] = life.saved()._replace(log=tuple(life.log[:end]), **_STOPPED)
        del self._lives[number]

    def stop(self, number: int) -> None:
        """The member is asked to stop: it closes its store, and ends its lease."""
        life = self._life(number)
        self._spend(stops=1)
        self._stop_waiting(number)
        self._disconnect(number)
        if life.fence is not None:
            life.fence.close()
            self._look_at(life)
            self._cut_connections(life.fence.term.master.epoch)
            if self.service.master == number:
                self.service = self.service._replace(master=0, ends=0)
                self._changed()
        life.close()
        life.complete.save()
        self.members[number - 1] = life.saved()._replace(**_STOPPED)
        del self._lives[number]

    def start(self, number: int) -> None:
        """The member's process starts."""
        life = self._life(number)
        life.up = True
        life.complete.load()
        life.open()


_STOPPED: dict[str, Any] = {
    "up": False,
    "is_whole": False,
    "admitted_in": -1,
    "lease": 0,
    "follows": 0,
    "connected": 0,
    "term": (),
}


def _as_answer(service: Service) -> GroupState:
    """The state that a change has made, for its sender."""
    return _with_guard(read(service), 1)


def _with_guard(state: GroupState, guard: int) -> GroupState:
    """The state whose guard is 1 if the service accepts a change from the member that read it."""
    return GroupState(
        *(state.master, state.epoch, state.in_sync, (guard,), None, state.seats, state.since)
    )


def _a_tick_later(member: Member) -> Member:
    term = member.term
    if not member.lease and not term:
        return member
    return member._replace(
        lease=max(member.lease - TICK, 0), term=term and _term_a_tick_later(term)
    )


def _term_a_tick_later(term: Term) -> Term:
    return term._replace(
        slaves=tuple(
            (
                number,
                slave._replace(
                    caught_up_at=later(slave.caught_up_at), mark_at=later(slave.mark_at)
                ),
            )
            for number, slave in term.slaves
        )
    )


def _one_master_acknowledges(state: State) -> None:
    acting = [number for number, member in enumerate(state.members, 1) if member.lease]
    if len(acting) > 1:
        raise BrokenInvariantError(f"members {acting} may acknowledge at one time")
    epochs = [member.term.epoch for member in state.members if member.term]
    if len(set(epochs)) < len(epochs):
        raise BrokenInvariantError(f"two members are masters of epochs {epochs}")
