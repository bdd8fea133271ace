"""Notifies members of changes of their group (RocketMQ: ConsumerIdsChangeListener).

If a thousand members join in turn, each of them changes the group for all. So a large group, and
one that changes often, learns of all changes during one round in the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Generator

from congreve.base.steps import at_once
from congreve.broker.group.broker_to_client import notify_consumer_ids_changed
from congreve.broker.group.consumers import ConsumerGroup
from congreve.remoting.loop.background import BackgroundTask
from congreve.remoting.loop.pieces import Pieces

logger = logging.getLogger(__name__)

PAUSE_S = 0.05
"""Seconds between two rounds."""
_AT_ONCE = 64  # members
_TIMES = 8
"""Times that a group hears at once between two rounds: members that start or stop together."""


class GroupNotifier:
    """Notifies groups at once, and large ones in rounds.

    One event loop owns it. (RocketMQ: DefaultConsumerIdsChangeListener.)
    """

    def __init__(self, pieces: Pieces, find: Callable[[str], ConsumerGroup | None]) -> None:
        self._pieces = pieces
        self._find = find
        self._changed: dict[str, None] = {}
        self._rounds = BackgroundTask("notices of members", self._notify_all, logger)
        self._in_round = False
        self._times: dict[str, int] = {}

    def changed(self, name: str) -> None:
        """Notify all members of the group."""
        group, times = self._find(name), self._times.get(name, 0)
        if group is not None and len(group.channels) <= _AT_ONCE and times < _TIMES:
            self._times[name] = times + 1
            at_once(_notify(group))
        else:
            self._changed[name] = None
        if not self._in_round:
            self._in_round = True
            self._rounds.start()

    async def stop(self) -> None:
        """Send no more notifications."""
        await self._rounds.stop()

    async def _notify_all(self) -> None:
        while True:
            names, self._changed = self._changed, {}
            for name in names:
                group = self._find(name)
                if group is not None:
                    await self._pieces.run(_notify(group))
            await asyncio.sleep(PAUSE_S)
            self._times.clear()
            if not self._changed:
                break
        self._in_round = False


def _notify(group: ConsumerGroup) -> Generator[None, None, None]:
    for member in list(group.channels):
        notify_consumer_ids_changed(group.name, member)
        yield
