"""The SQL92 filters of consumer groups (RocketMQ: ConsumerFilterManager, consumerFilter.json)."""

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice, takewhile
from typing import Any

import mmh3
import msgspec

from congreve.base.clock import Clock
from congreve.base.limited_log import LimitedLog
from congreve.base.table_limit import TableFullError, TableLimit
from congreve.broker.config import BrokerConfig
from congreve.broker.errors import RefusedError
from congreve.broker.metadata.state_writer import MemoryOnly, TableFile
from congreve.broker.metadata.table_text import (
    EntryTexts,
    check_entry,
    entry_text,
    file_text,
    object_text,
)
from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.kinds import SQL92, compiler_of, is_on_tags
from congreve.records.filter.program import FilterProgram
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.admin_bodies import SubscriptionData
from congreve.remoting.messages.body import Body

logger = logging.getLogger(__name__)

DEAD_KEPT_MS = 24 * 3_600_000  # filterDataCleanTimeSpan
DROPPED_AT_ONCE = 1_000
_LOADED_DEAD_MS = 30_000
_PROGRAMS_MAX = 1_000
_PROGRAMS_BYTES_MAX = 32 * 1024 * 1024

# Size of the reference's bloom filter for 32 groups and 20 % of errors.
_BLOOM_BITS = 112
_BLOOM_HASHES = 3


class NotCompiledError(Exception):
    """A filter is not compiled yet; ConsumerFilterManager.compile() does it."""

    def __init__(self, expression: str, kind: str | None) -> None:
        super().__init__(expression[:200])
        self.expression = expression
        self.kind = kind


class BloomFilterData(Body):
    """The bits of a group in a message's bit map (RocketMQ: BloomFilterData); only the reference
    reads them."""

    bit_num: int = _BLOOM_BITS
    bit_pos: list[int] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, group: str, topic: str) -> "BloomFilterData":
        """The bits of a group and topic, computed as the reference does."""
        low = mmh3.hash64(f"{group}#{topic}", seed=0, x64arch=True, signed=False)[0]
        first, second = low & 0xFFFFFFFF, low >> 32
        positions = []
        for i in range(1, _BLOOM_HASHES + 1):
            combined = (first + i * second) & 0xFFFFFFFF
            if combined & 0x80000000:
                combined ^= 0xFFFFFFFF
            positions.append(combined % _BLOOM_BITS)
        return cls(bit_pos=positions)


class ConsumerFilterData(Body):
    """One group's filter of one topic (RocketMQ: ConsumerFilterData).

    Times are in milliseconds; `client_version` is the subVersion of its subscription.
    """

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: int = 0
    expression: str = ""
    expression_type: str = SQL92
    topic: str = ""

    @property
    def memory(self) -> int:
        """Approximate size in bytes: the object and its text in the file."""
        texts = (self.topic, self.consumer_group, self.expression)
        return 1024 + 2 * sum(map(sys.getsizeof, texts))

    def die(self, now_ms: int) -> None:
        """Mark the filter as dead: the group has no members, or another subscription."""
        self.dead = True
        self.dead_time = max(now_ms, self.born_time)

    def revive(self) -> None:
        """Mark the filter as alive: a member of the group subscribes with it again."""
        self.dead = False
        self.dead_time = 0


class FilterDataMapByTopic(Body):
    """All groups' filters of one topic (RocketMQ: ConsumerFilterManager.FilterDataMapByTopic)."""

    group_filter_data: dict[str, ConsumerFilterData] = msgspec.field(default_factory=dict)
    topic: str = ""


class ConsumerFilterWrapper(Body):
    """Content of consumerFilter.json (RocketMQ: ConsumerFilterManager)."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = msgspec.field(default_factory=dict)


class ConsumerFilterManager:
    """The filters of heartbeats by topic and group (RocketMQ: ConsumerFilterManager).

    Filters of groups without members stay for a day, unless others need their memory. `file`
    writes each change to consumerFilter.json. No answer waits for the file:
    clients send their filters again with each heartbeat.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, pieces: Pieces) -> None:
        self._config = config
        self._limit = TableLimit(
            "maxFilterBytes", "bytes of SQL92 filters", lambda: config.limits.max_filter_bytes
        )
        self._bytes = 0
        self._refused = LimitedLog(logger)
        self._clock = clock
        self._pieces = pieces
        self._programs: dict[tuple[str | None, str], FilterProgram] = {}
        self._programs_size = 0
        self._topics: dict[str, set[str]] = {}  # of each group in `table`
        self.file: TableFile = MemoryOnly()
        self.table: dict[str, dict[str, ConsumerFilterData]] = {}
        self._texts = EntryTexts(self._entry_text)
        if config.enable_property_filter:
            compiler_of(SQL92)  # the first one builds the parser: before the first request
        self._dead: OrderedDict[tuple[str, str], None] = OrderedDict()  # in order of death

    def program(self, expression: str, expression_type: str | None) -> FilterProgram:
        """The program that compile() built. Raises NotCompiledError if it has not run yet."""
        program = self._programs.get((expression_type, expression))
        if program is None:
            raise NotCompiledError(expression, expression_type)
        return program

    async def compile(self, expression: str, expression_type: str | None = SQL92) -> FilterProgram:
        """The program of an expression, compiled once. Raises FilterSyntaxError with the place."""
        program = self._programs.get((expression_type, expression))
        if program is None:
            # The first compiler builds the parser, which takes longer than a turn of the loop may.
            compiler = await asyncio.to_thread(compiler_of, expression_type)
            program = await self._pieces.run(compiler.steps(expression))
            self._keep(expression_type, expression, program)
        return program

    def _keep(self, kind: str | None, expression: str, program: FilterProgram) -> None:
        if (kind, expression) in self._programs:
            return
        self._programs[kind, expression] = program
        self._programs_size += program.size + len(expression)
        while len(self._programs) > _PROGRAMS_MAX or self._programs_size > _PROGRAMS_BYTES_MAX:
            oldest = next(iter(self._programs))
            self._programs_size -= self._programs.pop(oldest).size + len(oldest[1])

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The group's filter of a topic, dead or alive; None when there is none."""
        return self.table.get(topic, {}).get(group)

    async def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register a group's filters from a heartbeat; its filters of other topics become dead.

        Raises TableFullError if one does not fit, after taking the others.
        """
        topics = set()
        full: list[TableFullError] = []
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_on_tags(subscription.expression_type) and subscription.sub_string:
                try:
                    await self._register_one(group, subscription)
                except TableFullError as error:
                    full.append(error)
        self._die([data for data in self._of(group) if data.topic not in topics])
        if full:
            raise full[0]

    def unregister(self, group: str) -> None:
        """Mark the group's filters as dead: its last member left."""
        self._die(self._of(group))

    def _of(self, group: str) -> list[ConsumerFilterData]:
        return [self.table[topic][group] for topic in self._topics.get(group, ())]

    def _put(self, data: ConsumerFilterData) -> None:
        known = self.find(data.topic, data.consumer_group)
        self._bytes += data.memory - (0 if known is None else known.memory)
        self._note_death(data)
        self.table.setdefault(data.topic, {})[data.consumer_group] = data
        self._topics.setdefault(data.consumer_group, set()).add(data.topic)
        self._texts.changed((data.topic, data.consumer_group))

    def _make_room(self, data: ConsumerFilterData) -> None:
        """Drop dead filters, the oldest first, when the new one needs their memory."""
        known = self.find(data.topic, data.consumer_group)
        growth = data.memory - (0 if known is None else known.memory)
        key = (data.topic, data.consumer_group)
        while self._bytes + growth > self._config.limits.max_filter_bytes:
            oldest = next((each for each in self._dead if each != key), None)
            if oldest is None:
                break
            self._drop(*oldest)
            self.file.changed()
        self._limit.check(self._bytes, max(growth, 0))

    def _note_death(self, data: ConsumerFilterData) -> None:
        key = (data.topic, data.consumer_group)
        self._dead.pop(key, None)
        if data.dead:
            self._dead[key] = None

    def _drop(self, topic: str, group: str) -> None:
        self._bytes -= self.table[topic].pop(group).memory
        self._dead.pop((topic, group), None)
        self._texts.changed((topic, group))
        if not self.table[topic]:
            del self.table[topic]
        self._topics[group].discard(topic)
        if not self._topics[group]:
            del self._topics[group]

    def _die(self, filters: Iterable[ConsumerFilterData]) -> None:
        for data in filters:
            if not data.dead:
                data.die(self._clock.now())
                self._changed(data)

    async def _register_one(self, group: str, wanted: SubscriptionData) -> None:
        if self._revive_known(group, wanted):
            return
        data = ConsumerFilterData(
            bloom_filter_data=BloomFilterData.of(group, wanted.topic),
            born_time=self._clock.now(),
            client_version=wanted.sub_version,
            consumer_group=group,
            expression=wanted.sub_string,
            expression_type=wanted.expression_type,
            topic=wanted.topic,
        )
        try:
            await self.compile(wanted.sub_string, wanted.expression_type)
            check_entry(wanted.topic, _of_topic(wanted.topic, {group: data}), _filters_of)
        except (FilterSyntaxError, RefusedError) as error:
            self._refused.warning("filter of %s on %s refused: %s", group, wanted.topic, error)
            if self.find(wanted.topic, group) is not None:
                self._drop(wanted.topic, group)
                self.file.changed()
            return
        if self._revive_known(group, wanted):  # another heartbeat registered it meanwhile
            return
        self._make_room(data)
        self._put(data)
        self.file.changed()

    def _changed(self, data: ConsumerFilterData) -> None:
        self._note_death(data)
        self._texts.changed((data.topic, data.consumer_group))
        self.file.changed()

    def _revive_known(self, group: str, wanted: SubscriptionData) -> bool:
        """Revive the known filter if it is as new as the wanted one, or the same.

        Returns whether the known filter is kept.
        """
        known = self.find(wanted.topic, group)
        if known is None:
            return False
        same = (known.expression, known.expression_type) == (
            wanted.sub_string,
            wanted.expression_type,
        )
        if wanted.sub_version > known.client_version:
            if same:
                known.client_version = wanted.sub_version
                known.revive()
                self._changed(known)
            return same
        if wanted.sub_version == known.client_version and known.dead:
            known.revive()
            self._changed(known)
        return True

    def drop_long_dead(self) -> None:
        """Drop filters that have been dead for a day, at most DROPPED_AT_ONCE."""
        died_before = self._clock.now() - DEAD_KEPT_MS

        def is_old(key: tuple[str, str]) -> bool:
            return self.table[key[0]][key[1]].dead_time < died_before

        for topic, group in list(takewhile(is_old, islice(self._dead, DROPPED_AT_ONCE))):
            self._drop(topic, group)

    def file_text(self) -> str:
        """Content of consumerFilter.json; one thread at a time may call it."""
        by_topic: dict[str, list[str]] = {}
        for (topic, _), text in list(self._texts.current().items()):
            by_topic.setdefault(topic, []).append(text)
        entries = []
        for topic, texts in by_topic.items():
            empty = entry_text(topic, _of_topic(topic, {}), depth=2)
            before, _, after = empty.partition('"groupFilterData":{}')
            entries.append(f'{before}"groupFilterData":{object_text(texts, depth=4)}{after}')
        return file_text(ConsumerFilterWrapper(), "filterDataByTopic", entries)

    def _entry_text(self, key: tuple[str, str]) -> str | None:
        data = self.find(*key)
        return None if data is None else entry_text(key[1], data, depth=4)

    def load(self, text: str) -> bool:
        """Load the content of consumerFilter.json; all filters are dead until a heartbeat arrives.

        Returns True.
        """
        stored = ConsumerFilterWrapper.from_tree(fastjson.loads(text))
        now = self._clock.now()
        loaded = []
        for topic, of_topic in stored.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                try:
                    program = compiler_of(data.expression_type).compile(data.expression)
                    self._keep(data.expression_type, data.expression, program)
                except FilterSyntaxError as error:
                    logger.warning("stored filter of %s on %s dropped: %s", group, topic, error)
                    continue
                if not data.dead:
                    data.die(now - _LOADED_DEAD_MS)
                data.topic, data.consumer_group = topic, group
                loaded.append(data)
        for data in sorted(loaded, key=lambda data: data.dead_time):
            self._put(data)
        return True


def _of_topic(topic: str, groups: dict[str, ConsumerFilterData]) -> FilterDataMapByTopic:
    return FilterDataMapByTopic(topic=topic, group_filter_data=groups)


def _filters_of(tree: Any) -> dict[str, FilterDataMapByTopic]:
    return ConsumerFilterWrapper.from_tree({"filterDataByTopic": tree}).filter_data_by_topic
