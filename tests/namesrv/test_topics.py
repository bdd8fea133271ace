"""The table of topics does what a dictionary of dictionaries would do."""

from collections.abc import Set

from hypothesis import given
from hypothesis import strategies as st

from congreve.base.steps import at_once
from congreve.namesrv.topics import TopicTable
from congreve.remoting.messages.bodies import TopicConfig

NAMES = st.sampled_from([f"T{number}" for number in range(6)])
BROKERS = st.sampled_from("abcd")
TOPICS = st.lists(
    st.builds(TopicConfig, NAMES, st.integers(1, 2), st.integers(1, 2)),
    unique_by=lambda topic: topic.topic_name,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), BROKERS, TOPICS),
        st.tuples(st.just("remove"), st.sets(BROKERS), st.lists(NAMES)),
        st.tuples(st.just("perm"), BROKERS, st.sampled_from([4, 6])),
    )
)
Model = dict[str, dict[str, tuple[int, int, int]]]


class Modelled:
    """A table, and dictionaries that get the same changes."""

    def __init__(self) -> None:
        self.table = TopicTable()
        self.model: Model = {}

    def take(self, broker: str, topics: list[TopicConfig]) -> None:
        new = sum(broker not in self.model.get(t.topic_name, {}) for t in topics)
        assert self.table.count_new(broker, [t.topic_name for t in topics]) == new
        self.table.take(broker, topics)
        for t in topics:
            settings = t.read_queue_nums, t.write_queue_nums, t.perm
            self.model.setdefault(t.topic_name, {})[broker] = settings

    def remove(self, brokers: Set[str], topics: list[str]) -> None:
        self.table.remove(topics, brokers)
        for topic in topics:
            for broker in brokers:
                self.model.get(topic, {}).pop(broker, None)
        self.model = {topic: queues for topic, queues in self.model.items() if queues}

    def perm(self, broker: str, perm: int) -> None:
        having = [queues for queues in self.model.values() if broker in queues]
        assert at_once(self.table.change_perm(broker, lambda _: perm)) == len(having)
        for queues in having:
            queues[broker] = (*queues[broker][:2], perm)

    def check(self) -> None:
        table = self.table
        assert set(table) == self.model.keys()
        assert sorted(t for portion in table.portions() for t in portion) == sorted(self.model)
        assert table.entries == sum(map(len, self.model.values()))
        placements = {topic: table.get(topic) for topic in self.model}
        for topic, placement in placements.items():
            assert placement is not None
            assert placement.topics == sum(each is placement for each in placements.values())
            names = [each.broker_name for each in placement.queues]
            assert names == sorted(self.model[topic])
            assert {each.broker_name: each[1:4] for each in placement.queues} == self.model[topic]
        shared = {placement.queues for placement in placements.values() if placement}
        assert len(shared) == len({id(placement) for placement in placements.values()})


@given(STEPS)
def test_the_table_is_that_of_dictionaries(steps: list[tuple[object, ...]]) -> None:
    subject = Modelled()
    for name, *values in steps:
        getattr(subject, str(name))(*values)
        subject.check()


def test_topics_with_the_same_queues_share_them() -> None:
    table = TopicTable()
    for broker in "abc":
        table.take(broker, [TopicConfig(f"T{number}") for number in range(1_000)])
    assert len({id(table.get(topic)) for topic in table}) == 1
    assert table.entries == 3_000
