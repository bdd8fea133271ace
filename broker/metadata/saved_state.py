"""Topics and groups that are in memory but not on disk yet; answers wait for them."""

import asyncio
from collections.abc import Awaitable, Callable

from congreve.broker.metadata.groups import SubscriptionGroupManager
from congreve.broker.metadata.topics import TopicConfigManager


class SavedState:
    """Waits for topics and groups to be on disk before an answer depends on them."""

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        topics_saved: Callable[[], Awaitable[None]],
        groups_saved: Callable[[], Awaitable[None]],
    ) -> None:
        """`topics_saved` and `groups_saved` return when all changes so far are on disk.

        They raise StoreError when these cannot be written.
        """
        self._topics = topics
        self._groups = groups
        self._topics_saved = topics_saved
        self._groups_saved = groups_saved

    def missing(
        self, *, topics: tuple[str, ...] = (), group: str | None = None
    ) -> Awaitable[object] | None:
        """None when these are on disk, else an awaitable until they are.

        It raises StoreError when they cannot be written.
        """
        topic_missing = not all(map(self._topics.is_saved, topics))
        group_missing = group is not None and not self._groups.is_saved(group)
        if topic_missing and group_missing:
            return asyncio.gather(self._topics_saved(), self._groups_saved())
        if topic_missing:
            return self._topics_saved()
        return self._groups_saved() if group_missing else None
