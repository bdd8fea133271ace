"""Copies of messages that come again: the compiled pass against the rule in Python."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from congreve.base.clock import ManualClock
from congreve.broker.config_parts import PopConfig
from congreve.broker.pop.copies import MOVED_MS
from congreve.broker.pop.redelivery import PopRedelivery
from congreve.engine.config import StoreConfig
from congreve.engine.pop.in_flight import InFlight
from congreve.engine.pop.limits import PopLimits
from congreve.engine.results import PutStatus
from congreve.engine.store import MessageStore
from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.message import RECONSUME_TIMES_MAX, Host, Record
from congreve.records.message.property_codec import encode_properties
from congreve.records.message.topics import dlq_topic, pop_retry_topic, retry_topic
from congreve.records.record import decode_record
from congreve.remoting.messages.bodies import SubscriptionGroupConfig

NOW = 1_700_000_000_000
NEVER_NS = 1 << 62
ATTEMPTS = 3
HOST = ("127.0.0.1", 10911)
QUEUE_ID = 2
RULE, COMPILED = "rule", "fast"

PROPERTIES = {
    "TAGS": st.sampled_from(["a", "tag"]),
    "k": st.sampled_from(["v", "\u00e4" * 3]),
    "1ST_POP_TIME": st.just("5"),
    "ORIGIN_GROUP": st.sampled_from(["own", "else"]),
    "ORIGIN_MESSAGE_ID": st.just("m"),
    "CLUSTER": st.just("as large as may be"),
}


class Sent(NamedTuple):
    """A message; it is popped so, or `moved`, or in `order`."""

    size: int
    properties: dict[str, str]
    reconsume_times: int
    flag: int
    sys_flag: int
    born: tuple[int, Host]
    popped: str


MESSAGES = st.lists(
    st.builds(
        Sent,
        size=st.sampled_from([0, 1, 100, 40_000]),
        properties=st.fixed_dictionaries({}, optional=PROPERTIES),
        reconsume_times=st.sampled_from(
            [0, 0, 0, 1, ATTEMPTS - 1, ATTEMPTS, 99, RECONSUME_TIMES_MAX]
        ),
        flag=st.integers(0, 9),
        sys_flag=st.sampled_from([0, 1, 8]),
        born=st.tuples(st.integers(0, NOW), st.sampled_from([("10.0.0.1", 1), ("::1", 2)])),
        popped=st.sampled_from(["so"] * 8 + ["moved", "order"]),
    ),
    min_size=1,
    max_size=60,
)


class Both:
    """One store, in which the rule copies the messages of a group, and compiled code another's."""

    def __init__(self, root: Path) -> None:
        known = SubscriptionGroupConfig(group_name="", retry_max_times=ATTEMPTS)
        metadata: Any = Mock()
        metadata.groups.table = {RULE: known, COMPILED: known}
        # Small files: a pass goes from one to the next.
        config = StoreConfig(
            root_dir=str(root),
            mapped_file_size_commit_log=256 << 10,
            mapped_file_size_consume_queue=20 * 16,
            message_index_enable=False,
        )
        self.store = MessageStore(config, clock=ManualClock(NOW), disk_use=lambda _: 0.5)
        self.pops = InFlight(PopLimits())
        self.redelivery = PopRedelivery(PopConfig(), metadata, self.store, self.pops, Mock())
        self.ordinary = 0

    def run(self, messages: list[Sent], group: str, again: str) -> list[Any]:
        """Send, pop and copy the messages of a group; returns the copies and what is out."""
        topic = f"T{group}"
        target = retry_topic(group) if again == "pulled" else pop_retry_topic(group, topic)
        topic = target if again == "twice" else topic
        ends = {name: self.store.max_offset(name, 0) for name in all_of(group)}
        begin = self.store.max_offset(topic, QUEUE_ID)
        window = self.pops.window(group, topic, QUEUE_ID, begin)
        for number, sent in enumerate(messages):
            self.send(sent, topic, group)
            pop_ms = MOVED_MS if sent.popped == "moved" else NOW - number
            offset = numpy.array([begin + number])
            assert window.take(offset, begin + number + 1, pop_ms, 0, sent.popped == "order")
        for due, rows in self.pops.due(NOW, 1 << 20):
            assert due is window
            if group == RULE:
                for row in rows:
                    self.by_rule(window, row, target)
            else:
                self.compiled(window, rows, target)
        out = window.messages_out(0, 99)
        window.reset(window.next)
        copies = [
            self.plain(name, offset, group, begin, ends)
            for name, end in ends.items()
            for offset in range(end, self.store.max_offset(name, 0))
        ]
        return [copies, (out - [begin, 0, 0, 0]).tolist()]

    def send(self, sent: Sent, topic: str, group: str) -> None:
        properties = dict(sent.properties)
        if properties.get("ORIGIN_GROUP") == "own":
            properties["ORIGIN_GROUP"] = group
        if "CLUSTER" in properties:
            room = PROPERTIES_MAX - len(encode_properties(properties))
            properties["CLUSTER"] += "c" * room
        record = Record(
            topic=topic,
            queue_id=QUEUE_ID,
            body=b"b" * sent.size,
            properties=properties,
            reconsume_times=sent.reconsume_times,
            flag=sent.flag,
            sys_flag=sent.sys_flag,
            born_timestamp=sent.born[0],
            born_host=sent.born[1],
            store_host=HOST,
        )
        assert self.store.put(record).status is PutStatus.PUT_OK

    def by_rule(self, window: Any, row: Any, target: str) -> None:
        offset, pop_ms, _, _, ordered = row.tolist()
        if not ordered:
            moved = pop_ms == MOVED_MS
            assert self.redelivery.again(window, offset, pop_ms, HOST, topic=target, moved=moved)

    def compiled(self, window: Any, rows: Any, target: str) -> None:
        """The rule copies what is not ordinary."""
        at = 0
        while at < len(rows):
            done = self.redelivery.again_ordinary(
                window, rows[at:], HOST, topic=target, until_ns=NEVER_NS
            )
            self.ordinary += done
            at += done
            if at < len(rows):
                self.by_rule(window, rows[at], target)
                at += 1

    def plain(self, name: str, offset: int, group: str, begin: int, ends: dict[str, int]) -> Any:
        """A copy without what two groups do not share."""
        place, _, tags_code = self.store.queues.get(name, 0)[offset]
        record = decode_record(self.store.read(place))
        source = decode_record(self.store.read(record.prepared_offset - 1))
        return (
            name.replace(group, "G"),
            offset - ends[name],
            source.queue_offset - begin,
            tags_code,
            record.body,
            [
                (key, value.replace(group, "G"))
                for key, value in record.properties.items()
                if not (key.endswith("MESSAGE_ID") and value != "m")  # they have its place
            ],
            (record.reconsume_times, record.flag, record.sys_flag, record.queue_id),
            (record.born_timestamp, record.born_host, record.store_host, record.store_timestamp),
        )


def all_of(group: str) -> tuple[str, ...]:
    return pop_retry_topic(group, f"T{group}"), retry_topic(group), dlq_topic(group)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    tried = Both(tmp_path_factory.mktemp("store"))
    with tried.store:
        yield tried
    assert tried.ordinary


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=MESSAGES, again=st.sampled_from(["once", "once", "twice", "pulled"]))
def test_compiled_copies_are_those_of_the_rule(
    both: Both, messages: list[Sent], again: str
) -> None:
    assert both.run(messages, COMPILED, again) == both.run(messages, RULE, again)


def test_ordinary_messages_are_copied_until_the_time_is_over(both: Both) -> None:
    topic = f"T{COMPILED}"
    begin = both.store.max_offset(topic, QUEUE_ID)
    sent = Sent(1, {}, 0, 0, 0, (NOW, HOST), "so")
    for _ in range(40):
        both.send(sent, topic, COMPILED)
    window = both.pops.window(COMPILED, topic, QUEUE_ID, begin)
    assert window.take(numpy.arange(begin, begin + 40), begin + 40, NOW, 0)
    ((_, rows),) = both.pops.due(NOW, 99)
    target = pop_retry_topic(COMPILED, topic)

    def copied(first: int, until_ns: int) -> int:
        return both.redelivery.again_ordinary(
            window, rows[first:], HOST, topic=target, until_ns=until_ns
        )

    both.pops.take_journal()
    done = copied(0, time.monotonic_ns())
    assert 0 < done < 40  # one piece
    assert window.out == 40 - done
    assert copied(done, NEVER_NS) == 40 - done
    assert (window.out, window.begin) == (0, begin + 40)
    replayed = InFlight(PopLimits())
    replayed.window(COMPILED, topic, QUEUE_ID, begin).take(
        numpy.arange(begin, begin + 40), begin + 40, NOW, 0
    )
    replayed.replay(both.pops.take_journal())
    assert replayed.out == 0
