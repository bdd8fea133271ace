"""No acknowledged message is lost, and at most one master acknowledges, whatever fails."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from .simulation import MAX_LAG_S, TTL_S, Group, Node

WALKS, STEPS = 200, 1_000

members = st.integers(0, 2)


class Failures(RuleBasedStateMachine):
    """Members crash and pause, messages and answers are lost; hypothesis finds the shortest
    failure."""

    @initialize(count=st.integers(2, 3), min_in_sync=st.integers(1, 2))
    def begin(self, count: int, min_in_sync: int) -> None:
        self.group = Group(count, min_in_sync)
        self.group.run_without_failures()

    def node(self, number: int) -> Node:
        return self.group.nodes[number % len(self.group.nodes) + 1]

    @rule(number=members)
    def look(self, number: int) -> None:
        self.group.look(self.node(number))

    @rule(index=st.integers(0, 3), answered=st.sampled_from([True, True, False]))
    def carry_out(self, index: int, answered: bool) -> None:
        self.group.carry_out(index, answered=answered)

    @rule(number=members)
    def give_up(self, number: int) -> None:
        self.group.give_up(self.node(number))

    @rule(number=members)
    def change_set(self, number: int) -> None:
        self.group.change_set(self.node(number))

    @rule(number=members, count=st.integers(1, 3))
    def produce(self, number: int, count: int) -> None:
        for _ in range(count):
            self.group.produce(self.node(number))

    @rule(number=members, count=st.integers(1, 9), reported=st.booleans())
    def copy(self, number: int, count: int, reported: bool) -> None:
        self.group.copy(self.node(number), count, reported=reported)

    @rule(number=members)
    def crash(self, number: int) -> None:
        self.group.crash(self.node(number))

    @rule(number=members)
    def stop(self, number: int) -> None:
        self.group.stop(self.node(number))

    @rule(number=members, count=st.integers(1, 3))
    def lose_end(self, number: int, count: int) -> None:
        node = self.node(number)
        if self.group.may_lose(node):
            self.group.crash(node)
            node.lose_end(count)

    @rule(count=st.integers(0, 3), number=members)
    def lose_power(self, number: int, count: int) -> None:
        for node in self.group.nodes.values():
            self.group.crash(node)
        if self.group.may_lose(self.node(number)):
            self.node(number).lose_end(count)

    @rule(number=members)
    def disconnect(self, number: int) -> None:
        self.group.disconnect(self.node(number))

    @rule(number=members)
    def transfer(self, number: int) -> None:
        self.group.ask(self.node(number).number)

    @rule(seconds=st.sampled_from([0.1, 1.0, TTL_S]))
    def pass_time(self, seconds: float) -> None:
        self.group.time += seconds

    @rule()
    def run_without_failures(self) -> None:
        self.group.run_without_failures()

    @invariant()
    def one_master_acknowledges(self) -> None:
        if hasattr(self, "group"):
            assert len(self.group.acting()) <= 1


TestFailures = Failures.TestCase
TestFailures.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


class Walk:
    """A long random walk of one group; with `wipes` slaves lose their disks."""

    def __init__(self, seed: int, *, wipes: bool) -> None:
        self._random = random.Random(seed)
        self.group = Group(self._random.choice((2, 3)), self._random.choice((1, 1, 2)))
        self._steps: dict[Callable[[], object], float] = {
            self._look: 20,
            self._carry_out: 20,
            self._give_up: 3,
            self._change_set: 12,
            self._renew: 16,
            self._produce: 14,
            self._copy: 25,
            self._acknowledge: 3,
            self._disconnect: 1,
            self._crash: 0.5,
            self._stop: 0.5,
            self._lose_end: 0.1 if wipes else 0.4,
            self._lose_power: 0.03 if wipes else 0.1,
            self._restart: 4,
            self._wait: 10,
            self._wait_long: 1,
            self._run_without_failures: 1.2 if wipes else 0.2,
            self._wipe: 1.5 if wipes else 0,
            self._transfer: 0.2,
            self._elect_unclean: 0.04,
        }

    def run(self, steps: int) -> Group:
        for step in self._random.choices(list(self._steps), list(self._steps.values()), k=steps):
            step()
            assert len(self.group.acting()) <= 1, "two masters may acknowledge"
        return self.group

    def _node(self) -> Node:
        return self._random.choice(list(self.group.nodes.values()))

    def _is_answered(self) -> bool:
        return self._random.random() < 0.9

    def _look(self) -> None:
        self.group.look(self._node())

    def _carry_out(self) -> None:
        self.group.carry_out(self._random.randrange(9), answered=self._is_answered())

    def _give_up(self) -> None:
        self.group.give_up(self._node())

    def _change_set(self) -> None:
        self.group.change_set(self._node())

    def _renew(self) -> None:
        self.group.renew(self._node(), answered=self._is_answered())

    def _produce(self) -> None:
        self.group.produce(self._node())

    def _copy(self) -> None:
        self.group.copy(self._node(), self._random.randrange(6), reported=self._is_answered())

    def _acknowledge(self) -> None:
        self.group.acknowledge(self._node())

    def _disconnect(self) -> None:
        self.group.disconnect(self._node())

    def _crash(self) -> None:
        self.group.crash(self._node())

    def _stop(self) -> None:
        self.group.stop(self._node())

    def _lose_end(self) -> None:
        node = self._node()
        if self.group.may_lose(node):
            if node.up:
                self.group.crash(node)
            node.lose_end(self._random.randrange(4))

    def _lose_power(self) -> None:
        for node in self.group.nodes.values():
            self.group.crash(node)
        self._lose_end()

    def _restart(self) -> None:
        node = self._node()
        if not node.up:
            node.start()

    def _wait(self) -> None:
        self.group.time += 0.1

    def _wait_long(self) -> None:
        self.group.time += self._random.choice((1.0, TTL_S))

    def _run_without_failures(self) -> None:
        self.group.run_without_failures()

    def _transfer(self) -> None:
        self.group.ask(self._node().number)

    def _elect_unclean(self) -> None:
        """The service accepts it only if there is no master."""
        self.group.ask(self._node().number, unclean=True)

    def _wipe(self) -> None:
        """Lose one disk, unless it is the last one that has all acknowledged messages."""
        node = self._node()
        if not any(each.up and each.term is not None for each in self.group.nodes.values()):
            return
        others = (each for each in self.group.nodes.values() if each is not node)
        if any(self.group.acknowledged <= {m for _, m in each.log} for each in others):
            self.group.wipe(node)


def read_to_the_end(group: Group) -> None:
    """After all failures a consumer has read each acknowledged message, at one offset."""
    for _ in range(20):
        group.run_without_failures()
        if group.acting():
            break
    skipped = group.acknowledged - set(group.consumer.read)
    assert not group.acting() or not skipped, f"a consumer never gets {sorted(skipped)}"


@pytest.mark.parametrize("wipes", [False, True])
def test_random_walks_lose_no_message(wipes: bool) -> None:
    acknowledged = terms = unclean = 0
    for seed in range(WALKS):
        group = Walk(seed, wipes=wipes).run(STEPS)
        read_to_the_end(group)
        acknowledged += len(group.acknowledged)
        terms += group.terms
        unclean += group.unclean
    # Walks that elect no master and acknowledge no message would test nothing.
    assert acknowledged > WALKS * 15
    assert terms > WALKS * 3
    assert unclean > 5


@pytest.mark.crash
def test_many_random_walks_lose_no_message(
    kill_rounds: int, campaign: Callable[[str, int], None]
) -> None:
    walks = 4 * kill_rounds
    for seed in range(1_000, 1_000 + walks):
        read_to_the_end(Walk(seed, wipes=seed % 2 == 0).run(STEPS))
    campaign("random walks of an elected group in memory", walks)


def test_a_group_without_failures_gets_all_members_into_the_set() -> None:
    group = Group(3, min_in_sync=2)
    group.run_without_failures()
    (master,) = group.acting()
    node = group.nodes[master]
    assert node.term is not None
    assert node.term.state.in_sync == {1, 2, 3}
    group.produce(node)
    group.run_without_failures()
    assert group.acknowledged == {1}
    assert [len(each.log) for each in group.nodes.values()] == [1, 1, 1]
    assert group.terms == 1


@pytest.mark.parametrize("tends", [False, True])
def test_a_new_master_that_is_lost_at_once_leaves_the_others_eligible(tends: bool) -> None:
    """They have all that is acknowledged, as long as it could acknowledge nothing."""
    group = Group(3, min_in_sync=2)
    group.run_without_failures()
    (first,) = group.acting()
    for _ in range(3):
        group.produce(group.nodes[first])
    group.run_without_failures()
    assert group.acknowledged == {1, 2, 3}
    group.crash(group.nodes[first])
    second, third = (node for number, node in group.nodes.items() if number != first)
    elect(group, second)
    assert group.acting() == [second.number]
    if tends:
        group.change_set(second)
        group.carry_out(0, answered=True)
    group.produce(second)
    group.crash(second)
    second.lose_end(3)
    elect(group, third)
    assert group.acting() == [third.number]
    assert [message for _, message in third.log] == [1, 2, 3]
    group.run_without_failures()
    assert group.service.in_sync == {1, 2, 3}


def elect(group: Group, node: Node) -> None:
    """Let this member alone look, for longer than a lease lasts."""
    for _ in range(2 * round(TTL_S * 10)):
        group.time += 0.1
        group.look(node)
        group.renew(node, answered=True)
        group.carry_out(0, answered=True)


def test_an_operator_hands_the_group_to_the_wanted_member() -> None:
    group = Group(3)
    group.run_without_failures()
    for wanted in (3, 1, 2):
        (master,) = group.acting()
        group.produce(group.nodes[master])
        group.run_without_failures()
        group.ask(wanted)
        group.run_without_failures()
        assert group.acting() == [wanted]
        assert group.service.request is None
    assert group.acknowledged == {1, 2, 3}


def test_the_group_continues_without_the_member_that_an_operator_wants() -> None:
    group = Group(2)
    group.run_without_failures()
    (master,) = group.acting()
    group.crash(group.nodes[3 - master])
    group.ask(3 - master)
    for _ in range(40):
        group.time += 0.1
        group.look(group.nodes[master])
        group.carry_out(0, answered=True)
    assert group.acting() == [master]
    assert group.terms == 2


def test_only_an_operator_makes_a_member_master_that_lacks_messages() -> None:
    group = Group(2)
    group.run_without_failures()
    (master,) = group.acting()
    ahead, behind = group.nodes[master], group.nodes[3 - master]
    group.produce(ahead)
    group.run_without_failures()
    group.crash(behind)
    group.produce(ahead)
    group.time += MAX_LAG_S
    group.renew(ahead, answered=True)
    group.change_set(ahead)
    group.carry_out(0, answered=True)
    group.acknowledge(ahead)
    assert group.acknowledged == {1, 2}
    group.crash(ahead)
    behind.start()
    for asked in (False, True):
        if asked:
            group.ask(behind.number, unclean=True)
        for _ in range(2 * round(TTL_S * 10)):
            group.time += 0.1
            group.look(behind)
            group.renew(behind, answered=True)
            group.carry_out(0, answered=True)
        assert group.acting() == ([behind.number] if asked else [])
    assert group.acknowledged == {1}
    group.produce(behind)
    group.run_without_failures()
    assert [message for _, message in ahead.log] == [message for _, message in behind.log] == [1, 3]
