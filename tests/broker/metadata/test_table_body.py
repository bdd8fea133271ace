"""Bodies of large tables equal the plain encoding, and only changed entries are encoded again."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.base.steps import at_once
from congreve.broker.metadata import table_text
from congreve.broker.metadata.table_text import TableBody
from congreve.remoting.messages import fastjson
from congreve.remoting.messages.bodies import ConsumerOffsetSerializeWrapper

Table = dict[str, dict[int, int]]
names = st.text(st.characters(codec="utf-8"), max_size=5)
queues = st.dictionaries(st.integers(0, 9), st.integers(0, 2**63 - 1), max_size=3)
tables = st.dictionaries(names, queues, max_size=6)


def body_of(table: Table) -> TableBody[str, dict[int, int]]:
    return TableBody(table, ConsumerOffsetSerializeWrapper, "offsetTable", copied=dict)


@given(tables, st.lists(st.tuples(names, st.none() | queues), max_size=8))
def test_after_each_change_the_kept_body_equals_the_plain_encoding(
    table: Table, changes: list[tuple[str, dict[int, int] | None]]
) -> None:
    body = body_of(table)
    for name, value in [("", None), *changes]:
        if value is None:
            table.pop(name, None)
        else:
            table.setdefault(name, {}).update(value)
        plain = ConsumerOffsetSerializeWrapper(offset_table=table).encode()
        assert fastjson.loads(at_once(body.encode_steps())) == fastjson.loads(plain)


def test_only_changed_entries_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []
    dumps = table_text.fastjson.dumps
    monkeypatch.setattr(table_text.fastjson, "dumps", counting(encoded, dumps))
    table = {f"topic-{number}@group": {0: number} for number in range(5_000)}
    body = body_of(table)
    at_once(body.encode_steps())
    encoded.clear()
    table["topic-7@group"][1] = 5
    del table["topic-8@group"]
    found = json.loads(fastjson.standard(at_once(body.encode_steps()).decode()))
    assert found["offsetTable"]["topic-7@group"] == {"0": 7, "1": 5}
    assert len(found["offsetTable"]) == 4_999
    assert encoded == [ConsumerOffsetSerializeWrapper(), {"topic-7@group": {0: 7, 1: 5}}]


def counting(seen: list[object], dumps: Callable[[object], str]) -> Callable[[object], str]:
    def counted(value: object) -> str:
        seen.append(value)
        return dumps(value)

    return counted
