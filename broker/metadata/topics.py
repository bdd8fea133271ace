"""The broker's topics (RocketMQ: TopicConfigManager, TopicValidator)."""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from congreve.base.clock import Clock
from congreve.base.table_limit import CreatedOnUse, TableLimit
from congreve.broker.config import PERM_INHERIT, PERM_READ, PERM_WRITE, BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.name_rules import (
    QUEUES_MAX,
    entry_fault,
    forbidden_for_producers,
    topic_name_fault,
)
from congreve.broker.metadata.state_writer import MemoryOnly, TableFile, Unsaved
from congreve.broker.metadata.table_file import Entry
from congreve.broker.metadata.table_text import TableBody, check_entry, file_text, table_texts
from congreve.records.message.topics import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    BENCHMARK_TOPIC,
    DLQ_PREFIX,
    OFFSET_MOVED_EVENT_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    is_system_topic,
)
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from congreve.remoting.messages.codes import ResponseCode

logger = logging.getLogger(__name__)

SCHEDULE_TOPIC_QUEUES = 18

TOPIC_BYTES, QUEUE_BYTES = 1_024, 1_200
"""Memory of a topic without its name, and of each of its queues."""

TopicListener = Callable[[str, TopicConfig | None], None]


class TopicConfigManager:
    """The topic table; a change replaces a TopicConfig and never edits it.

    It reports each change to `file`, which numbers the change, writes it to disk and then calls
    note_saved(). Listeners get (name, new config or None). (RocketMQ: TopicConfigManager.)
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.file: TableFile = MemoryOnly()
        self._listeners: list[TopicListener] = []
        self._saved_listeners: list[TopicListener] = []
        self.table: dict[str, TopicConfig] = {t.topic_name: t for t in _built_in(config)}
        self._limit = TableLimit("maxTopics", "topics", lambda: config.limits.max_topics)
        self._created = CreatedOnUse("topics", lambda: config.limits.max_created_on_use_bytes)
        self.data_version = DataVersion(counter=0, timestamp=clock.now())
        self._unsaved = Unsaved()
        self._deleting: set[str] = set()
        self._forbidden: set[str] = set()
        self._texts = table_texts(self.table)
        self._changed: set[str] = set()  # since take_changed()

    def listen(self, listener: TopicListener, *, when_saved: bool = False) -> None:
        """Call `listener` at each change from now on, and now for each topic.

        With `when_saved` it is called again when a new topic, or other queues, are on disk.
        """
        self._listeners.append(listener)
        if when_saved:
            self._saved_listeners.append(listener)
        for name, config in self.table.items():
            listener(name, config)

    def is_saved(self, topic: str) -> bool:
        """Whether a topic of the table is on disk, with the queues that it has now."""
        return topic not in self._unsaved

    def note_saved(self, number: int) -> None:
        """Record that changes up to this number are on disk."""
        for name in self._unsaved.saved(number):
            config = self.table.get(name)
            for listener in self._saved_listeners:
                listener(name, config)

    def notify_steps(self) -> Generator[None, None, None]:
        """Call the listeners for all topics: a setting that they depend on has changed.

        Each gets a version of its own: a registration between two steps has only the topics so far,
        and a name server ignores those that come with a version that it knows.
        """
        for name in list(self.table):
            config = self.table.get(name)
            if config is not None:
                self._call_listeners(name, config)
                self.version_changed()
            yield

    def resize_template(self) -> None:
        """Give the template topic of sends defaultTopicQueueNums queues."""
        template = self.table.get(AUTO_CREATE_TOPIC_KEY_TOPIC)
        queues = self._config.default_topic_queue_nums
        if template is not None:
            new = msgspec.structs.replace(template, read_queue_nums=queues, write_queue_nums=queues)
            self.update(new)

    def get(self, topic: str) -> TopicConfig | None:
        """A topic, None when the table does not have it."""
        return self.table.get(topic)

    def present_queue(self, topic: str, queue_id: int) -> int:
        """The queue for a message that has waited for `queue_id`, which its topic may have lost."""
        config = self.table.get(topic)
        if config is None or queue_id < max(_queues(config)) or config.read_queue_nums <= 0:
            return queue_id
        return queue_id % config.read_queue_nums

    def announced(self, topic: str) -> TopicConfig | None:
        """A topic as clients see it: `draining` and brokerPermission limit all topics."""
        config = self.table.get(topic)
        if config is not None and self._config.draining:
            config = msgspec.structs.replace(config, perm=config.perm & ~PERM_WRITE)
        if config is None or (self._config.readable and self._config.writable):
            return config
        return msgspec.structs.replace(config, perm=self._config.broker_permission)

    def is_order_topic(self, topic: str) -> bool:
        """Whether name servers list the topic as ordered."""
        config = self.table.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """Whether the topic is one of the broker or of RocketMQ itself."""
        return is_system_topic(topic) or topic in self._own_topics()

    def system_topics(self) -> frozenset[str]:
        """The names of all system topics."""
        return SYSTEM_TOPICS | self._own_topics()

    def _own_topics(self) -> set[str]:
        config = self._config
        names = {config.broker_cluster_name, config.broker_name, reply_topic(config)}
        return names | {config.msg_trace_topic_name} if config.trace_topic_enable else names

    def takes_ordinary_sends(self, config: TopicConfig) -> bool:
        """Whether compiled code can serve sends: they need no check except of the queue id."""
        name = config.topic_name
        return (
            topic_name_fault(name) is None
            and not forbidden_for_producers(name)
            and not name.startswith(RETRY_PREFIX)
            and config.topic_filter_type == "SINGLE_TAG"
            and (self._config.writable or not config.order)
            and self._clock.now() >= self._config.start_accept_send_request_time_stamp
        )

    def create_on_send(
        self, topic: str, default_topic: str, queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic, created from `default_topic` if missing; None if that is not allowed."""
        known = self.table.get(topic)
        if known is not None:
            return known
        template = self.table.get(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not (
            self._config.auto_create_topic_enable
        ):
            return None
        queues = max(0, min(queue_nums, template.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self._create_on_use(created)
        logger.info("topic %s created from %s with %d queues", topic, default_topic, queues)
        return created

    def _create_on_use(self, config: TopicConfig) -> None:
        size = TOPIC_BYTES + QUEUE_BYTES * max(_queues(config))
        self._created.check(config.topic_name, size)
        self.update(config)
        self._created.add(config.topic_name, size)

    def create_internal(
        self,
        topic: str,
        queue_nums: int,
        perm: int = PERM_READ | PERM_WRITE,
        sys_flag: int = 0,
        *,
        on_use: bool = False,
    ) -> TopicConfig:
        """A retry, dead-letter or own topic of the broker, with at least `queue_nums` queues.

        It is created when absent. One with fewer queues gets the missing ones: what the broker
        writes to queue `queue_nums` - 1 must be where consumers read. `on_use`: a client named it.
        """
        known = self.table.get(topic) or TopicConfig(
            topic_name=topic,
            read_queue_nums=0,
            write_queue_nums=0,
            perm=perm,
            topic_sys_flag=sys_flag,
        )
        wanted = msgspec.structs.replace(
            known,
            read_queue_nums=max(known.read_queue_nums, queue_nums),
            write_queue_nums=max(known.write_queue_nums, queue_nums),
        )
        if on_use and topic not in self.table:
            self._create_on_use(wanted)
        elif topic not in self.table or wanted != known:
            self.update(wanted)
        return wanted

    def update(self, config: TopicConfig) -> None:
        """Add or replace a topic.

        Raises RefusedError for one that topics.json cannot hold, TableFullError for a new one if
        the table already has maxTopics topics; the broker's own topics are not limited.
        """
        name = config.topic_name
        if name not in self.table and not self.is_system_topic(name):
            self._limit.check(len(self.table))
        self._put(config)

    def _put(self, config: TopicConfig) -> None:
        name = config.topic_name
        if self.is_being_deleted(name):
            raise _being_deleted(name)
        check_entry(name, config, _topics_of)
        known = self.table.get(name)
        self._set(config)
        number = self.version_changed()
        if known is None or _queues(known) != _queues(config):
            self._unsaved.note(name, number)
        self._call_listeners(name, config)

    def delete(self, topic: str) -> bool:
        """Delete a topic; False if it does not exist."""
        if self.table.pop(topic, None) is None:
            return False
        self._created.forget(topic)
        self._texts.changed(topic)
        self._changed.add(topic)
        self._unsaved.forget(topic)
        self._call_listeners(topic, None)
        self.version_changed()
        return True

    @contextmanager
    def deleting(self, topic: str) -> Iterator[None]:
        """While its queues and offsets are removed, creating the topic raises RefusedError."""
        if topic in self._deleting:
            raise _being_deleted(topic)
        self._deleting.add(topic)
        try:
            yield
        finally:
            self._deleting.remove(topic)

    def forbid_creation(self, topic: str) -> None:
        """Refuse to create a topic until allow_creation(): its deletion is not finished."""
        self._forbidden.add(topic)

    def allow_creation(self, topic: str) -> None:
        """Allow creation again after forbid_creation()."""
        self._forbidden.discard(topic)

    def is_being_deleted(self, topic: str) -> bool:
        """Whether a deletion of the topic has begun and is not finished."""
        return topic in self._deleting or topic in self._forbidden

    def restore(self, queues: Mapping[str, int]) -> list[str]:
        """Create missing topics with these numbers of queues: the log has their messages.

        Returns the names of the created topics.
        """
        lost = [
            name
            for name in queues
            if name not in self.table
            and topic_name_fault(name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)) is None
        ]
        for name in lost:
            count = min(queues[name], QUEUES_MAX)
            self._put(TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count))
        return lost

    def order_steps(self, order_topics: Iterable[str]) -> Generator[None, None, None]:
        """Mark exactly the topics of the name servers' list as ordered."""
        ordered = set(order_topics)
        for old in list(self.table.values()):
            yield
            name = old.topic_name
            if old.order == (name in ordered) or self.table.get(name) is not old:
                continue
            new = msgspec.structs.replace(old, order=not old.order)
            self._set(new)
            self._call_listeners(name, new)
            self.version_changed()

    def body(self) -> TableBody[str, TopicConfig]:
        """The body of code 21, of which only changed topics are encoded again."""
        return TableBody(
            self.table,
            lambda: TopicConfigSerializeWrapper(data_version=self.data_version),
            "topicConfigTable",
        )

    def follow_master(
        self, theirs: Mapping[str, TopicConfig], version: DataVersion
    ) -> Generator[None, None, None]:
        """Replace the table by a master's (RocketMQ: SlaveSynchronize.syncTopicConfig)."""
        for name in [name for name in self.table if name not in theirs]:
            self.delete(name)
            yield
        yield from self.follow_changes(theirs, version)

    def follow_changes(
        self, theirs: Mapping[str, TopicConfig], version: DataVersion
    ) -> Generator[None, None, None]:
        """Add or replace what a master changed, whose table then has this version."""
        for name, config in theirs.items():
            if config != self.table.get(name) and _stored_fault(name, config) is None:
                self._put(config)
            yield
        self.data_version = msgspec.structs.replace(version)
        self.file.changed()

    def file_text(self, version: DataVersion) -> str:
        """Content of topics.json with a data version; one thread at a time may call it."""
        entries = list(self._texts.current().values())
        empty = TopicConfigSerializeWrapper(data_version=version)
        return file_text(empty, "topicConfigTable", entries)

    def load(self, text: str) -> bool:
        """Add the topics of topics.json to the built-in topics; returns True."""
        stored = TopicConfigSerializeWrapper.from_tree(fastjson.loads(text))
        self.replay(Entry(stored.data_version, stored.topic_config_table))
        return True

    def take_changed(self) -> Entry[TopicConfig] | None:
        """The topics that changed since the last call, None after a removal."""
        names, self._changed = self._changed, set()
        changed = {name: self.table[name] for name in names if name in self.table}
        return Entry(self.data_version, changed) if len(changed) == len(names) else None

    def replay(self, entry: Entry[TopicConfig]) -> None:
        """Apply an entry of the journal or the file."""
        self.data_version = entry.version
        for name, config in entry.changed.items():
            self._take_stored(name, config)

    def _take_stored(self, name: str, config: TopicConfig) -> None:
        fault = _stored_fault(name, config)
        if fault is not None:
            logger.error("ignoring topic %.200r of topics.json: %s", name, fault)
            return
        self._set(config)
        self._call_listeners(name, config)

    def _set(self, config: TopicConfig) -> None:
        self.table[config.topic_name] = config
        self._texts.changed(config.topic_name)
        self._changed.add(config.topic_name)

    def _call_listeners(self, name: str, config: TopicConfig | None) -> None:
        for listener in self._listeners:
            listener(name, config)

    def version_changed(self) -> int:
        """Set a new data version, so that name servers accept the table again; write topics.json
        soon."""
        self.data_version = DataVersion(
            counter=self.data_version.counter + 1, timestamp=self._clock.now()
        )
        return self.file.changed()


def reply_topic(config: BrokerConfig) -> str:
    """The name of the cluster's reply topic."""
    return f"{config.broker_cluster_name}_REPLY_TOPIC"


def _being_deleted(topic: str) -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_ERROR, f"topic[{topic}] is being deleted: try again later"
    )


def _built_in(config: BrokerConfig) -> list[TopicConfig]:
    usual = PERM_READ | PERM_WRITE

    def template(enabled: bool) -> int:
        return PERM_INHERIT | (usual if enabled else 0)

    rows = [
        (SELF_TEST_TOPIC, 1, usual),
        (BENCHMARK_TOPIC, 1024, usual),
        (config.broker_cluster_name, 16, template(config.cluster_topic_enable)),
        (config.broker_name, 1, template(config.broker_topic_enable)),
        (OFFSET_MOVED_EVENT_TOPIC, 1, usual),
        (SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUES, usual),
        (reply_topic(config), 1, usual),
    ]
    if config.auto_create_topic_enable:
        rows.append((AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, template(True)))
    if config.trace_topic_enable:
        rows.append((config.msg_trace_topic_name, 1, usual))
    return [
        TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        for name, queues, perm in rows
    ]


def _queues(config: TopicConfig) -> tuple[int, int]:
    return config.read_queue_nums, config.write_queue_nums


def _topics_of(tree: Any) -> dict[str, TopicConfig]:
    return TopicConfigSerializeWrapper.from_tree({"topicConfigTable": tree}).topic_config_table


def _stored_fault(name: str, config: TopicConfig) -> str | None:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        return "it is not a valid folder name"
    return entry_fault(name, config.topic_name, _queues(config))
