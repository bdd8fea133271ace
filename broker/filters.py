"""The SQL92 filters of consumer groups (RocketMQ: ConsumerFilterManager, consumerFilter.json)."""

import logging
from collections.abc import Callable, Iterable

import mmh3
import msgspec

from congreve.broker.subscription import is_tag_type
from congreve.engine.clock import Clock
from congreve.records.errors import FilterSyntaxError
from congreve.records.filterprogram import FilterProgram
from congreve.records.filtersyntax import SQL92, FilterCompiler
from congreve.remoting import fastjson
from congreve.remoting.bodies import SubscriptionData
from congreve.remoting.body import Body

logger = logging.getLogger(__name__)

DEAD_KEPT_MS = 24 * 3_600_000  # filterDataCleanTimeSpan
_LOADED_DEAD_MS = 30_000
_PROGRAMS_MAX = 1_000

# Size of the reference's bloom filter for 32 groups and 20 % of errors.
_BLOOM_BITS = 112
_BLOOM_HASHES = 3


class BloomFilterData(Body):
    """Which bits of a message's bit map stand for a group. Written for the reference only."""

    bit_num: int = _BLOOM_BITS
    bit_pos: list[int] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, group: str, topic: str) -> "BloomFilterData":
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
    """One group's filter of one topic; times in milliseconds, `client_version` its subVersion."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: int = 0
    expression: str = ""
    expression_type: str = SQL92
    topic: str = ""

    def die(self, now_ms: int) -> None:
        self.dead = True
        self.dead_time = max(now_ms, self.born_time)

    def revive(self) -> None:
        self.dead = False
        self.dead_time = 0


class FilterDataMapByTopic(Body):
    """All groups' filters of one topic."""

    group_filter_data: dict[str, ConsumerFilterData] = msgspec.field(default_factory=dict)
    topic: str = ""


class ConsumerFilterWrapper(Body):
    """Content of consumerFilter.json."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = msgspec.field(default_factory=dict)


class ConsumerFilterManager:
    """Filters that heartbeats told, by topic and group; those of gone groups are kept for a day.

    `changed` is called after each change that must reach consumerFilter.json.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._compiler = FilterCompiler()
        self._programs: dict[str, FilterProgram] = {}
        self.changed: Callable[[], None] = _nobody_cares
        self.table: dict[str, dict[str, ConsumerFilterData]] = {}

    def compile(self, expression: str, expression_type: str | None = SQL92) -> FilterProgram:
        """The program of an expression, compiled once. FilterSyntaxError names the place."""
        if expression_type != SQL92:
            raise FilterSyntaxError(f"no filters of type {expression_type} are known; use {SQL92}")
        program = self._programs.get(expression)
        if program is None:
            program = self._compiler.compile(expression)
            if len(self._programs) >= _PROGRAMS_MAX:
                self._programs.clear()
            self._programs[expression] = program
        return program

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        return self.table.get(topic, {}).get(group)

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take what a heartbeat says of a group; filters of topics that it left are dead."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register_one(group, subscription)
        self._die([data for data in self._of(group) if data.topic not in topics])

    def unregister(self, group: str) -> None:
        """The group's last member left."""
        self._die(self._of(group))

    def _of(self, group: str) -> list[ConsumerFilterData]:
        return [groups[group] for groups in self.table.values() if group in groups]

    def _die(self, filters: Iterable[ConsumerFilterData]) -> None:
        for data in filters:
            if not data.dead:
                data.die(self._clock.now())
                self.changed()

    def _register_one(self, group: str, wanted: SubscriptionData) -> None:
        known = self.find(wanted.topic, group)
        if known is not None and wanted.sub_version <= known.client_version:
            if wanted.sub_version == known.client_version and known.dead:
                known.revive()
                self.changed()
            return
        if known is not None and (known.expression, known.expression_type) == (
            wanted.sub_string,
            wanted.expression_type,
        ):
            known.client_version = wanted.sub_version
            known.revive()
            self.changed()
            return
        try:
            self.compile(wanted.sub_string, wanted.expression_type)
        except FilterSyntaxError as error:
            logger.warning("filter of %s on %s refused: %s", group, wanted.topic, error)
            if self.table.get(wanted.topic, {}).pop(group, None) is not None:
                self.changed()
            return
        self.table.setdefault(wanted.topic, {})[group] = ConsumerFilterData(
            bloom_filter_data=BloomFilterData.of(group, wanted.topic),
            born_time=self._clock.now(),
            client_version=wanted.sub_version,
            consumer_group=group,
            expression=wanted.sub_string,
            expression_type=wanted.expression_type,
            topic=wanted.topic,
        )
        self.changed()

    def wrapper(self) -> ConsumerFilterWrapper:
        """A copy of the table, without those that have been dead for too long."""
        limit = self._clock.now() - DEAD_KEPT_MS
        for topic, groups in list(self.table.items()):
            for group in [g for g, data in groups.items() if data.dead and data.dead_time < limit]:
                del groups[group]
            if not groups:
                del self.table[topic]
        return ConsumerFilterWrapper(
            filter_data_by_topic={
                topic: FilterDataMapByTopic(
                    topic=topic,
                    group_filter_data={
                        group: msgspec.structs.replace(data) for group, data in groups.items()
                    },
                )
                for topic, groups in self.table.items()
            }
        )

    def load(self, text: str) -> None:
        """Take what consumerFilter.json holds; every group counts as gone until it is heard of."""
        stored = ConsumerFilterWrapper.from_tree(fastjson.loads(text))
        now = self._clock.now()
        for topic, of_topic in stored.filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                try:
                    self.compile(data.expression, data.expression_type)
                except FilterSyntaxError as error:
                    logger.warning("stored filter of %s on %s dropped: %s", group, topic, error)
                    continue
                if not data.dead:
                    data.die(now - _LOADED_DEAD_MS)
                self.table.setdefault(topic, {})[group] = data


def _nobody_cares() -> None:
    """What a manager without a file calls."""
