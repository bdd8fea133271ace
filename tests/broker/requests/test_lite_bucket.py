"""The queue of a lite topic."""

from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.grpc.send import bucket_of, java_hash
from congreve.broker.requests.lite_bucket import queue_of_lite

NAMES = st.text("abcxyzABCXYZ0189_-", min_size=1, max_size=64)


@given(NAMES, st.integers(1, 1000))
def test_compiled_code_chooses_the_queue_as_the_rule_in_python_does(name: str, queues: int) -> None:
    assert queue_of_lite(name, queues) == bucket_of(java_hash(name), queues)
