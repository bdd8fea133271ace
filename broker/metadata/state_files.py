"""The state files of a broker: their paths, and the writing of changes."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from congreve.broker.metadata.metadata import Metadata
from congreve.broker.metadata.offset_file import OffsetFile
from congreve.broker.metadata.state_writer import Changes
from congreve.broker.metadata.table_file import Entry, TableFile
from congreve.engine.config import StoreConfig
from congreve.engine.state.state_file import DISK, FileSystem, StateFile
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TopicConfig


class StateFiles:
    """The files of `metadata`; each change of a table is written soon, with retries.

    consumerOffset.json is written by save_offsets(), acknowledged offsets go to its journal. Topics
    and groups go to journals, too, and fold() writes topics.json and subscriptionGroup.json.
    """

    def __init__(self, config: StoreConfig, metadata: Metadata, files: FileSystem = DISK) -> None:
        folder = config.config_dir
        self._metadata = metadata
        topics, groups, filters = metadata.topics, metadata.groups, metadata.filters
        self._topics = TableFile(
            os.path.join(folder, "topics.json"),
            os.path.join(config.own_dir, "topics.journal"),
            topics,
            Entry[TopicConfig],
            files,
        )
        self._groups = TableFile(
            os.path.join(folder, "subscriptionGroup.json"),
            os.path.join(config.own_dir, "subscriptionGroup.journal"),
            groups,
            Entry[SubscriptionGroupConfig],
            files,
        )
        self._filters = StateFile(os.path.join(folder, "consumerFilter.json"), files=files)
        self._offsets = OffsetFile(
            os.path.join(folder, "consumerOffset.json"),
            os.path.join(config.own_dir, "consumerOffset.journal"),
            metadata.offsets,
            files,
        )
        self._modes = StateFile(os.path.join(folder, "messageRequestMode.json"), files=files)
        topics.file = self._topics.changes
        groups.file = self._groups.changes
        filters.file = Changes(
            self._filters.path,
            filters.drop_long_dead,
            lambda _: self._filters.replace(filters.file_text()),
        )
        modes = metadata.request_modes
        self._modes_changes = Changes(self._modes.path, modes.file_text, self._modes.replace)
        modes.file = self._modes_changes
        self._offsets_changes = Changes(
            self._offsets.path, lambda: None, lambda _: self._offsets.replace()
        )
        metadata.offsets.journal = Changes(
            self._offsets.journal_path, metadata.offsets.take_acknowledged, self._offsets.append
        )
        self.all: tuple[Changes[Any], ...] = (
            self._topics.changes,
            self._groups.changes,
            filters.file,
            self._modes_changes,
            self._offsets_changes,
            metadata.offsets.journal,
            metadata.deleted_topics.file,
        )

    @property
    def topics_path(self) -> str:
        """The path of topics.json."""
        return self._topics.path

    def copy_tables(self, copied: Callable[[], Awaitable[None]]) -> None:
        """Let changes of topics, groups and request modes count as saved when `copied` has
        returned, too."""
        for changes in (self._topics.changes, self._groups.changes, self._modes_changes):
            changes.copied = copied

    def load(self) -> bool:
        """Read all files; returns whether there was a topics.json.

        Raises StoreError when a file cannot be used.
        """
        metadata = self._metadata
        had_topics = self._topics.load()
        self._groups.load()
        self._filters.load(metadata.filters.load)
        self._modes.load(metadata.request_modes.load)
        self._offsets.load()
        metadata.deleted_topics.load()
        return had_topics

    def save_offsets(self) -> None:
        """Write consumerOffset.json soon if an offset has changed."""
        offsets = self._metadata.offsets
        if offsets.dirty:
            offsets.dirty = False
            self._offsets_changes.changed()

    def fold(self) -> None:
        """Write topics.json and subscriptionGroup.json soon where their journals have changes."""
        self._topics.fold()
        self._groups.fold()

    async def close(self) -> None:
        """Write all unsaved changes, and close the files; a failure is logged."""
        self.save_offsets()
        self.fold()
        for changes in self.all:
            await changes.finish()
        self._topics.close()
        self._groups.close()
        self._offsets.close()
