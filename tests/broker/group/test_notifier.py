"""Notices of changes: small groups hear at once, what changes often in the next round."""

import asyncio
from typing import cast

from congreve.broker.group.consumers import ConsumerGroup
from congreve.broker.group.notifier import PAUSE_S, GroupNotifier
from congreve.remoting.loop.pieces import Pieces


class Member:
    """A channel that counts what is pushed to it."""

    def __init__(self) -> None:
        self.notices = 0
        self.closed = False

    def oneway(self, _: object) -> None:
        self.notices += 1


class Group:
    def __init__(self, name: str, members: int) -> None:
        self.name = name
        self.channels = {Member(): None for _ in range(members)}

    @property
    def notices(self) -> set[int]:
        return {member.notices for member in self.channels}


def notifier(*groups: Group) -> GroupNotifier:
    named = {group.name: cast(ConsumerGroup, group) for group in groups}
    return GroupNotifier(Pieces(), named.get)


async def test_members_that_stop_one_after_the_other_are_known_at_once() -> None:
    first, second = Group("a", 3), Group("b", 2)
    rounds = notifier(first, second)
    for changes in range(1, 4):
        rounds.changed("a")
        rounds.changed("b")
        assert first.notices == second.notices == {changes}
    rounds.changed("unknown")
    await rounds.stop()


async def test_a_group_that_changes_often_or_is_large_hears_once_a_round() -> None:
    busy, large = Group("busy", 2), Group("large", 65)
    rounds = notifier(busy, large)
    for _ in range(1_000):
        rounds.changed("busy")
        rounds.changed("large")
    at_once = busy.notices
    assert at_once == {8} and large.notices == {0}
    await asyncio.sleep(3 * PAUSE_S)
    assert busy.notices == {9} and large.notices == {1}
    await rounds.stop()
