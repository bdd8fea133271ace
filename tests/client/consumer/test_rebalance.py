"""Members of all languages must compute the same shares."""

import random

from hypothesis import given
from hypothesis import strategies as st

from congreve.client.consumer.rebalance import averagely, share_of
from congreve.client.message import MessageQueue

QUEUES = [MessageQueue(topic="T", broker_name=b, queue_id=i) for b in "ab" for i in range(10)]


def reference(n: int, c: int, i: int) -> list[int]:
    """AVG as the protocol's description defines it."""
    rest = n % c
    size = 1 if n <= c else n // c + (1 if i < rest else 0)
    start = i * size if rest > 0 and i < rest else i * size + rest
    return list(range(start, start + max(0, min(size, n - start))))


@given(st.integers(0, len(QUEUES)), st.integers(1, 30))
def test_shares_equal_the_documented_examples(n: int, c: int) -> None:
    members = [f"10.0.0.{i:03}@1" for i in range(c)]
    for i, member in enumerate(members):
        share = share_of(averagely, member, QUEUES[:n], members)
        assert [QUEUES.index(queue) for queue in share] == reference(n, c, i)


@given(st.integers(0, len(QUEUES)), st.integers(1, 30), st.randoms())
def test_shares_are_disjoint_complete_and_independent_of_order(
    n: int, c: int, random_: random.Random
) -> None:
    members = [f"m{i}" for i in range(c)]
    taken: list[MessageQueue] = []
    for member in members:
        queues, others = QUEUES[:n], list(members)
        random_.shuffle(queues)
        random_.shuffle(others)
        taken += share_of(averagely, member, queues, others)
    assert sorted(taken) == sorted(QUEUES[:n])


def test_a_client_outside_of_the_group_gets_no_queue() -> None:
    assert share_of(averagely, "x", QUEUES, ["a", "b"]) == []
    assert share_of(averagely, "x", QUEUES, []) == []
