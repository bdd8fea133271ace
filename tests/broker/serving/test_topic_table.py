"""The fast path's topic table against a dict."""

from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.requests.topic_table import TopicTable
from congreve.engine.log.append_lock import AppendLock

names = st.text(alphabet="abcT_%", min_size=1, max_size=20)


@given(st.lists(st.tuples(st.booleans(), names)))
def test_the_table_holds_the_same_names_as_a_set(operations: list[tuple[bool, str]]) -> None:
    table, model = TopicTable(AppendLock()), set()
    for add, name in operations:
        if add:
            table.put(name, 4, 4)
            model.add(name)
        else:
            table.remove(name)
            model.discard(name)
    assert len(table) == len(model)
    assert all((name in table) == (name in model) for _, name in operations)


def test_names_survive_growth_and_removal_of_their_neighbours() -> None:
    table = TopicTable(AppendLock())
    for i in range(1000):
        table.put(f"a-topic-{i}", 1, 1)
    for i in range(0, 1000, 2):
        table.remove(f"a-topic-{i}")
    assert len(table) == 500
    assert all((f"a-topic-{i}" in table) == bool(i % 2) for i in range(1000))
