"""SQL92 filters: each outcome against the reference's own filter, and through its clients."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.cluster import Cluster
from harness.drivers import Driver, DriverError, body, message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.program import Outcome
from congreve.records.filter.syntax import FilterCompiler

TABLE = Path(__file__).parents[2] / "golden/filter_results.json"

NAMES = ["a", "b", "c", "_x$1"]
VALUES = [
    *("1", "-1", "5", "05", "+5", "5.0", "2147483647", "2147483648", "-2147483648"),
    *("9223372036854775807", "9223372036854775808", "1e3", "NaN", "-Infinity", "0x1p3", " 5 "),
    *("1f", "1L", "", "x", "it's", "true", "TRUE", "false", "null", "é", "-0.0", "0.0", "-"),
]
LITERALS = [
    *("0", "1", "5", "5L", "2147483647", "2147483648", "9223372036854775807"),
    *("9223372036854775808", "5.0", ".5", "5.", "1e3", "5E-1", "0.0", "1e999", "00", "1.e"),
    *("'5'", "'x'", "''", "'it''s'", "'true'", "'é'", "TRUE", "false", "Null"),
]
WORDS = [
    *("(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-", "--", "AND", "or", "Not"),
    *("BETWEEN", "in", "IS", "null", "like", "/* c */", "-- c\n", "#", "'", "/"),
]

operand = st.sampled_from([*NAMES, *LITERALS])


def _operands(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    texts = st.lists(st.sampled_from(["'x'", "'5'", "'é'", "''"]), min_size=1, max_size=6)
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "AND", "OR"])
    return st.one_of(
        st.tuples(inner, signs, inner).map(" ".join),
        st.tuples(inner, signs, inner).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(st.sampled_from(["NOT", "-", "+"]), inner).map(" ".join),
        st.tuples(inner, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
        st.tuples(inner, st.sampled_from(["", "NOT "]), inner, inner).map(
            lambda p: f"{p[0]} {p[1]}BETWEEN {p[2]} AND {p[3]}"
        ),
        st.tuples(inner, st.sampled_from(["", "NOT "]), texts).map(
            lambda p: f"{p[0]} {p[1]}IN ({', '.join(p[2])})"
        ),
    )


expressions = st.recursive(operand, _operands, max_leaves=8)
soups = st.lists(st.sampled_from([*NAMES, *LITERALS, *WORDS]), max_size=8).map(" ".join)
pairs = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES))
properties = pairs.map(
    lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found.items())
)


def outcomes(compiler: FilterCompiler, expression: str, texts: list[str]) -> list[str] | str:
    """The results of our filter, in the driver's form."""
    try:
        program = compiler.compile(expression)
    except FilterSyntaxError:
        return "REFUSED"
    return [Outcome(program.evaluate(text.encode())).name for text in texts]


@pytest.fixture(scope="module")
def compiler() -> FilterCompiler:
    return FilterCompiler()


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(expressions, soups), min_size=4, max_size=12),
    st.lists(properties, min_size=3, max_size=6),
)
def test_every_expression_has_the_same_results_as_in_the_reference(
    java: Driver, compiler: FilterCompiler, several: list[str], texts: list[str]
) -> None:
    theirs = java.call("filter", expressions=several, properties=texts)["outcomes"]
    ours = [outcomes(compiler, expression, texts) for expression in several]
    assert dict(zip(several, ours, strict=True)) == dict(zip(several, theirs, strict=True))


def test_the_recorded_outcomes_equal_those_of_the_reference(java: Driver) -> None:
    table = json.loads(TABLE.read_text())
    theirs = java.call(
        "filter", expressions=list(table["outcomes"]), properties=table["properties"]
    )
    assert list(table["outcomes"].values()) == theirs["outcomes"]


SQL = "price BETWEEN 10 AND 19 AND colour IN ('red', 'it''s') AND missing IS NULL"
WANTED = {str(i) for i in range(10, 20) if i % 3 == 0}


@pytest.fixture(scope="module")
def filtering(java: Driver, cluster: Cluster) -> Iterator[None]:
    """Set enablePropertyFilter during the tests that need it."""
    _enable(java, cluster, "true")
    yield
    _enable(java, cluster, "false")


def _enable(java: Driver, cluster: Cluster, value: str) -> None:
    java.mqadmin(
        *("updateBrokerConfig", "-b", cluster.broker.address),
        *("-k", "enablePropertyFilter", "-v", value),
    )


def send_priced(java: Driver, cluster: Cluster, topic: str, first: int = 0) -> None:
    """Forty messages, numbered from `first` on, with prices from 0 on; every third one is red."""
    messages = [
        message(
            topic,
            f"{first + i}|".encode(),
            properties={"price": str(i), "colour": "blue" if i % 3 else "red"},
        )
        for i in range(40)
    ]
    java.call("send", namesrv=cluster.namesrv.address, messages=messages)


def test_a_broker_without_property_filters_refuses_sql(
    java: Driver, cluster: Cluster, topic: str
) -> None:
    for call in ("consumerStart", "pull"):
        with pytest.raises(DriverError, match="does not support consumer to filter message by SQL"):
            java.call(
                call,
                **{"namesrv": cluster.namesrv.address, "topic": topic, "queueId": 0, "max": 32},
                **{"id": topic, "group": f"group-{topic}", "instances": 1, "sql": SQL},
            )


@pytest.mark.usefixtures("filtering")
def test_pulls_get_messages_that_pass_sql_filters(
    java: Driver, cluster: Cluster, topic: str
) -> None:
    send_priced(java, cluster, topic)
    got = java.call("drain", namesrv=cluster.namesrv.address, topics=[topic], sql=SQL)["messages"]
    assert {body(one).split(b"|")[0].decode() for one in got} == WANTED


@pytest.mark.usefixtures("filtering")
@pytest.mark.parametrize("language", ["java", "go"])
def test_push_consumers_get_messages_that_pass_sql_filters(
    java: Driver, cluster: Cluster, topic: str, language: str, request: pytest.FixtureRequest
) -> None:
    client: Driver = request.getfixturevalue(language)
    group = f"group-{uuid.uuid4().hex[:8]}"
    send_priced(java, cluster, topic)
    client.call(
        "consumerStart",
        **{"namesrv": cluster.namesrv.address, "id": group, "group": group, "topic": topic},
        **{"instances": 1, "sql": SQL},
    )
    wait = {"id": group, "quietMs": 500, "timeoutMs": 60_000}
    seen = client.call("consumerWait", expected=len(WANTED), **wait)
    assert seen["total"] == len(WANTED)
    # Held pulls wake for messages that pass, and only for those.
    send_priced(java, cluster, topic, first=40)
    seen = client.call("consumerWait", expected=2 * len(WANTED), **wait)
    assert seen["total"] == 2 * len(WANTED)
    client.call("consumerStop", id=group)


@pytest.mark.usefixtures("filtering")
def test_a_bad_expression_is_refused_with_its_place(
    java: Driver, cluster: Cluster, topic: str
) -> None:
    bad = {"id": topic, "group": f"group-{topic}", "instances": 1, "sql": "price >"}
    with pytest.raises(DriverError, match=r"(?s)CODE: 23.*line 1, column 7"):
        java.call("consumerStart", namesrv=cluster.namesrv.address, topic=topic, **bad)
