"""SQL92 filters against outcomes that the reference's own filter gave."""

import json
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.errors import FilterSyntaxError
from congreve.broker.filterprogram import Outcome
from congreve.broker.filters import DEAD_KEPT_MS, ConsumerFilterManager
from congreve.broker.filtersyntax import CODE_MAX, FilterCompiler
from congreve.engine.clock import ManualClock
from congreve.remoting import fastjson
from congreve.remoting.bodies import SubscriptionData

TABLE: dict[str, Any] = json.loads(
    Path(__file__).with_name("filter_results.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def compiler() -> FilterCompiler:
    return FilterCompiler()


@pytest.mark.parametrize("expression", TABLE["outcomes"])
def test_an_expression_means_what_it_means_to_the_reference(
    compiler: FilterCompiler, expression: str
) -> None:
    expected = TABLE["outcomes"][expression]
    if expected == "REFUSED":
        with pytest.raises(FilterSyntaxError):
            compiler.compile(expression)
        return
    program = compiler.compile(expression)
    assert expected == [
        Outcome(program.evaluate(text.encode())).name for text in TABLE["properties"]
    ]


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("a > 5 AND\n  b >", "line 2, column 5"),
        ("a = 'x' AND b > 'y'", "line 1, column 15"),
        ("a = #", "line 1, column 5"),
        ("a BETWEEN 5 AND 3", "line 1, column 3"),
        ("(a = 1", "line 1, column 6"),
        ("", "line 1, column 1"),
    ],
)
def test_a_refusal_says_where(compiler: FilterCompiler, expression: str, where: str) -> None:
    with pytest.raises(FilterSyntaxError, match=where):
        compiler.compile(expression)


def test_no_expression_grows_without_bound(compiler: FilterCompiler) -> None:
    with pytest.raises(FilterSyntaxError, match=str(CODE_MAX)):
        compiler.compile("a BETWEEN 1 AND 2 OR " * CODE_MAX + "a = 1")
    doubled = "a"
    for _ in range(30):
        doubled = f"-({doubled} BETWEEN 1 AND 2)"
    with pytest.raises(FilterSyntaxError, match=str(CODE_MAX)):
        compiler.compile(f"{doubled} = 1")
    with pytest.raises(FilterSyntaxError, match="nested deeper"):
        compiler.compile("a = " + "(b = " * 600 + "1" + ")" * 600)


def test_a_number_longer_than_any_buffer_is_read_whole(compiler: FilterCompiler) -> None:
    program = compiler.compile("a > 0.5")
    assert program.evaluate(b"a\x010." + b"0" * 5000 + b"9\x02") is Outcome.FALSE
    assert program.evaluate(b"a\x01" + b"0" * 5000 + b"9.0\x02") is Outcome.TRUE


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
