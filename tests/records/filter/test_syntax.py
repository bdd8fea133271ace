"""SQL92 filters, compared with results of the reference's filter."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from harness.slowness import limit_s

from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.program import Outcome
from congreve.records.filter.syntax import CODE_MAX, FilterCompiler

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden/filter_results.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def compiler() -> FilterCompiler:
    return FilterCompiler()


@pytest.mark.parametrize("expression", TABLE["outcomes"])
def test_an_expression_has_the_same_results_as_in_the_reference(
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
def test_a_syntax_error_names_its_position(
    compiler: FilterCompiler, expression: str, where: str
) -> None:
    with pytest.raises(FilterSyntaxError, match=where):
        compiler.compile(expression)


def test_no_expression_grows_without_bound(compiler: FilterCompiler) -> None:
    with pytest.raises(FilterSyntaxError, match=str(CODE_MAX)):
        compiler.compile("a BETWEEN 1 AND 2 OR " * (CODE_MAX // 8) + "a = 1")
    doubled = "a"
    for _ in range(30):
        doubled = f"-({doubled} BETWEEN 1 AND 2)"
    with pytest.raises(FilterSyntaxError, match=str(CODE_MAX)):
        compiler.compile(f"{doubled} = 1")
    with pytest.raises(FilterSyntaxError, match="nested deeper"):
        compiler.compile("a = " + "(b = " * 600 + "1" + ")" * 600)


def test_a_number_longer_than_any_buffer_is_read_whole(compiler: FilterCompiler) -> None:
    program = compiler.compile("a > 0.5")
    assert program.evaluate(b"a\x010." + b"0" * 1000 + b"9\x02") is Outcome.FALSE
    assert program.evaluate(b"a\x01" + b"0" * 1000 + b"9.0\x02") is Outcome.TRUE


def test_no_text_of_32_kib_is_read_as_a_number_a_thousand_times(compiler: FilterCompiler) -> None:
    assert compiler.compile("a > 1").evaluate(b"a\x01" + b"9" * 32_000) is Outcome.ERROR


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(" * 4_000_000, "characters"),
        ("+" * 4_000_000, "characters"),
        ("(" * 60_000, "nested deeper"),
        ("+" * 60_000 + "1 = 1", "nested deeper"),
        ("NOT " * 15_000 + "a", "nested deeper"),
        ("a IN (" + "''," * 20_000 + "'')", "2048"),
        ("a = 'b" + "''" * 40_000 + "'", "characters"),
    ],
)
def test_long_expressions_are_refused_with_a_reason(
    compiler: FilterCompiler, expression: str, why: str
) -> None:
    with pytest.raises(FilterSyntaxError, match=why):
        compiler.compile(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "+" * 500 + "1 = 1",
        "NOT " * 500 + "a",
        "(" * 500 + "a" + ")" * 500,
        " OR ".join(f"a = {i}" for i in range(400)),
        " AND ".join(f"a{i} BETWEEN 1 AND 2" for i in range(150)),
        "a IN (" + ",".join(f"'{i}'" for i in range(2_000)) + ")",
        "a = '" + "''" * 32_000 + "'",
    ],
)
def test_no_word_of_an_expression_takes_5_ms(compiler: FilterCompiler, expression: str) -> None:
    def worst() -> float:
        longest, steps, done = 0.0, compiler.steps(expression), False
        while not done:
            begun = time.thread_time()
            done = next(steps, compiler) is compiler
            longest = max(longest, time.thread_time() - begun)
        return longest

    assert min(worst() for _ in range(5)) < limit_s(0.005)


def test_in_matches_each_listed_text_and_no_other(compiler: FilterCompiler) -> None:
    texts = [f"{'x' * (i % 7)}{i}" for i in range(0, 4_000, 2)]
    program = compiler.compile("a IN (" + ",".join(f"'{text}'" for text in texts) + ")")
    for i in range(4_000):
        found = program.evaluate(f"a\x01{'x' * (i % 7)}{i}\x02".encode())
        assert found is (Outcome.FALSE if i % 2 else Outcome.TRUE)
