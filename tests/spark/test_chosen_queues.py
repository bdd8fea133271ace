"""Which queues a source reads."""

import pytest

from congreve.spark.errors import OptionError
from congreve.spark.offsets import Queue
from congreve.spark.options import Selection
from congreve.spark.planning import chosen_queues


class Source:
    """A cluster in which no topic has a queue."""

    def topics(self) -> list[str]:
        return ["%DLQ%g", "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "orders"]

    def queues(self, topic: str) -> list[Queue]:
        return []

    def missing_topic_hint(self, topic: str) -> str:
        return ""


def test_a_missing_topic_is_answered_with_those_of_users() -> None:
    selection = Selection("topic", ("order",))
    with pytest.raises(OptionError, match=r"'order', which does not exist; there are orders$"):
        chosen_queues(Source(), selection)  # type: ignore[arg-type]
