"""Files of settings are read as java.util.Properties reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.properties import (
    PropertiesError,
    Property,
    format_values,
    parse,
    render,
    replace_values,
    values,
)


def pairs(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerName=a", {"brokerName": "a"}),
        ("  brokerName : a b ", {"brokerName": "a b "}),
        ("brokerName a", {"brokerName": "a"}),
        ("# no\n! no\n\nk=v\n", {"k": "v"}),
        ("k=one\\\n   two\\\n   three\nl=1", {"k": "onetwothree", "l": "1"}),
        ("k=a\\\\\nl=b", {"k": "a\\", "l": "b"}),
        ("k=\\u0041\\t\\q", {"k": "A\tq"}),
        ("a\\=b\\ c=d=e", {"a=b c": "d=e"}),
        ("empty=\nalone", {"empty": "", "alone": ""}),
        ("k=1\r\nl=2\r\n", {"k": "1", "l": "2"}),
        ("k=1\nk=2", {"k": "2"}),
    ],
)
def test_properties_are_read_as_by_java(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


def test_entries_know_their_lines() -> None:
    assert parse("#c\na=1\\\n2\n\nb=3") == [Property("a", "12", 2, 3), Property("b", "3", 5, 5)]


def test_the_error_for_an_invalid_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"line 2: .*00zz"):
        parse("a=1\nb=\\u00zz")


def test_changed_values_keep_comments_and_other_lines() -> None:
    text = "# mine\nbrokerName=a\nlistenPort=1\\\n0\n! end\n"
    changed = replace_values(text, {"listenPort": "20", "traceOn": "false"})
    assert changed == "# mine\nbrokerName=a\nlistenPort=20\n! end\ntraceOn=false\n"


_TEXT = st.characters(exclude_categories=("Cs",))


@given(st.text(_TEXT, min_size=1), st.text(_TEXT))
def test_a_rendered_line_is_read_as_written(key: str, value: str) -> None:
    assert pairs(render(key, value)) == {key: value}


@given(st.dictionaries(st.text(min_size=1), st.text().map(str.strip)))
def test_formatted_values_are_read_back(texts: dict[str, str]) -> None:
    assert values(format_values(texts)) == texts
