"""Which queues a member of a group reads (RocketMQ: AllocateMessageQueueStrategy)."""

from collections.abc import Callable, Mapping, Sequence

from congreve.remoting.messages.body import MessageQueue

Queues = Sequence[MessageQueue]
Strategy = Callable[[Queues, int, int], Queues]
"""Takes all queues in order, a member's place and the number of members; returns its queues."""

ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""


def averagely(queues: Queues, place: int, members: int) -> Queues:
    """Neighbouring queues, one more for the first members (RocketMQ:
    AllocateMessageQueueAveragely)."""
    each, rest = divmod(len(queues), members)
    begin = place * each + min(place, rest)
    return queues[begin : begin + each + (place < rest)]


def by_circle(queues: Queues, place: int, members: int) -> Queues:
    """Each `members`-th queue (RocketMQ: AllocateMessageQueueAveragelyByCircle)."""
    return queues[place::members]


STRATEGIES: Mapping[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""By their names in requests: those that brokers of RocketMQ 5 have."""


def popped(queues: Queues, place: int, members: int, share: int, strategy: Strategy) -> Queues:
    """The queues that a member pops: its own and those of the `share` members after it.

    All queues of each broker if `share` is 0 or less, or leaves no queue to others. With more
    members than queues each has one. (RocketMQ 5: QueryAssignmentProcessor.allocate4Pop.)
    """
    if share <= 0 or share >= members - 1:
        brokers = {queue.broker_name: queue.topic for queue in queues}
        return [MessageQueue(topic, broker, ALL_QUEUES) for broker, topic in brokers.items()]
    if members > len(queues):
        return [queues[place % len(queues)]]
    found = [strategy(queues, (place + i) % members, members) for i in range(share + 1)]
    return sorted({queue for each in found for queue in each})
