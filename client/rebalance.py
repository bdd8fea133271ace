"""Who of a group reads which queues (RocketMQ: AllocateMessageQueueAveragely)."""

from collections.abc import Sequence

from congreve.client.message import MessageQueue


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """This client's share: neighbours, one more for each of the first clients where it is uneven.

    All members compute the same from the same lists, in whatever order these came. Who is not
    among `client_ids` gets nothing.
    """
    members = sorted(client_ids)
    if client_id not in members:
        return []
    index, ordered = members.index(client_id), sorted(queues)
    share, rest = divmod(len(ordered), len(members))
    start = index * share + min(index, rest)
    return ordered[start : start + share + (1 if index < rest else 0)]
