"""Every state of a SYNC_MASTER and its slaves, all with SYNC_FLUSH, over the HA port.

Drives what decides in a master: SlaveConnection with its reports, SlaveLoop and ConfirmOffset, over
real logs. A message is a number; offsets count messages here, and bytes there.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from congreve.broker.replication.slave_connection import ReplicationError, SlaveConnection
from congreve.broker.replication.slave_loop import SlaveLoop
from congreve.engine.config import StoreConfig
from congreve.engine.replication.confirm_offset import ConfirmOffset
from congreve.engine.store import MessageStore
from congreve.io_backends.backend import Backend
from congreve.records.message.message import Record

from . import page

MASTER = 0
FRAME = 1 << 16

Action = tuple[Any, ...]


class Node(NamedTuple):
    """A broker: its log, how much of it is on its disk, and whether it runs.

    A slave with a connection has what its master has sent, and what it has reported.
    """

    log: tuple[int, ...] = ()
    durable: int = 0
    up: bool = True
    connected: bool = False
    sent: int = 0
    reported: int = 0


class State(NamedTuple):
    """The nodes, the master first; what it has confirmed; what producers got answers for."""

    nodes: tuple[Node, ...]
    confirmed: int
    promised: tuple[int, ...]
    messages: int
    stops: int


class Rules(NamedTuple):
    """What brokers do; a seeded bug changes one."""

    sends_what_is_on_disk: bool = True
    reports_what_is_on_disk: bool = True
    flushes_before_it_follows: bool = True
    waits_for_slaves: bool = True
    disks_keep_what_is_synced: bool = True


class Bound(NamedTuple):
    """How many slaves there are, and what may happen."""

    slaves: int
    messages: int
    stops: int


SMALL = (Bound(slaves=1, messages=3, stops=2), Bound(slaves=2, messages=2, stops=1))
LARGE = (*SMALL, Bound(slaves=2, messages=3, stops=2), Bound(slaves=1, messages=5, stops=4))
RIGHT = Rules()
BUGS = {
    "the master sends what is not on its disk": Rules(sends_what_is_on_disk=False),
    "a slave reports what is not on its disk": Rules(reports_what_is_on_disk=False),
    "a slave follows before its log is on disk": Rules(flushes_before_it_follows=False),
    "an answer does not wait for a slave": Rules(waits_for_slaves=False),
    "disks lose what is synced": Rules(disks_keep_what_is_synced=False),
}


class BrokenPairError(Exception):
    """A promise does not hold."""


class Peer:
    """The master's end of a connection, whose other end is not read."""

    def __init__(self, number: int) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._number = number

    def fileno(self) -> int:
        """Of the socket."""
        return self._near.fileno()

    def getpeername(self) -> tuple[str, int]:
        """A name for messages."""
        return "slave", self._number

    def empty(self) -> None:
        """Forget what was sent."""
        with suppress(BlockingIOError):
            self._far.recv(FRAME)

    def close(self) -> None:
        """Close both ends."""
        self._near.close()
        self._far.close()


class Pair:
    """Takes steps from one state to the next."""

    def __init__(self, bound: Bound, rules: Rules) -> None:
        self.rules = rules
        self._open = ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        self._logs = [self._log(folder / str(count), count) for count in range(bound.messages + 1)]
        self._size = self._logs[1].max_offset
        self._peers = [Peer(number) for number in range(bound.slaves + 1)]
        for peer in self._peers:
            self._open.callback(peer.close)
        self._wake = os.eventfd(0)
        self._open.callback(os.close, self._wake)

    def _log(self, folder: Path, count: int) -> Any:
        config = StoreConfig(
            root_dir=str(folder), mapped_file_size_commit_log=FRAME, message_index_enable=False
        )
        store = self._open.enter_context(MessageStore(config, disk_use=lambda _: 0.5))
        for _ in range(count):
            store.put(Record(topic="T", body=b"."))
        return store.log

    def close(self) -> None:
        """Close the logs and sockets."""
        self._open.close()

    def after(self, state: State, action: Action) -> State:
        """The state after this action. Raises BrokenPairError."""
        name, *rest = action
        state = getattr(self, f"_{name}")(state, *rest)
        return _checked(self._answered(state))

    # --- the master's classes, made of a state

    def _connection(self, state: State, number: int) -> SlaveConnection:
        node, log = state.nodes[number], self._logs[len(state.nodes[MASTER].log)]
        peer: Any = self._peers[number]
        peer.empty()
        connection = SlaveConnection(peer, log, FRAME, 0.0)
        connection.take_report(node.reported * self._size)
        connection.send(node.sent * self._size, 0.0)
        return connection

    def _confirmed(self, state: State) -> ConfirmOffset:
        """After all reports so far."""
        confirm = ConfirmOffset(Backend(), waits_for_disk=False, waits_for_slaves=True)
        confirm.confirm(state.confirmed * self._size, 0)
        log = self._logs[len(state.nodes[MASTER].log)]
        loop = SlaveLoop(log, confirm, wake=self._wake, sync_flush=True)
        for number, node in enumerate(state.nodes):
            if node.connected:
                loop.add(self._connection(state, number))
        loop.confirm_reports()
        return confirm

    def _answered(self, state: State) -> State:
        """Producers get their answers as soon as they may."""
        master = state.nodes[MASTER]
        if not master.up:
            return state
        confirm = self._confirmed(state)
        confirmed = confirm.confirmed_offset // self._size
        end = master.durable
        if self.rules.waits_for_slaves:
            end = min(end, confirmed)
        promised = max(state.promised, master.log[:end], key=len)
        return state._replace(confirmed=confirmed, promised=promised)

    # --- actions

    def _produce(self, state: State) -> State:
        """Its number tells a message from the one that had its offset before."""
        master = state.nodes[MASTER]
        log = (*master.log, state.messages)
        return _with(state, MASTER, log=log)._replace(messages=state.messages - 1)

    def _flush(self, state: State, number: int) -> State:
        return _with(state, number, durable=len(state.nodes[number].log))

    def _connect(self, state: State, number: int) -> State:
        if self.rules.flushes_before_it_follows:
            state = self._flush(state, number)
        end = len(state.nodes[number].log)
        state = _with(state, number, connected=True, sent=end, reported=end)
        try:
            self._connection(state, number)
        except ReplicationError as error:
            raise BrokenPairError(f"the master refuses slave {number}: {error}") from error
        return state

    def _send(self, state: State, number: int) -> State:
        """What may be sent is sent; it arrives later, message by message."""
        master = state.nodes[MASTER]
        end = master.durable if self.rules.sends_what_is_on_disk else len(master.log)
        connection = self._connection(state, number)
        connection.send(end * self._size, 0.0)
        return _with(state, number, sent=connection.next // self._size)

    def _receive(self, state: State, number: int) -> State:
        node = state.nodes[number]
        return _with(state, number, log=state.nodes[MASTER].log[: len(node.log) + 1])

    def _report(self, state: State, number: int) -> State:
        node = state.nodes[number]
        end = node.durable if self.rules.reports_what_is_on_disk else len(node.log)
        connection = self._connection(state, number)
        connection.take_report(end * self._size)
        return _with(state, number, reported=connection.acknowledged // self._size)

    def _cut(self, state: State, number: int) -> State:
        return _with(state, number, connected=False, sent=0, reported=0)

    def _crash(self, state: State, number: int, left: int) -> State:
        """A node ends; its log has `left` messages then, and all of them are on its disk."""
        ends = range(1, len(state.nodes)) if number == MASTER else [number]
        for each in ends:
            state = self._cut(state, each)
        log = state.nodes[number].log[:left]
        state = _with(state, number, log=log, durable=left, up=False)
        confirmed = 0 if number == MASTER else state.confirmed
        return state._replace(stops=state.stops - 1, confirmed=confirmed)

    def _start(self, state: State, number: int) -> State:
        return _with(state, number, up=True)


def _with(state: State, number: int, **changed: Any) -> State:
    nodes = list(state.nodes)
    nodes[number] = nodes[number]._replace(**changed)
    return state._replace(nodes=tuple(nodes))


def _checked(state: State) -> State:
    master, *slaves = state.nodes
    promised = state.promised
    if master.log[: len(promised)] != promised:
        raise BrokenPairError("the master has lost an acknowledged message")
    if all(slave.log[: len(promised)] != promised for slave in slaves):
        raise BrokenPairError("no slave has all acknowledged messages")
    for number, slave in enumerate(slaves, 1):
        if slave.log != master.log[: len(slave.log)]:
            raise BrokenPairError(f"the log of slave {number} is not the beginning of the master's")
    # Slaves have the same rules: the order of their numbers does not count.
    return state._replace(nodes=(master, *sorted(slaves)))


def actions(state: State, rules: Rules) -> Iterator[Action]:
    """What may happen next."""
    master = state.nodes[MASTER]
    for number, node in enumerate(state.nodes):
        if not node.up:
            yield "start", number
            continue
        if node.durable < len(node.log):
            yield "flush", number
        if state.stops:
            fewest = node.durable if rules.disks_keep_what_is_synced else 0
            for left in range(fewest, len(node.log) + 1):
                yield "crash", number, left
        if number and master.up:
            yield from _of_slave(master, node, number)
    if master.up and state.messages:
        yield ("produce",)


def _of_slave(master: Node, node: Node, number: int) -> Iterator[Action]:
    if not node.connected:
        yield "connect", number
        return
    yield "cut", number
    if node.sent < len(master.log):
        yield "send", number
    if len(node.log) < node.sent:
        yield "receive", number
    if node.reported < len(node.log):
        yield "report", number


class Explored(NamedTuple):
    """How many states there are, and the way to a broken promise if there is one."""

    states: int
    steps: int
    seconds: float
    broken: str = ""
    trace: tuple[Action, ...] = ()


def explore(bound: Bound, rules: Rules = RIGHT) -> Explored:
    """All states, nearest first; ends at the first broken one."""
    pair = Pair(bound, rules)
    begin = State((Node(),) * (bound.slaves + 1), 0, (), bound.messages, bound.stops)
    before: dict[State, tuple[State, Action] | None] = {begin: None}
    waiting, steps, began = [begin], 0, time.process_time()
    try:
        for state in waiting:
            for action in actions(state, rules):
                steps += 1
                try:
                    following = pair.after(state, action)
                except BrokenPairError as error:
                    trace = (*_way(before, state), action)
                    spent = time.process_time() - began
                    return Explored(len(before), steps, spent, str(error), trace)
                if following not in before:
                    before[following] = state, action
                    waiting.append(following)
            if not _goes_on(pair, state):
                trace, spent = _way(before, state), time.process_time() - began
                return Explored(len(before), steps, spent, "nothing is acknowledged", trace)
    finally:
        pair.close()
    return Explored(len(before), steps, time.process_time() - began)


def _way(before: dict[State, tuple[State, Action] | None], state: State) -> tuple[Action, ...]:
    """The actions to a state; slaves may change their numbers on it."""
    way: list[Action] = []
    while (step := before[state]) is not None:
        state, action = step
        way.append(action)
    return tuple(reversed(way))


QUIET = ("start", "connect", "flush", "send", "receive", "report")


def _goes_on(pair: Pair, state: State) -> bool:
    """Whether all that the master has is acknowledged, once nothing fails."""
    while steps := [each for each in actions(state, pair.rules) if each[0] in QUIET]:
        following = pair.after(state, min(steps, key=lambda each: QUIET.index(each[0])))
        if following == state:
            break
        state = following
    return state.promised == state.nodes[MASTER].log


def main(size: str) -> int:
    """Explore, and write what was found into tests/proof/results.md; the exit code."""
    found = {bound: explore(bound) for bound in (LARGE if size == "large" else SMALL)}
    bugs = {name: explore(SMALL[0], rules) for name, rules in BUGS.items()}
    for each in (*found.items(), *bugs.items()):
        print(*each, sep=": ", flush=True)
    page.write(
        "proof.classic",
        [
            f"Last run: {page.today()}, `{size}`.",
            "",
            "| slaves | messages | stops | states | steps | CPU s | broken |",
            "|" + "---|" * 7,
            *(
                f"| {' | '.join(map(str, bound))} | {each.states:,} | {each.steps:,} |"
                f" {each.seconds:.1f} | {each.broken or 'no'} |"
                for bound, each in found.items()
            ),
            "",
            "| seeded bug | states | steps to it |",
            "|---|---|---|",
            *(f"| {name} | {each.states:,} | {len(each.trace)} |" for name, each in bugs.items()),
        ],
    )
    is_right = not any(each.broken for each in found.values())
    return 0 if is_right and all(each.broken for each in bugs.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
