"""SQL92 filters against outcomes that the reference's own filter gave."""

import json
from pathlib import Path
from typing import Any

import pytest

from congreve.records.errors import FilterSyntaxError
from congreve.records.filterprogram import Outcome
from congreve.records.filtersyntax import CODE_MAX, FilterCompiler

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
