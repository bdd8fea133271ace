"""Settings of consumer groups (RocketMQ: SubscriptionGroupManager)."""

import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any

import msgspec

from congreve.base.clock import Clock
from congreve.base.table_limit import CreatedOnUse, TableLimit
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.name_rules import entry_fault, group_name_fault, retries_fault
from congreve.broker.metadata.state_writer import MemoryOnly, TableFile, Unsaved
from congreve.broker.metadata.table_file import Entry
from congreve.broker.metadata.table_text import TableBody, check_entry, file_text, table_texts
from congreve.records.message.topics import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)

GROUP_BYTES = 2_560
"""Memory of a group and its retry topic, without their names."""

logger = logging.getLogger(__name__)


class SubscriptionGroupManager:
    """The table of groups; a change replaces a config and never edits it.

    It reports each change to `file`, which numbers the change, writes it to disk and then calls
    note_saved(). (RocketMQ: SubscriptionGroupManager.)
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.file: TableFile = MemoryOnly()
        self.table: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS
        }
        self._limit = TableLimit(
            "maxGroups", "subscription groups", lambda: config.limits.max_groups
        )
        self._created = CreatedOnUse("groups", lambda: config.limits.max_created_on_use_bytes)
        self.data_version = DataVersion(counter=0, timestamp=clock.now())
        self._unsaved = Unsaved()
        self._texts = table_texts(self.table)
        self._changed: set[str] = set()  # since take_changed()
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each group that has changed."""
        self._listeners.append(listener)

    def is_saved(self, group: str) -> bool:
        """Whether a group of the table is on disk."""
        return group not in self._unsaved

    def note_saved(self, number: int) -> None:
        """Record that changes up to this number are on disk."""
        self._unsaved.saved(number)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created if autoCreateSubscriptionGroup allows it; else None.

        Raises TableFullError as update() does, and for more than maxCreatedOnUseBytes.
        """
        known = self.table.get(group)
        if known is not None:
            return known
        allowed = self._config.auto_create_subscription_group or group.startswith(
            SYSTEM_GROUP_PREFIX
        )
        if not allowed or group_name_fault(group) is not None:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        self._created.check(group, GROUP_BYTES)
        self.update(created)
        self._created.add(group, GROUP_BYTES)
        logger.info("consumer group %s created on first use", group)
        if (fault := retries_fault(group)) is not None:
            logger.warning("%s", fault)
        return created

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Add or replace a group.

        Raises RefusedError for one that subscriptionGroup.json cannot hold, TableFullError for a
        new one if the table already has maxGroups groups.
        """
        name = config.group_name
        is_new = name not in self.table
        if is_new:
            self._limit.check(len(self.table))
        check_entry(name, config, _groups_of)
        self._set(config)
        number = self._version_changed()
        if is_new:
            self._unsaved.note(name, number)

    def delete(self, group: str) -> bool:
        """Delete a group; False if it does not exist."""
        if self.table.pop(group, None) is None:
            return False
        self._created.forget(group)
        self._note(group)
        self._unsaved.forget(group)
        self._version_changed()
        return True

    def body(self) -> TableBody[str, SubscriptionGroupConfig]:
        """The body of code 201, of which only changed groups are encoded again."""
        return TableBody(
            self.table,
            lambda: SubscriptionGroupWrapper(data_version=self.data_version),
            "subscriptionGroupTable",
        )

    def follow_master(
        self, theirs: Mapping[str, SubscriptionGroupConfig], version: DataVersion
    ) -> Generator[None, None, None]:
        """Replace the table by that of a slave's master.

        RocketMQ: SlaveSynchronize.syncSubscriptionGroupConfig.
        """
        for name in [name for name in self.table if name not in theirs]:
            self.delete(name)
            yield
        for name, config in theirs.items():
            if config != self.table.get(name):
                self._take_stored(name, config)
            yield
        self.data_version = msgspec.structs.replace(version)
        self.file.changed()

    def file_text(self, version: DataVersion) -> str:
        """Content of subscriptionGroup.json; one thread at a time may call it."""
        entries = list(self._texts.current().values())
        empty = SubscriptionGroupWrapper(data_version=version)
        return file_text(empty, "subscriptionGroupTable", entries)

    def load(self, text: str) -> bool:
        """Add the groups of subscriptionGroup.json to the system groups; returns True."""
        stored = SubscriptionGroupWrapper.from_tree(fastjson.loads(text))
        self.data_version = stored.data_version
        for name, config in stored.subscription_group_table.items():
            self._take_stored(name, config)
        return True

    def take_changed(self) -> Entry[SubscriptionGroupConfig] | None:
        """The groups that changed since the last call, None after a removal."""
        names, self._changed = self._changed, set()
        changed = {name: self.table[name] for name in names if name in self.table}
        return Entry(self.data_version, changed) if len(changed) == len(names) else None

    def replay(self, entry: Entry[SubscriptionGroupConfig]) -> None:
        """Apply an entry of the journal, after load()."""
        self.data_version = entry.version
        for name, config in entry.changed.items():
            self._take_stored(name, config)

    def _take_stored(self, name: str, config: SubscriptionGroupConfig) -> None:
        fault = entry_fault(name, config.group_name, [config.retry_queue_nums])
        if fault is not None:
            logger.error("ignoring group %.200r of subscriptionGroup.json: %s", name, fault)
            return
        self._set(config)

    def _set(self, config: SubscriptionGroupConfig) -> None:
        self.table[config.group_name] = config
        self._note(config.group_name)

    def _note(self, group: str) -> None:
        self._texts.changed(group)
        self._changed.add(group)
        for listener in self._listeners:
            listener(group)

    def _version_changed(self) -> int:
        self.data_version = DataVersion(
            counter=self.data_version.counter + 1, timestamp=self._clock.now()
        )
        return self.file.changed()


def _groups_of(tree: Any) -> dict[str, SubscriptionGroupConfig]:
    wrapper = SubscriptionGroupWrapper.from_tree({"subscriptionGroupTable": tree})
    return wrapper.subscription_group_table
