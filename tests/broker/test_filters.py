"""Stored filters: the reference's file, versions, and when they die."""

from pathlib import Path

from congreve.broker.filters import DEAD_KEPT_MS, ConsumerFilterManager
from congreve.engine.clock import ManualClock
from congreve.remoting import fastjson
from congreve.remoting.bodies import SubscriptionData

STORED = Path(__file__).with_name("consumerFilter.json").read_text(encoding="utf-8")


def wanted(expression: str, version: int, topic: str = "TopicTest") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, sub_version=version, expression_type="SQL92"
    )


def manager(now_ms: int = 1_700_000_000_456) -> tuple[ConsumerFilterManager, ManualClock]:
    clock = ManualClock(now_ms)
    return ConsumerFilterManager(clock), clock


def test_the_file_is_written_as_the_reference_writes_it() -> None:
    filters, _ = manager()
    filters.register("groupA", [wanted("a > 5", 1_700_000_000_400)])
    assert fastjson.dumps_pretty(filters.wrapper()).strip() == STORED.strip()


def test_a_stored_filter_is_dead_until_its_group_is_heard_of() -> None:
    filters, _ = manager(1_700_000_100_000)
    filters.load(STORED)
    stored = filters.find("TopicTest", "groupA")
    assert stored is not None
    assert (stored.dead, stored.dead_time) == (True, 1_700_000_070_000)
    filters.register("groupA", [wanted("a > 5", 1_700_000_000_400)])
    assert (stored.dead, stored.dead_time) == (False, 0)


def test_only_a_newer_version_replaces_an_expression() -> None:
    filters, _ = manager()
    filters.register("g", [wanted("a > 5", 10)])
    filters.register("g", [wanted("a > 6", 10)])
    assert filters.find("TopicTest", "g").expression == "a > 5"
    filters.register("g", [wanted("a > 6", 11)])
    assert filters.find("TopicTest", "g").expression == "a > 6"
    filters.register("g", [wanted("a > 6", 12)])
    assert filters.find("TopicTest", "g").client_version == 12
    filters.register("g", [wanted("a >", 13)])
    assert filters.find("TopicTest", "g") is None


def test_filters_of_left_topics_and_gone_groups_die_and_are_dropped_after_a_day() -> None:
    filters, clock = manager()
    filters.register("g", [wanted("a > 5", 1), wanted("a > 5", 1, "other")])
    filters.register("g", [wanted("a > 5", 1)])
    assert filters.find("other", "g").dead
    assert not filters.find("TopicTest", "g").dead
    filters.unregister("g")
    assert filters.find("TopicTest", "g").dead
    clock.advance(DEAD_KEPT_MS + 1)
    assert filters.wrapper().filter_data_by_topic == {}
