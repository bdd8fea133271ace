"""Notifies members of changes of their group (RocketMQ: ConsumerIdsChangeListener).

If a thousand members join in turn, each of them changes the group for all. All changes during one
round therefore cause only one further round.
"""

import asyncio
from collections.abc import Callable, Generator

from congreve.base.steps import at_once
from congreve.broker.group.broker_to_client import notify_consumer_ids_changed
from congreve.broker.group.consumers import ConsumerGroup
from congreve.remoting.loop.pieces import Pieces

PAUSE_S = 0.05
"""Seconds between two rounds."""
_AT_ONCE = 64  # members


class GroupNotifier:
    """Notifies groups in rounds; the first change after a pause is sent at once.

    One event loop owns it. (RocketMQ: DefaultConsumerIdsChangeListener.)
    """

    def __init__(self, pieces: Pieces, find: Callable[[str], ConsumerGroup | None]) -> None:
        self._pieces = pieces
        self._find = find
        self._changed: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None

    def changed(self, name: str) -> None:
        """Notify all members of the group."""
        if self._task is not None:
            self._changed[name] = None
            return
        group = self._find(name)
        if group is not None and len(group.channels) <= _AT_ONCE:
            at_once(_notify(group))
        else:
            self._changed[name] = None
        self._task = asyncio.get_running_loop().create_task(self._notify_all())

    def stop(self) -> None:
        """Send no more notifications."""
        if self._task is not None:
            self._task.cancel()

    async def _notify_all(self) -> None:
        try:
            while True:
                names, self._changed = self._changed, {}
                for name in names:
                    group = self._find(name)
                    if group is not None:
                        await self._pieces.run(_notify(group))
                await asyncio.sleep(PAUSE_S)
                if not self._changed:
                    break
        finally:
            self._task = None


def _notify(group: ConsumerGroup) -> Generator[None, None, None]:
    for member in list(group.channels):
        notify_consumer_ids_changed(group.name, member)
        yield
